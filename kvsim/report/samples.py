"""What the files of runs hold, cut down to what a figure can show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvsim.errors import ConfigError
from kvsim.metrics import MEMORY_CLASSES
from kvsim.plots.colours import MEMORY
from kvsim.plots.data import Distribution, FloatArray, Legend, Timeline
from kvsim.plots.runs import TAIL
from kvsim.report.runs import FinishedRun
from kvsim.request import Status
from kvsim.units import NS_PER_MS, NS_PER_S

IntArray = NDArray[np.int64]
Columns = dict[str, NDArray[Any]]

LATENCIES = ("TTFT", "TPOT", "E2EL")


def latencies_ms(run: FinishedRun) -> dict[str, FloatArray]:
    """TTFT, TPOT and E2EL of the requests that the summary is about, by name and as it defines them, ms.

    Raises:
        ConfigError: requests.parquet is missing or broken.
    """
    names = ["arrival_s", "first_token_s", "finished_s", "num_output_tokens"]
    rows = _read(run.path / "requests.parquet", [*names, "state"], ["last_token_s"])
    chosen = (rows["state"] == Status.COMPLETED.value) & (rows["arrival_s"] >= run.warmup_s)
    # a request may finish after its last token: with its batch; runs of earlier versions do not tell them apart
    last_token = rows.get("last_token_s", rows["finished_s"])[chosen]
    arrival, first, finished, last = (_ns(part) for part in (*(rows[name][chosen] for name in names[:3]), last_token))
    tokens = rows["num_output_tokens"][chosen]
    several = tokens > 1
    return {
        "TTFT": (first - arrival) / NS_PER_MS,
        "TPOT": (last - first)[several] / (tokens[several] - 1) / NS_PER_MS,
        "E2EL": (finished - arrival) / NS_PER_MS,
    }


def distribution(legend: Legend, values: FloatArray, most: int) -> Distribution:
    """The distribution of `values`, with at most `most` quantiles: evenly spaced, and where its axis may end."""
    fraction = np.linspace(0, 1, max(len(values), 2))
    if len(values) > most:
        fraction = np.union1d(np.linspace(0, 1, most - 2), (TAIL, 1 - TAIL))
    return Distribution(legend, np.quantile(values, fraction), fraction)


class Steps:
    """The steps of a run with what they left in memory and queues.

    Raises:
        ConfigError: steps.parquet or memory.parquet is missing or broken.
    """

    def __init__(self, run: FinishedRun) -> None:
        steps = _read(run.path / "steps.parquet", ["start_s", "duration_s", "num_waiting", "num_running"])
        memory = _read(run.path / "memory.parquet", list(MEMORY_CLASSES))
        start = steps["start_s"]
        end = start + steps["duration_s"]
        # an idle spell is a row of its own: nothing runs, all is free
        idle = np.append(_ns(start[1:]) > _ns(end[:-1]), True)[: len(end)]
        if len(next(iter(memory.values()))) != len(start):
            raise ConfigError(f"cannot read {run.path / 'memory.parquet'}: it has not a row for every step")
        pool = int(sum(values[0] for values in memory.values())) if len(start) else 0
        nothing = np.zeros(int(idle.sum()), dtype=np.int64)
        times = np.concatenate((start, end[idle]))
        order = np.argsort(times, kind="stable")
        self._warmup_s = run.warmup_s
        self.time_s: FloatArray = times[order]
        self._pool = pool
        self._rows = {
            name: np.concatenate((values, nothing + pool * (name == "free_usable")))[order]
            for name, values in (memory | {name: steps[name] for name in ("num_waiting", "num_running")}).items()
        }

    @property
    def end_s(self) -> float:
        """End of the last step."""
        return float(self.time_s[-1]) if len(self.time_s) else 0.0

    def timeline(self, legend: Legend, end_s: float, buckets: int) -> Timeline:
        """The run until `end_s`, of every one of `buckets` equal times the rows that are extreme.

        Those are the ones with least and most memory in use and with the shortest and longest queue; rows are
        dropped, never averaged, so that peaks stay and the classes add up to the pool.
        """
        inside = self.time_s <= end_s
        time_s = self.time_s[inside]
        free = (self._rows["free_usable"] + self._rows["free_unusable"])[inside]
        waiting = self._rows["num_waiting"][inside]
        bucket = np.minimum((time_s / (end_s or 1) * buckets).astype(np.int64), buckets - 1)
        kept = np.union1d(_extremes(bucket, free), _extremes(bucket, waiting))
        kept = np.union1d(kept, [0, len(time_s) - 1])
        names = [name for name in MEMORY if name in self._rows and self._rows[name][inside].any()]
        last = np.append(kept, kept[-1])  # the last row lasts to the end
        return Timeline(
            legend=legend,
            time_s=np.append(time_s[kept], end_s),
            memory={name: self._rows[name][inside][last] / self._pool for name in names},
            waiting=self._rows["num_waiting"][inside][last].astype(np.float64),
            running=self._rows["num_running"][inside][last].astype(np.float64),
            warmup_s=self._warmup_s,
        )


def _extremes(bucket: IntArray, values: IntArray) -> IntArray:
    """Rows with the least and with the greatest value of every bucket; `bucket` ascends."""
    order = np.lexsort((values, bucket))
    starts = np.flatnonzero(np.diff(bucket, prepend=-1))
    ends = np.append(starts[1:], len(bucket)) - 1
    return np.concatenate((order[starts], order[ends]))


def _ns(seconds: FloatArray) -> IntArray:
    return np.rint(seconds * NS_PER_S).astype(np.int64)


def _read(path: Path, names: Sequence[str], optional: Sequence[str] = ()) -> Columns:
    """Columns of numbers, and `state` of text; those of `optional` that there are.

    Raises:
        ConfigError: the file is missing, broken or of another program.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if not path.is_file():
            raise FileNotFoundError("no such file" if not path.exists() else "no regular file")
        present = pq.read_schema(path).names
        if missing := [name for name in names if name not in present]:
            raise OSError(f"no column {', '.join(missing)}")
        table = pq.read_table(path, columns=[*names, *(name for name in optional if name in present)])
        columns = {name: table[name].to_numpy() for name in table.column_names}
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(f"cannot read {path}: {' '.join(str(error).split())}") from error
    wrong = [name for name, values in columns.items() if name != "state" and values.dtype.kind not in "iuf"]
    if wrong:
        raise ConfigError(f"cannot read {path}: {', '.join(wrong)} has no numbers")
    return columns
