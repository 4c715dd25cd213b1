"""Logs kept on request: who was scheduled in every step, and who owned every block when."""

from __future__ import annotations

from typing import Protocol

from kvsim.plan import BlockTable, IntArray, StepPlan
from kvsim.request import Sequence
from kvsim.tables import ParquetStream, PlanLog
from kvsim.units import NS_PER_S


class Observer(Protocol):
    """Sees every plan as it is carried out."""

    def begin(self, plan: StepPlan, now: int, durations: IntArray) -> None:
        """`plan` starts at `now`, ns, and takes `durations`."""
        ...

    def end(self, ended: list[Sequence], now: int) -> None:
        """It is done, and these sequences ended with it."""
        ...

    def close(self, now: int) -> None:
        """The run is over; who still runs stays unfinished."""
        ...


class PlanObserver:
    """Writes plans.jsonl.gz, a line a step, repeats included."""

    def __init__(self, log: PlanLog) -> None:
        self._log = log
        self._open: tuple[StepPlan, int, IntArray] | None = None

    def begin(self, plan: StepPlan, now: int, durations: IntArray) -> None:
        """Keep the plan until it is known who finished."""
        self._open = plan, now, durations

    def end(self, ended: list[Sequence], now: int) -> None:
        """One line a repeat; only the first preempts, only the last finishes."""
        assert self._open is not None
        plan, start, durations = self._open
        finished = sorted(seq.request.request_id for seq in ended)
        last = len(durations) - 1
        for nth, duration in enumerate(durations.tolist()):
            preempted = sorted(plan.preempted) if nth == 0 else []
            self._log.write(
                plan.step + nth, start, plan.seq_ids, plan.num_tokens, preempted, finished if nth == last else []
            )
            start += duration

    def close(self, now: int) -> None:
        """Every plan has its lines."""


class BlockObserver:
    """Writes blocks.parquet by comparing block tables from step to step; needs every step (no fast-forward)."""

    def __init__(self, stream: ParquetStream) -> None:
        self._stream = stream
        self._owned: dict[int, tuple[BlockTable, list[int]]] = {}

    def begin(self, plan: StepPlan, now: int, durations: IntArray) -> None:
        """Close the intervals of who was preempted, open those of blocks new in a table."""
        self._close(list(plan.preempted), now)
        for seq_id, table in plan.tables.items():
            blocks, starts = self._owned.setdefault(seq_id, ([], []))
            for block in table[len(blocks) :]:
                blocks.append(block)
                starts.append(now)

    def end(self, ended: list[Sequence], now: int) -> None:
        """Close the intervals of who ended."""
        self._close([seq.seq_id for seq in ended], now)

    def close(self, now: int) -> None:
        """Close the intervals of who is unfinished."""
        self._close(list(self._owned), now)

    def _close(self, seq_ids: list[int], now: int) -> None:
        for seq_id in seq_ids:
            # a sequence that was preempted before it ever ran owned nothing
            blocks, starts = self._owned.pop(seq_id, ([], []))
            self._stream.write(
                {
                    "block": blocks,
                    "start_s": [start / NS_PER_S for start in starts],
                    "end_s": [now / NS_PER_S] * len(blocks),
                    "owner": [seq_id] * len(blocks),
                }
            )
