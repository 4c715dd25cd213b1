"""One row a request: when it came, when its tokens came, how it ended."""

from __future__ import annotations

from array import array

import numpy as np

from kvsim.errors import InvariantError
from kvsim.latency import RequestColumns, Stalls
from kvsim.plan import NO_ROWS, IntArray, StepPlan
from kvsim.request import Request, Sequence, Status

STATUS = {status: index for index, status in enumerate(Status)}

NEVER = -2
"""Of an event that did not happen; not the step before step 0."""

_EVENTS = ("state", "first_step", "last_step", "first_token_ns", "finished_ns", "preemptions", "recomputed")


class RequestTable:
    """Columns by request id, grown as requests come, written in bulk where rows share an event."""

    def __init__(self) -> None:
        self._arrived = {name: array("q") for name in ("id", "arrival_ns", "prompt", "output", "waiting")}
        self._at: dict[str, IntArray] = {name: np.full(1024, NEVER, dtype=np.int64) for name in _EVENTS}
        self._reasons: dict[int, str] = {}
        self._emitters: IntArray = NO_ROWS
        self._emitted_until = -1
        self._stalls: list[tuple[IntArray, IntArray, int]] = []

    def arrive(self, request: Request, num_output_tokens: int, num_waiting: int) -> None:
        """A request was queued; `num_waiting` now wait, it included."""
        arrived = self._arrived
        arrived["id"].append(request.request_id)
        arrived["arrival_ns"].append(request.arrival_ns)
        arrived["prompt"].append(request.num_prompt_tokens)
        arrived["output"].append(num_output_tokens)
        arrived["waiting"].append(num_waiting)
        while request.request_id >= len(self._at["state"]):
            self._at = {
                name: np.concatenate((column, np.full_like(column, NEVER))) for name, column in self._at.items()
            }

    def reject(self, request: Request, num_output_tokens: int, reason: str) -> None:
        """A request came that can never run."""
        self.arrive(request, num_output_tokens, -1)
        self._at["state"][request.request_id] = STATUS[Status.REJECTED]
        self._reasons[request.request_id] = reason

    def emit(self, plan: StepPlan, repeats: int, first_end_ns: int) -> int:
        """The rows of `plan` emit a token in each of `repeats` steps, the first of which ends at `first_end_ns`.

        Returns:
            Rows that emit.
        """
        ids = plan.seq_ids
        if plan.num_decodes < len(ids):
            sampling = plan.num_samples > 0
            if np.count_nonzero(sampling) < len(ids):
                ids = ids[sampling]
        if ids is not self._emitters:
            self._change_emitters(ids, plan.step, first_end_ns)
        self._emitted_until = plan.step + repeats - 1
        return len(ids)

    def end(self, seq: Sequence, status: Status, now: int) -> None:
        """A queued request ended."""
        at, row = self._at, seq.request.request_id
        at["state"][row] = STATUS[status]
        if status is Status.COMPLETED:
            at["finished_ns"][row] = now
        at["preemptions"][row] = seq.num_preemptions
        at["recomputed"][row] = seq.num_recomputed_tokens

    def cut(self, now: int) -> None:
        """The run is over: a step that it cuts puts nothing out.

        Raises:
            InvariantError: a request neither ended nor was given up.
        """
        ids = np.array(self._arrived["id"], dtype=np.int64)
        lost = ids[self._at["state"][ids] == NEVER]
        if len(lost):
            raise InvariantError("INV-states", f"requests {lost[:8].tolist()} came and never ended")
        first_token_ns = self._at["first_token_ns"]
        first_token_ns[first_token_ns > now] = NEVER

    def columns(self) -> RequestColumns:
        """All requests by id."""
        self._at["last_step"][self._emitters] = self._emitted_until
        came = {name: np.array(column, dtype=np.int64) for name, column in self._arrived.items()}
        order = came["id"].argsort(kind="stable")
        came = {name: column[order] for name, column in came.items()}
        ids = came["id"]
        at = {name: column[ids].clip(-1) for name, column in self._at.items()}
        return RequestColumns(
            request_id=ids,
            arrival_ns=came["arrival_ns"],
            num_prompt_tokens=came["prompt"],
            num_output_tokens=came["output"],
            first_token_ns=at["first_token_ns"],
            finished_ns=at["finished_ns"],
            state=at["state"],
            first_step=at["first_step"],
            last_step=at["last_step"],
            num_preemptions=at["preemptions"].clip(0),
            recomputed_tokens=at["recomputed"].clip(0),
            cached_tokens=np.zeros_like(ids),
        )

    def stalls(self, columns: RequestColumns) -> Stalls:
        """Gaps of more than one step between two tokens of a request."""
        if not self._stalls:
            return Stalls(NO_ROWS, NO_ROWS, NO_ROWS)
        ids, last, steps = zip(*self._stalls, strict=True)
        rows = columns.request_id.searchsorted(np.concatenate(ids))
        return Stalls(rows, np.concatenate(last), np.repeat(steps, [len(part) for part in ids]))

    def queue(self) -> tuple[IntArray, IntArray]:
        """[accepted] arrival instants, ns, and requests waiting right after each."""
        arrival = np.array(self._arrived["arrival_ns"], dtype=np.int64)
        waiting = np.array(self._arrived["waiting"], dtype=np.int64)
        accepted = waiting >= 0
        return arrival[accepted], waiting[accepted]

    def reasons(self, ids: IntArray) -> list[str | None]:
        """Why each of `ids` was rejected, None where it was not."""
        return [self._reasons.get(request_id) for request_id in ids.tolist()]

    def _change_emitters(self, ids: IntArray, step: int, end_ns: int) -> None:
        last_step = self._at["last_step"]
        last_step[self._emitters] = self._emitted_until
        last = last_step[ids]
        late = (last != step - 1).nonzero()[0]
        if len(late):
            ids_late, last_late = ids[late], last[late]
            new = ids_late[last_late == NEVER]
            self._at["first_step"][new] = step
            self._at["first_token_ns"][new] = end_ns
            if len(new) < len(late):
                stalled = last_late != NEVER
                self._stalls.append((ids_late[stalled], last_late[stalled], step))
        self._emitters = ids
