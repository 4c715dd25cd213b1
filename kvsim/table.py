"""Summaries on stdout: a table for people or the same figures as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

Summary = Mapping[str, object]


class Metric(NamedTuple):
    """What tables call a metric or label of a run, and the format of its numbers (`as_text`)."""

    label: str
    style: str = ""


MS = "ms"
"""A format: one decimal below a second, none above."""

METRICS = {
    "model": Metric("model"),
    "hardware": Metric("hardware"),
    "workload": Metric("workload"),
    "cost": Metric("step times"),
    "executor": Metric("executor"),
    "kv_num_blocks": Metric("KV blocks", ",.0f"),
    "kv_pool_gib": Metric("KV pool, GiB", ".2f"),
    "rate": Metric("rate, req/s"),
    "seed": Metric("seed"),
    "completed": Metric("completed", ",.0f"),
    "rejected": Metric("rejected", ",.0f"),
    "failed": Metric("failed", ",.0f"),
    "unfinished": Metric("unfinished", ",.0f"),
    "saturated": Metric("saturated"),
    "request_throughput": Metric("requests/s", ".3f"),
    "request_goodput": Metric("goodput, req/s", ".3f"),
    "output_throughput": Metric("output tokens/s", ",.1f"),
    "mean_normalized_latency": Metric("latency, s/token", ".4f"),
    "mean_ttft_ms": Metric("TTFT mean, ms", MS),
    "median_ttft_ms": Metric("TTFT p50, ms", MS),
    "p99_ttft_ms": Metric("TTFT p99, ms", MS),
    "mean_tpot_ms": Metric("TPOT mean, ms", MS),
    "median_tpot_ms": Metric("TPOT p50, ms", MS),
    "p99_tpot_ms": Metric("TPOT p99, ms", MS),
    "mean_e2el_ms": Metric("E2EL mean, ms", MS),
    "median_e2el_ms": Metric("E2EL p50, ms", MS),
    "p99_e2el_ms": Metric("E2EL p99, ms", MS),
    "mean_batch_size": Metric("batch, sequences", ".2f"),
    "kv_token_state_frac": Metric("KV token state", ".1%"),
    "kv_reserved_frac": Metric("KV reserved", ".1%"),
    "kv_internal_frac": Metric("KV internal frag.", ".1%"),
    "kv_external_frac": Metric("KV external and free", ".1%"),
    "num_preemptions": Metric("preemptions", ",.0f"),
    "recomputed_tokens": Metric("recomputed tokens", ",.0f"),
    "steps": Metric("steps", ",.0f"),
}
"""All that any table shows."""

ROWS = tuple(metric for metric in METRICS if not metric.startswith("median_"))
"""Metrics of a run, in order."""

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
        shown = ("system", *ROWS)
        print(json.dumps([{metric: summary[metric] for metric in shown} for summary in summaries], indent=2))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("system")
    for summary in summaries:
        table.add_column(str(summary["system"]), justify="right")
    for metric in ROWS:
        label, style = METRICS[metric]
        table.add_row(label, *(as_text(summary[metric], style) for summary in summaries))
    Console(width=None if sys.stdout.isatty() else WIDE, highlight=False).print(table)


def print_rows(rows: Sequence[Summary], output: str = "table") -> None:
    """One row a run, whose columns are the keys of the rows; `output` is ``table`` or ``json``."""
    if output == "json":
        print(json.dumps(rows, indent=2))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    columns = {name: METRICS.get(name, Metric(name)) for name in rows[0]}
    for name, metric in columns.items():
        words = any(isinstance(row[name], str) for row in rows)
        label = metric.label.replace(",", "").replace(" ", "\n") if name in METRICS else name
        table.add_column(label, justify="left" if words else "right", no_wrap=True, vertical="bottom")
    for row in rows:
        table.add_row(*(as_text(row[name], metric.style) for name, metric in columns.items()))
    # wider than a narrow terminal rather than cut off
    console = Console(highlight=False)
    console.width = max(console.width, console.measure(table, options=console.options.update(width=9999)).maximum)
    console.print(table)


def as_text(value: object, style: str = "", undefined: str = "-") -> str:
    """A value for people; `style` is a format of numbers or `MS`."""
    if value is None:
        return undefined
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and style == MS:
        style = ",.1f" if abs(value) < 1000 else ",.0f"
    if isinstance(value, float) and not style:
        style = "g"
    return format(value, style)
