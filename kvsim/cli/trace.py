"""`kvsim trace`: turn public traces into a trace table, describe them, make new ones."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kvsim.cli.parser import Parser, one_of
from kvsim.errors import ConfigError
from kvsim.suggest import did_you_mean

if TYPE_CHECKING:
    from kvsim.workload.formats.row import Row
    from kvsim.workload.formats.source import TraceSource

USAGE = """\
usage: kvsim trace COMMAND ...
  import  FILE [-o OUT]     turn a trace into a trace table for workload=trace
  stats   FILE              lengths, arrivals and prefix reuse of a trace
  synth   -o OUT --rate R   a trace table of what workload=sharegpt and its like generate

FILE: ShareGPT or Alpaca JSON, Azure or BurstGPT CSV, Mooncake or Qwen-Bailian JSON lines, a trace table (CSV or
parquet), plain or gzip; no pipe, no standard input. kvsim run workload=trace workload.path=FILE replays any of them as
it is, texts with a token for every 4 characters. kvsim trace COMMAND --help explains a command."""


def main(arguments: list[str]) -> int:
    """Do what the first word says.

    Raises:
        ConfigError: wrong usage, or a file that cannot be used; nothing is left behind.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0
    commands = {"import": import_trace, "stats": show_stats, "synth": synthesize}
    name, *rest = arguments
    if name not in commands:
        known = [*commands, "--help"]
        raise ConfigError(f"unknown trace command {name!r}{did_you_mean(name, known)}; see kvsim trace --help")
    return commands[name](rest)


def import_trace(arguments: list[str]) -> int:
    """`kvsim trace import`."""
    parser = Parser(
        "kvsim trace import",
        "Turn a trace into a table for kvsim run workload=trace workload.path=OUT.",
        "ShareGPT: one row for each human message and its answer, without the history before them. Rows stay in the "
        "file's order; a replay sorts them by time.",
    )
    _add_source(parser)
    parser.add_argument("-o", metavar="OUT", type=Path, help="the table, .parquet or .csv (FILE's name.trace.parquet)")
    options = parser.read(arguments)
    from kvsim.workload.formats.writer import write_table

    source = _open(options)
    out = options.o or Path(f"{options.file.name.partition('.')[0] or 'import'}.trace.parquet")
    count = write_table(out, source, source.columns, source.path)
    _tell_how_read(source, options)
    _say(f"{out}: {count} rows from {source.path} ({source.kind.name})")
    return 0


def show_stats(arguments: list[str]) -> int:
    """`kvsim trace stats`."""
    parser = Parser("kvsim trace stats", "Lengths, arrivals and prefix reuse of a trace.")
    _add_source(parser)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--plot", metavar="OUT", type=Path, help="draw them, .png, .svg or .pdf")
    options = parser.read(arguments)
    from kvsim.workload.trace_stats import TraceStats

    source = _open(options)
    if options.plot:
        from kvsim.cli.trace_figure import check_image

        check_image(options.plot, source.path)
    stats = TraceStats(source)
    _tell_how_read(source, options)
    if options.plot:
        from kvsim.cli.trace_figure import save_trace_figure

        save_trace_figure(stats, options.plot)
    summary = {"format": source.kind.name, **stats.summary()}
    print(json.dumps(summary, indent=2, allow_nan=False) if options.json else _describe(summary))
    return 0


def synthesize(arguments: list[str]) -> int:
    """`kvsim trace synth`."""
    from kvsim.workload.arrivals import PROCESSES
    from kvsim.workload.formats.row import ARRIVAL, OUTPUT, PROMPT
    from kvsim.workload.formats.writer import write_table
    from kvsim.workload.lengths import embedded_models

    parser = Parser("kvsim trace synth", "Write the requests that a workload of these numbers generates.")
    parser.add_argument("-o", metavar="OUT", type=Path, required=True, help="the table, .parquet or .csv")
    models = embedded_models()
    parser.add_argument("--lengths", metavar="MODEL", type=one_of(models), default="sharegpt", help=", ".join(models))
    parser.add_argument(
        "--arrivals", metavar="PROCESS", type=one_of(PROCESSES), default="poisson", help=", ".join(PROCESSES)
    )
    parser.add_argument("--rate", metavar="R", type=float, help="requests a second; not for all_at_once")
    limits = parser.add_mutually_exclusive_group(required=True)
    limits.add_argument("--num-requests", metavar="N", type=int)
    limits.add_argument("--duration", metavar="S", type=float, help="seconds")
    parser.add_argument("--cv", type=float, default=1.0, help="coefficient of variation of gamma gaps (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    options = parser.read(arguments)
    count = write_table(options.o, _generated(options), (ARRIVAL, PROMPT, OUTPUT))
    _say(f"{options.o}: {count} rows")
    return 0


def _generated(options: argparse.Namespace) -> Iterator[Row]:
    from kvsim.workload.formats.row import Row
    from kvsim.workload.generated import GeneratedWorkload
    from kvsim.workload.lengths import BinnedLengths

    if options.rate is None and options.arrivals != "all_at_once":
        raise ConfigError(f"--rate is not given: {options.arrivals} arrivals need requests a second, e.g. --rate 2")
    workload = GeneratedWorkload(
        BinnedLengths(options.lengths),
        options.arrivals,
        options.seed,
        options.rate,
        options.duration,
        options.num_requests,
        options.cv,
    )
    for request, num_output_tokens in iter(workload.next_arrival, None):
        yield Row(request.arrival_ns, request.num_prompt_tokens, num_output_tokens)


def _add_source(parser: Parser) -> None:
    from kvsim.workload.expanded import MAX_BYTES
    from kvsim.workload.formats.source import FORMATS

    formats = ("auto", *FORMATS)
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("--format", metavar="NAME", type=one_of(formats), default="auto", help=", ".join(formats))
    parser.add_argument("--tokenizer", metavar="NAME", help="for texts: opt, chars4 (default) or a tokenizer.json")
    parser.add_argument("--skip-bad-rows", action="store_true", help="count bad rows instead of stopping at the first")
    parser.add_argument(
        "--max-bytes", metavar="N", type=int, default=MAX_BYTES, help="limit of the expanded file (%(default)s)"
    )


def _open(options: argparse.Namespace) -> TraceSource:
    from kvsim.workload.formats.source import TraceSource

    if options.max_bytes < 1:
        raise ConfigError(f"--max-bytes {options.max_bytes}: must be at least 1")
    return TraceSource(options.file, options.format, options.tokenizer, options.skip_bad_rows, options.max_bytes)


def _tell_how_read(source: TraceSource, options: argparse.Namespace) -> None:
    """What whoever uses the rows should know, once all are read."""
    if source.counter is not None and options.tokenizer is None:
        _say(f"lengths are {source.counter.name}; --tokenizer opt or a tokenizer.json counts exactly")
    for reason, count in source.left_out.items():
        if count:
            _say(f"left out: {count} {reason}")
    if source.num_skipped:
        more = ", ..." if source.num_skipped > len(source.examples) else ""
        _say(f"bad rows skipped: {source.num_skipped} ({'; '.join(source.examples)}{more})")


def _describe(summary: dict[str, str | int | float | None]) -> str:
    """The figures as aligned lines."""
    plain = {
        "format": ("format", ""),
        "rows": ("rows", ",d"),
        "sessions": ("sessions", ",d"),
        "span_s": ("span, s", ",.1f"),
        "mean_rate": ("mean rate, req/s", ".4g"),
        "cv_of_gaps": ("burstiness (cv of gaps)", ".3f"),
        "hash_blocks": ("hash blocks", ",d"),
        "repeated_block_share": ("repeated blocks", ".2%"),
        "infinite_cache_hit_share": ("infinite-cache hits", ".2%"),
    }
    lines = [
        f"{label:24}{'-' if summary[key] is None else format(summary[key], style):>12}"
        for key, (label, style) in plain.items()
    ]
    points = ("mean", "p10", "p50", "p90", "p99", "max")
    lines += ["", " " * 16 + "".join(f"{point:>10}" for point in points)]
    for name in ("prompt_tokens", "output_tokens"):
        cells = "".join(f"{summary[f'{point}_{name}']:>10,.1f}" for point in points)
        lines.append(f"{name.replace('_', ' '):16}{cells}")
    return "\n".join(lines)


def _say(text: str) -> None:
    print(text, file=sys.stderr)
