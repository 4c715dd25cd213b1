"""`kvsim report`: runs side by side on one page."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from kvsim.cli.parser import Parser


def main(arguments: list[str]) -> int:
    """Write the report and print where it is.

    Raises:
        ConfigError: wrong usage, or nothing to report on.
    """
    parser = Parser(
        prog="kvsim report",
        description="Compare finished runs: tables and interactive figures on one HTML page that opens offline.",
        epilog="Beside the page: the table as .csv and .md, the figures as PNG. Needs pip install 'kvsim[report]'.",
    )
    parser.add_argument("folders", nargs="+", metavar="DIR", type=Path,
                        help="folder of a run, of a sweep, or of folders of either")  # fmt: skip
    parser.add_argument("-o", metavar="FILE", type=Path, dest="html",
                        help="the page (report.html in DIR; of several DIR, in the current folder)")  # fmt: skip
    parser.add_argument("--figures", metavar="DIR", type=Path, help="folder for PNG files (figures, beside the page)")
    parser.add_argument("--json", action="store_true", help="print the table as JSON, not the page's path")
    options = parser.read(arguments)
    from kvsim.report.write import write_report
    from kvsim.results import to_json

    home = options.folders[0] if len(options.folders) == 1 else Path()
    html = options.html or home / "report.html"
    report = write_report(options.folders, html, options.figures or html.parent / "figures")
    if report.lost:
        states = Counter(run.state for run in report.lost)
        what = ", ".join(f"{count} {state}" for state, count in states.items())
        print(f"kvsim: left out, and listed on the page: {what}", file=sys.stderr)
    print(to_json(report.rows) if options.json else report.html, end="" if options.json else "\n")
    return 0
