"""Summaries on stdout: a table for people or the same figures as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

Summary = Mapping[str, object]

ROWS = (
    ("model", "model", ""),
    ("hardware", "hardware", ""),
    ("workload", "workload", ""),
    ("rate", "rate, req/s", "g"),
    ("seed", "seed", ""),
    ("completed", "completed", ""),
    ("rejected", "rejected", ""),
    ("failed", "failed", ""),
    ("unfinished", "unfinished", ""),
    ("saturated", "saturated", ""),
    ("request_throughput", "requests/s", ".3f"),
    ("output_throughput", "output tokens/s", ".1f"),
    ("mean_normalized_latency", "latency, s/token", ".4f"),
    ("mean_ttft_ms", "TTFT mean, ms", ".1f"),
    ("p99_ttft_ms", "TTFT p99, ms", ".1f"),
    ("mean_tpot_ms", "TPOT mean, ms", ".1f"),
    ("p99_tpot_ms", "TPOT p99, ms", ".1f"),
    ("mean_e2el_ms", "E2EL mean, ms", ".1f"),
    ("p99_e2el_ms", "E2EL p99, ms", ".1f"),
    ("mean_batch_size", "batch, sequences", ".2f"),
    ("kv_token_state_frac", "KV token state", ".1%"),
    ("kv_reserved_frac", "KV reserved", ".1%"),
    ("kv_internal_frac", "KV internal frag.", ".1%"),
    ("kv_external_frac", "KV external + free", ".1%"),
    ("num_preemptions", "preemptions", ""),
    ("recomputed_tokens", "recomputed tokens", ""),
    ("steps", "steps", ""),
)
"""(metric, label, format) of each row, in order."""

SWEEP_METRICS = (
    "completed",
    "saturated",
    "request_throughput",
    "mean_normalized_latency",
    "p99_ttft_ms",
    "p99_tpot_ms",
    "mean_batch_size",
    "kv_token_state_frac",
    "num_preemptions",
)
"""Metrics of a row in the table of a sweep."""

WIDE = 200
"""Columns where stdout is no terminal: nothing is cut off in a file or a pipe."""


def print_summaries(summaries: Sequence[Summary], output: str = "table") -> None:
    """One column a run; `output` is ``table`` or ``json`` (a list of flat dicts with the metrics of the table)."""
    if output == "json":
        shown = ("system", *(metric for metric, _, _ in ROWS))
        print(json.dumps([{metric: summary[metric] for metric in shown} for summary in summaries], indent=2))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("system")
    for summary in summaries:
        table.add_column(str(summary["system"]), justify="right")
    for metric, label, style in ROWS:
        table.add_row(label, *(_cell(summary[metric], style) for summary in summaries))
    Console(width=None if sys.stdout.isatty() else WIDE, highlight=False).print(table)


def print_rows(rows: Sequence[Summary], output: str = "table") -> None:
    """One row a run, whose columns are the keys of the rows; `output` is ``table`` or ``json``."""
    if output == "json":
        print(json.dumps(rows, indent=2))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    known = {metric: (label.replace(",", "").replace(" ", "\n"), style) for metric, label, style in ROWS}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    columns = {name: known.get(name, (name, "")) for name in rows[0]}
    for name, (label, _) in columns.items():
        words = any(isinstance(row[name], str) for row in rows)
        table.add_column(label, justify="left" if words else "right", no_wrap=True, vertical="bottom")
    for row in rows:
        table.add_row(*(_cell(row[name], style) for name, (_, style) in columns.items()))
    # wider than a narrow terminal rather than cut off
    console = Console(highlight=False)
    console.width = max(console.width, console.measure(table, options=console.options.update(width=9999)).maximum)
    console.print(table)


def _cell(value: object, style: str) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and not style:
        style = "g"
    return format(value, style)
