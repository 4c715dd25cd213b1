"""One row a step, from one record a plan."""

from __future__ import annotations

import numpy as np

from kvsim.errors import InvariantError
from kvsim.plan import PHASES, IntArray, PoolUsage, StepPlan
from kvsim.record.memory import Reservations

Columns = dict[str, IntArray]

_PLAN_COLUMNS = (
    "repeats",
    "start_ns",
    "num_seqs",
    "num_prefill_tokens",
    "num_decode_seqs",
    "context_tokens",
    "num_waiting",
    "num_running",
    "num_emitted",
    "starved",
    "resident",
    "held",
    "free",
    "granted",
    "promised",
    "internal",
    "dead_tokens",
)


class StepTable:
    """Keeps plans until `expand` turns them into rows, all at once."""

    def __init__(self) -> None:
        self._plans: list[tuple[int, ...]] = []
        self._durations: list[IntArray] = []
        self._growth: list[IntArray] = []
        self._breakdowns: list[tuple[int, ...]] = []
        self._num_steps = 0
        self._measured: bool | None = None

    def __len__(self) -> int:
        return len(self._plans)

    def add(
        self,
        plan: StepPlan,
        now: int,
        durations: IntArray,
        growth: IntArray,
        num_emitted: int,
        usage: PoolUsage,
        reserved: Reservations,
        breakdown: tuple[int, ...] = (),
    ) -> None:
        """A plan that was carried out ``len(durations)`` times from `now` on; the state is that after its decision.

        Raises:
            InvariantError: some steps of the run have a breakdown and others none, or a plan with one has repeats.
        """
        if self._measured is None:
            self._measured = bool(breakdown)
        if bool(breakdown) != self._measured or (breakdown and len(durations) != 1):
            raise InvariantError(
                "INV-clock",
                f"step {plan.step}: {len(breakdown)} phases for {len(durations)} repeats; steps of a run are measured "
                "one by one, all or none",
            )
        rows = len(plan.seq_ids)
        self._plans.append(
            (
                len(durations),
                now,
                rows,
                plan.total_tokens - plan.num_decodes,
                plan.num_decodes,
                plan.context_tokens,
                plan.num_waiting,
                plan.num_running,
                num_emitted,
                plan.starved,
                usage.resident,
                usage.held,
                usage.free,
                *reserved,
            )
        )
        self._durations.append(durations)
        self._growth.append(growth)
        if breakdown:
            self._breakdowns.append(breakdown)

    def expand(self) -> Columns:
        """Rows of the plans added since the last call; `MEMORY_CLASSES` and what steps.parquet shows, in ns and tokens.

        Where steps were measured, their `PHASES` too.

        Raises:
            InvariantError: a sequence sees other tokens than its allocator says are stored.
        """
        plans = np.array(self._plans, dtype=np.int64).T.copy()
        repeats = plans[0]
        rows = dict(zip(_PLAN_COLUMNS, plans.take(np.repeat(np.arange(len(repeats)), repeats), axis=1), strict=True))
        durations, growth = np.concatenate(self._durations), np.concatenate(self._growth)
        first = np.repeat(repeats.cumsum() - repeats, repeats)
        nth = np.arange(len(durations)) - first
        ends = durations.cumsum()
        before = ends - durations
        columns = {
            "step": np.arange(self._num_steps, self._num_steps + len(durations)),
            "start_ns": rows["start_ns"] + before - before[first],
            "duration_ns": durations,
        }
        # each repeat of a plan is one token longer in every row
        added = nth * rows["num_seqs"]
        columns["context_tokens"] = rows["context_tokens"] + added
        for name in ("num_seqs", "num_prefill_tokens", "num_decode_seqs", "num_waiting", "num_running", "num_emitted"):
            columns[name] = rows[name]
        if self._breakdowns:
            columns |= zip(PHASES, np.array(self._breakdowns, dtype=np.int64).T, strict=True)
        columns |= _memory(rows, added, growth)
        self._check_context(columns, rows)
        self._num_steps += len(durations)
        self._plans.clear()
        self._durations.clear()
        self._growth.clear()
        self._breakdowns.clear()
        return columns

    def _check_context(self, columns: Columns, rows: Columns) -> None:
        whole = rows["num_seqs"] == rows["num_running"]
        wrong = whole & (columns["context_tokens"] != columns["token_state"])
        if wrong.any():
            row = int(wrong.argmax())
            raise InvariantError(
                "INV-tokens",
                f"step {columns['step'][row]}: {columns['context_tokens'][row]} tokens are visible to the batch, "
                f"{columns['token_state'][row]} are stored",
            )


def _memory(rows: Columns, added: IntArray, growth: IntArray) -> Columns:
    """The split of the vLLM paper's Fig. 2: a reserving pool has promises, a growing one unfilled last blocks."""
    reserves = rows["granted"] > 0
    token_state = rows["resident"] + added - rows["dead_tokens"]
    held = rows["held"] + growth
    free = rows["free"] - growth
    nothing = np.zeros_like(held)
    return {
        "token_state": token_state,
        "reserved": np.where(reserves, rows["promised"] - token_state, 0),
        "internal": np.where(reserves, rows["internal"], held - token_state),
        "rounding": np.where(reserves, held - rows["granted"], 0),
        "holes": nothing,
        "swap_in_flight": nothing,
        "cached": nothing,
        "free_usable": np.where(rows["starved"] > 0, 0, free),
        "free_unusable": np.where(rows["starved"] > 0, free, 0),
    }
