"""`kvsim reproduce`: published figures beside our own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kvsim.cli.parser import Parser
from kvsim.errors import ConfigError
from kvsim.suggest import did_you_mean

ALL = "all"
MAX_JOBS = 1024


def main(arguments: list[str]) -> int:
    """Reproduce the figures named; 1 if a value lies outside its band.

    Raises:
        ConfigError: wrong usage, or a folder that cannot be written to.
    """
    parser = Parser(
        prog="kvsim reproduce",
        description="Simulate what published figures show and compare; exit code 1 if a value is outside its band.",
        epilog="kvsim sweep experiment=fig2 runs a figure's experiment with changes of yours.",
    )
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help="names as --list shows them, or all")
    parser.add_argument("--list", action="store_true", help="show what there is")
    parser.add_argument("-o", metavar="DIR", type=Path, default=Path("outputs/reproduce"), dest="folder",
                        help="folder for CSV and PNG (%(default)s)")  # fmt: skip
    parser.add_argument("--jobs", metavar="N", type=int, default=os.cpu_count() or 1, help="processes (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    options = parser.read(arguments)
    if options.list:
        return show_list(options.json)
    names = chosen(options.figures)
    if not 1 <= options.jobs <= MAX_JOBS:
        raise ConfigError(f"--jobs {options.jobs}: must be from 1 to {MAX_JOBS}")
    return reproduce(names, options.folder, options.jobs, options.json)


def chosen(words: list[str]) -> list[str]:
    """Names of figures, each once, in the order given.

    Raises:
        ConfigError: none, or an unknown one.
    """
    from kvsim.reproduce.figures import FIGURES

    for word in words:
        if word not in (*FIGURES, ALL):
            names = ", ".join(FIGURES)
            raise ConfigError(f"unknown figure {word!r}{did_you_mean(word, [*FIGURES, ALL])}; there are {names}, {ALL}")
    if not words:
        raise ConfigError(f"name a figure: {', '.join(FIGURES)} or {ALL}; see kvsim reproduce --list")
    return list(FIGURES) if ALL in words else list(dict.fromkeys(words))


def show_list(as_json: bool) -> int:
    """Name, title and source of every figure."""
    from kvsim.reproduce.figures import FIGURES

    if as_json:
        from kvsim.results import to_json

        print(to_json([{"figure": f.name, "title": f.title, "source": f.source} for f in FIGURES.values()]), end="")
        return 0
    for figure in FIGURES.values():
        print(f"{figure.name:8} {figure.title} ({figure.source})")
    return 0


def reproduce(names: list[str], folder: Path, jobs: int, as_json: bool) -> int:
    """Run, write, print; the exit code."""
    from rich.console import Console

    from kvsim.reproduce.base import Verdict
    from kvsim.reproduce.figures import FIGURES
    from kvsim.reproduce.output import open_folder, print_table, record, write
    from kvsim.reproduce.runner import Runner
    from kvsim.results import to_json
    from kvsim.table import WIDE

    open_folder(folder)
    console = Console(width=None if sys.stdout.isatty() else WIDE, highlight=False, markup=False, soft_wrap=False)
    outcomes = {}
    for name in names:
        with Runner(jobs, name, sys.stderr if sys.stderr.isatty() else None) as runner:
            outcomes[name] = FIGURES[name].reproduce(runner)
        write(folder, FIGURES[name], outcomes[name])
        if not as_json:
            print_table(FIGURES[name], outcomes[name].rows, console)
    rows = [(FIGURES[name], row) for name in names for row in outcomes[name].rows]
    if as_json:
        print(to_json([record(figure, row) for figure, row in rows]), end="")
    print(f"CSV and PNG in {os.path.relpath(folder)}", file=sys.stderr)
    return int(any(row.verdict is Verdict.MISS for _, row in rows))
