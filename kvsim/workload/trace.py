"""`TraceWorkload`: requests of a file, at their own instants or re-timed by an arrival process."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from kvsim.checks import check_choice, check_flag, check_integer, check_number, shown
from kvsim.errors import ConfigError, TraceError
from kvsim.plan import IntArray
from kvsim.streams import stream
from kvsim.units import MAX_SECONDS, NS_PER_S
from kvsim.workload.arrivals import MAX_RATE, MIN_RATE, PROCESSES, ArrivalProcess
from kvsim.workload.base import Block, BlockWorkload, Limits
from kvsim.workload.expanded import MAX_BYTES
from kvsim.workload.formats.source import TraceSource

log = logging.getLogger(__name__)

BLOCK = 4096


class TraceWorkload(BlockWorkload):
    """Replays a trace. Request id = number from 0 of the row that `TraceSource` reads; order by (arrival, row).

    Lengths of 0 are data: the engine rejects such requests. Those of texts are a token for every 4 characters;
    ``kvsim trace import --tokenizer`` counts exactly.

    Args:
        path: a trace table, or a file of any other format that `TraceSource` knows.
        arrivals: `trace` for the file's own instants, else a process of `ArrivalProcess` in their order, or in the
            file's where it has none.
        seed: of the run; an arrival process uses the stream "arrivals".
        rate: requests per second of the process, or of the trace when rescaled.
        duration: seconds; arrivals before it count.
        num_requests: at most so many, the earliest; None for all rows.
        cv: of gamma gaps.
        rescale: stretch the file's instants so that rows / span = rate.
        max_bytes: limit of the expanded file, all of which is read whatever `num_requests`.

    Raises:
        TraceError: the file cannot be used; names file, line and column.
        ConfigError: options out of range or at odds.
    """

    def __init__(
        self,
        path: str | None,
        arrivals: str = "trace",
        seed: int = 0,
        rate: float | None = None,
        duration: float | None = None,
        num_requests: int | None = None,
        cv: float = 1.0,
        rescale: bool = False,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        if not isinstance(path, str) or not path:
            problem = (
                f"workload.path={shown(path)}: must be text" if path not in (None, "") else "workload.path is not set"
            )
            raise ConfigError(f"{problem}; give workload.path=FILE")
        check_choice("workload.arrivals", arrivals, ("trace", *PROCESSES))
        check_integer("workload.max_bytes", max_bytes, 1, 1 << 50, "give for example workload.max_bytes=4294967296")
        check_flag("workload.rescale", rescale)
        limits = Limits(duration, num_requests)
        process = None if arrivals == "trace" else ArrivalProcess(arrivals, rate, cv, stream(seed, "arrivals"))
        if process is not None and rescale:
            raise ConfigError(
                f"workload.rescale=true stretches a trace's own instants; drop it or workload.arrivals={arrivals}"
            )
        source = TraceSource(Path(path).expanduser(), max_bytes=max_bytes)
        if process is None and rescale != (rate is not None):
            timeless = next(iter(source)).arrival_ns is None
            raise _no_times(path, rescale) if timeless else ConfigError(_rate_remedy(rate))
        times, prompts, outputs = _read(source)
        if times is None:
            if process is None:
                raise _no_times(path, rescale)
            times = np.zeros(len(prompts), dtype=np.int64)
        order = np.argsort(times, kind="stable")
        times = times[order]
        if process is not None:
            times = process.take(len(times))
            by_row = np.lexsort((order, times))
            order, times = order[by_row], times[by_row]
        elif rate is not None:
            times = _rescale(times, rate, path)
        columns = Block(order, times, prompts[order], outputs[order])
        super().__init__(_blocks(columns, limits.count(times)))
        if source.counter is not None:
            log.warning("lengths are %s; kvsim trace import --tokenizer counts exactly", source.counter.name)


def _read(source: TraceSource) -> tuple[IntArray | None, IntArray, IntArray]:
    """[rows] arrival ns (None where the file has no times), prompt and output tokens, in the file's order."""
    times, prompts, outputs = array("q"), array("q"), array("q")
    for row in source:
        if row.arrival_ns is not None:
            times.append(row.arrival_ns)
        prompts.append(row.num_prompt_tokens)
        outputs.append(row.num_output_tokens)
    arrivals, prompt_tokens, output_tokens = (np.frombuffer(part, np.int64) for part in (times, prompts, outputs))
    return arrivals if times else None, prompt_tokens, output_tokens


def _rescale(times: IntArray, rate: float, path: str) -> IntArray:
    """Ascending instants stretched so that rows / span = rate."""
    check_number("rate", rate, MIN_RATE, MAX_RATE, "give requests per second, for example rate=2")
    span = int(times[-1] - times[0])
    if span == 0:
        raise TraceError(
            f"{path}: all rows arrive at one instant, so they cannot be rescaled to a rate; use workload.arrivals"
        )
    scaled = times.astype(np.float64) * (len(times) / rate * NS_PER_S / span)
    if scaled[-1] > MAX_SECONDS * NS_PER_S:
        raise ConfigError(f"rate={rate!r}: the trace would last more than {MAX_SECONDS:g} s; raise the rate")
    return np.rint(scaled).astype(np.int64)


def _no_times(path: str, rescale: bool) -> TraceError:
    drop = " and drop workload.rescale" if rescale else ""
    return TraceError(f"{path}: has no arrival times; give workload.arrivals=poisson rate=2{drop}")


def _rate_remedy(rate: float | None) -> str:
    if rate is None:
        return "workload.rescale=true needs a rate; give for example rate=2"
    return (
        f"rate={rate!r}: a trace has its own arrival times; drop rate, stretch them with workload.rescale=true, "
        "or replace them with workload.arrivals=poisson"
    )


def _blocks(columns: Block, count: int) -> Iterator[Block]:
    for start in range(0, count, BLOCK):
        part = slice(start, min(start + BLOCK, count))
        yield Block(*(column[part] for column in columns))
