"""Executors without a device: predicted time, predicted time over a checked memory, and recorded time."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kvsim.errors import ConfigError, InvariantError
from kvsim.plan import IntArray, StepPlan, StepResult
from kvsim.protocols import CostModel
from kvsim.units import NS_PER_S
from kvsim.workload.outcomes import Outcomes


class SimExecutor:
    """Time passes as the cost model predicts; nothing else happens."""

    def __init__(self, cost: CostModel, outcomes: Outcomes) -> None:
        self._cost = cost
        self._outcomes = outcomes
        self._last_ns = 1

    def execute(self, plan: StepPlan, now: int, max_repeats: int, until: int) -> StepResult:
        """Up to `max_repeats` repeats, as many as start before `until`."""
        durations = self._durations(plan, max_repeats, until - now)
        self._last_ns = max(1, int(durations[-1]))
        return StepResult(durations, self._outcomes.draw(plan, len(durations)))

    def _durations(self, plan: StepPlan, max_repeats: int, span: int) -> IntArray:
        if max_repeats == 1:
            return self._cost.decode_run(plan, 1)
        # a little more than what the last step's duration suggests; doubled if that was too few
        repeats = min(max_repeats, span // self._last_ns + 2)
        while True:
            durations = self._cost.decode_run(plan, repeats)
            ends = durations.cumsum()
            started = 1 + int(ends[:-1].searchsorted(span))
            if started < repeats or repeats == max_repeats or ends[-1] >= span:
                return durations[:started]
            repeats = min(max_repeats, 2 * repeats)


class MemoryCheckExecutor(SimExecutor):
    """Writes every token's name into a NumPy pool and reads the context back: aliasing cannot hide.

    Steps one by one, as a device does.

    Raises:
        InvariantError: a row sees a token that is not its own, or writes outside its table.
    """

    def __init__(self, cost: CostModel, outcomes: Outcomes, *, num_slots: int, block_size: int) -> None:
        super().__init__(cost, outcomes)
        self._block_size = block_size
        self._owner: IntArray = np.full(num_slots, -1, dtype=np.int64)
        self._position: IntArray = np.full(num_slots, -1, dtype=np.int64)

    def execute(self, plan: StepPlan, now: int, max_repeats: int, until: int) -> StepResult:
        """One step: all writes, then all reads."""
        slots = [self._slots(plan, row.seq_id, row.context_len) for row in plan.rows()]
        for row, own in zip(plan.rows(), slots, strict=True):
            written = own[row.slot_start : row.slot_start + row.num_tokens]
            self._owner[written] = row.seq_id
            self._position[written] = np.arange(row.position, row.position + row.num_tokens)
        for row, own in zip(plan.rows(), slots, strict=True):
            foreign = (self._owner[own] != row.seq_id) | (self._position[own] != np.arange(row.context_len))
            if foreign.any():
                at = int(foreign.argmax())
                raise InvariantError(
                    "INV-blocks",
                    f"step {plan.step}: token {at} of sequence {row.seq_id} in slot {own[at]} reads as token "
                    f"{self._position[own[at]]} of sequence {self._owner[own[at]]}",
                )
        return super().execute(plan, now, 1, until)

    def _slots(self, plan: StepPlan, seq_id: int, context_len: int) -> IntArray:
        table = np.array(plan.tables[seq_id], dtype=np.int64)
        slots: IntArray = (table[:, None] * self._block_size + np.arange(self._block_size)).ravel()[:context_len]
        outside = (slots < 0) | (slots >= len(self._owner))
        if outside.any():
            raise InvariantError(
                "INV-blocks", f"step {plan.step}: sequence {seq_id} has slot {slots[outside][0]} of {len(self._owner)}"
            )
        if len(slots) < context_len:
            raise InvariantError(
                "INV-blocks",
                f"step {plan.step}: sequence {seq_id} needs {context_len} slots, its table has {len(slots)}",
            )
        return slots


class ReplayExecutor:
    """Time passes as it did in a recorded run, step by step, so that its decisions come out again.

    Args:
        durations: [steps] ns of every step of that run.
        outcomes: of the same workload.
    """

    def __init__(self, durations: IntArray, outcomes: Outcomes) -> None:
        self._durations = durations
        self._outcomes = outcomes

    @classmethod
    def from_run(cls, path: str | Path, outcomes: Outcomes) -> ReplayExecutor:
        """Durations from the steps.parquet of a run folder.

        Raises:
            ConfigError: there is none, or it cannot be read.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        file = Path(path) / "steps.parquet"
        try:
            seconds = pq.read_table(file, columns=["duration_s"])["duration_s"].to_numpy()
        except (OSError, pa.ArrowException, KeyError) as error:
            raise ConfigError(
                f"executor.path={str(path)!r}: no readable steps.parquet in it; name a run folder"
            ) from error
        return cls(np.rint(seconds * NS_PER_S).astype(np.int64), outcomes)

    def execute(self, plan: StepPlan, now: int, max_repeats: int, until: int) -> StepResult:
        """The recorded durations from the plan's step on, as many as start before `until`."""
        durations = self._durations[plan.step : plan.step + max_repeats]
        if not len(durations):
            raise ConfigError(
                f"step {plan.step} is beyond the {len(self._durations)} recorded ones; replay the same run"
            )
        started = 1 + int(durations[:-1].cumsum().searchsorted(until - now))
        durations = durations[:started]
        return StepResult(durations, self._outcomes.draw(plan, len(durations)))
