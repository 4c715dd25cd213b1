"""The tables of a run folder, seconds outside, nanoseconds inside."""

from __future__ import annotations

import numpy as np

from kvsim.latency import FloatArray, RequestColumns
from kvsim.metrics import MEMORY_CLASSES
from kvsim.plan import PHASES, IntArray
from kvsim.record.steps import Columns
from kvsim.request import Status
from kvsim.results import RunFolder
from kvsim.tables import Kind
from kvsim.units import NS_PER_S

_STEP_COUNTS = (
    "num_seqs",
    "num_prefill_tokens",
    "num_decode_seqs",
    "context_tokens",
    "num_waiting",
    "num_running",
)
_STEPS: dict[str, Kind] = {"step": "int64", "start_s": "float64", "duration_s": "float64"}
_STEPS.update(dict.fromkeys(_STEP_COUNTS, "int64"))
_STEPS.update({f"{phase}_s": "float64" for phase in PHASES})
_MEMORY: dict[str, Kind] = {"step": "int64", **dict.fromkeys(MEMORY_CLASSES, "int64")}
_REQUESTS: dict[str, Kind] = {
    "request_id": "int64",
    "arrival_s": "float64",
    "num_prompt_tokens": "int64",
    "num_output_tokens": "int64",
    "first_token_s": "float64",
    "last_token_s": "float64",
    "finished_s": "float64",
    "state": "string",
    "reason": "string",
    "num_preemptions": "int64",
    "recomputed_tokens": "int64",
    "cached_tokens": "int64",
}


class RunFiles:
    """requests.parquet, steps.parquet and memory.parquet of a run folder."""

    def __init__(self, folder: RunFolder) -> None:
        self._requests = folder.parquet("requests.parquet", _REQUESTS)
        self._steps = folder.parquet("steps.parquet", _STEPS)
        self._memory = folder.parquet("memory.parquet", _MEMORY)

    def write_steps(self, columns: Columns) -> None:
        """Append rows of `StepTable.expand` to steps and memory; phases of a step that nobody measured are null."""
        counts = {name: columns[name] for name in _STEP_COUNTS}
        start_s, duration_s = columns["start_ns"] / NS_PER_S, columns["duration_ns"] / NS_PER_S
        unknown = np.full(len(start_s), np.nan)
        phases = {f"{phase}_s": columns[phase] / NS_PER_S if phase in columns else unknown for phase in PHASES}
        self._steps.write({"step": columns["step"], "start_s": start_s, "duration_s": duration_s, **counts, **phases})
        self._memory.write({name: columns[name] for name in _MEMORY})

    def write_requests(self, columns: RequestColumns, reasons: list[str | None], step_ends: IntArray) -> None:
        """Write every request; an instant that never came is null.

        Args:
            step_ends: [steps] end of each step, ns. The last token of an unfinished request is not known.
        """
        known = columns.finished_ns >= 0
        last_token_ns = np.full_like(columns.finished_ns, -1)
        last_token_ns[known] = step_ends[columns.last_step[known]]
        states = [status.value for status in Status]
        self._requests.write(
            {
                "request_id": columns.request_id,
                "arrival_s": columns.arrival_ns / NS_PER_S,
                "num_prompt_tokens": columns.num_prompt_tokens,
                "num_output_tokens": columns.num_output_tokens,
                "first_token_s": _seconds(columns.first_token_ns),
                "last_token_s": _seconds(last_token_ns),
                "finished_s": _seconds(columns.finished_ns),
                "state": [states[state] for state in columns.state.tolist()],
                "reason": reasons,
                "num_preemptions": columns.num_preemptions,
                "recomputed_tokens": columns.recomputed_tokens,
                "cached_tokens": columns.cached_tokens,
            }
        )


def _seconds(instants: IntArray) -> FloatArray:
    """Seconds, NaN where there is no instant."""
    return np.where(instants < 0, np.nan, instants / NS_PER_S)
