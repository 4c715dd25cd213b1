"""The reserving pools under any sequence of calls, beside a naive buddy pool of sets."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvsim.kv.contiguous import ContiguousAllocator, ReserveMax, ReserveOracle, ReservePow2
from kvsim.protocols import Admission
from kvsim.request import Request, Sequence

Chunk = tuple[int, int]
"""Start and blocks."""

MAX_MODEL_LEN = 64


def rounded(value: int) -> int:
    return 1 if value <= 1 else 2 * rounded((value + 1) // 2)


def cut(num_blocks: int, largest: int) -> set[Chunk]:
    """The chunks of an empty pool."""
    chunks, start = set(), 0
    while start < num_blocks:
        size = max(2**power for power in range(8) if 2**power <= min(largest, num_blocks - start))
        chunks.add((start, size))
        start += size
    return chunks


class BuddyMachine(RuleBasedStateMachine):
    """Admits, grows and frees; subclasses name the rule and say what it reserves."""

    def make(self, num_blocks: int, block_size: int) -> ContiguousAllocator:
        raise NotImplementedError

    def reservation(self, prompt: int, output: int) -> int:
        raise NotImplementedError

    def num_output_tokens(self, request_id: int) -> int:
        """The machine is the oracle of its pool."""
        return self.outputs[request_id]

    @initialize(num_blocks=st.integers(1, 70), block_size=st.sampled_from([1, 4, 16]))
    def build(self, num_blocks: int, block_size: int) -> None:
        self.outputs: dict[int, int] = {}
        self.pool = self.make(num_blocks, block_size)
        self.size = block_size
        self.empty = cut(num_blocks, MAX_MODEL_LEN // block_size)
        self.free = set(self.empty)
        self.held: dict[int, Chunk] = {}
        self.grants: dict[int, int] = {}
        self.seqs: dict[int, Sequence] = {}

    def take(self, size: int) -> int | None:
        """The model's take: the smallest chunk that serves, then the lowest; halved until it fits."""
        serving = [(have, start) for start, have in self.free if have >= size]
        if not serving:
            return None
        have, start = min(serving)
        self.free.remove((start, have))
        while have > size:
            have //= 2
            self.free.add((start + have, have))
        return start

    def give_back(self, start: int, size: int) -> None:
        self.free.add((start, size))
        while size < MAX_MODEL_LEN // self.size and (start ^ size, size) in self.free:
            self.free -= {(start, size), (start ^ size, size)}
            start, size = min(start, start ^ size), 2 * size
            self.free.add((start, size))

    @rule(prompt=st.integers(1, 40), output=st.integers(1, 24))
    def admit(self, prompt: int, output: int) -> None:
        request_id = len(self.outputs)
        self.outputs[request_id] = output
        seq = Sequence(request_id, Request(request_id, 0, prompt))
        grant = self.reservation(prompt, output)
        size = rounded(-(-grant // self.size))
        now = self.pool.can_admit(seq) is Admission.NOW
        start = self.take(size)
        assert now == (start is not None)
        assert self.pool.allocate(seq, prompt) == now
        if start is not None:
            seq.num_computed_tokens = prompt
            self.seqs[request_id] = seq
            self.held[request_id] = start, size
            self.grants[request_id] = grant

    @precondition(lambda self: self.seqs)
    @rule(data=st.data(), steps=st.integers(1, 24))
    def grow(self, data: st.DataObject, steps: int) -> None:
        """Some sequences decode, inside what was reserved for each."""
        ids = data.draw(st.lists(st.sampled_from(sorted(self.seqs)), min_size=1, unique=True))
        seqs = [self.seqs[seq_id] for seq_id in ids]
        held = np.array([seq.num_computed_tokens for seq in seqs])
        steps = min(steps, *(self.grants[seq.seq_id] - seq.num_computed_tokens for seq in seqs))
        assert self.pool.num_appendable(held) == len(seqs)
        assert self.pool.max_decode_steps(held) >= steps
        if steps:
            assert self.pool.grow(seqs, held, steps).tolist() == [0] * steps
        for seq in seqs:
            seq.num_computed_tokens += steps

    @precondition(lambda self: self.seqs)
    @rule(data=st.data(), beyond=st.integers(1, 100))
    def ask_too_much(self, data: st.DataObject, beyond: int) -> None:
        seq = self.seqs[data.draw(st.sampled_from(sorted(self.seqs)))]
        before = self.pool.usage()
        assert not self.pool.allocate(seq, self.grants[seq.seq_id] + beyond)
        assert self.pool.usage() == before

    @precondition(lambda self: self.seqs)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        seq = self.seqs.pop(data.draw(st.sampled_from(sorted(self.seqs))))
        self.give_back(*self.held.pop(seq.seq_id))
        del self.grants[seq.seq_id]
        self.pool.free(seq)

    @invariant()
    def same_as_the_model(self) -> None:
        tables = {seq_id: list(range(start, start + size)) for seq_id, (start, size) in self.held.items()}
        assert self.pool.tables == tables
        assert self.pool.num_free_blocks == sum(size for _, size in self.free)
        self.pool.check_integrity()

    @invariant()
    def chunks_lie_at_multiples_of_their_size(self) -> None:
        assert all(table[0] % len(table) == 0 for table in self.pool.tables.values())

    @invariant()
    def usage_adds_up(self) -> None:
        usage = self.pool.usage()
        assert usage.held + usage.free == usage.total
        assert usage.grants == self.grants
        assert usage.resident == sum(seq.num_computed_tokens for seq in self.seqs.values())
        assert usage.resident <= sum(self.grants.values()) <= usage.held

    def teardown(self) -> None:
        """All freed, the pool is as it was cut: it hands out the same chunks as a new one."""
        if not hasattr(self, "pool"):
            return
        for seq in self.seqs.values():
            self.pool.free(seq)
            self.give_back(*self.held[seq.seq_id])
        assert self.free == self.empty
        usage = self.pool.usage()
        assert (usage.free, usage.held, usage.resident) == (usage.total, 0, 0)
        again = self.make(usage.total // self.size, self.size)
        for request_id, output in list(self.outputs.items()):
            seq = Sequence(request_id, Request(request_id, 0, 1 + 7 * output % 40))
            assert self.pool.allocate(seq, 1) == again.allocate(seq, 1)
        assert self.pool.tables == again.tables


class MaxMachine(BuddyMachine):
    def make(self, num_blocks: int, block_size: int) -> ContiguousAllocator:
        return ReserveMax(num_blocks, block_size, max_model_len=MAX_MODEL_LEN)

    def reservation(self, prompt: int, output: int) -> int:
        return MAX_MODEL_LEN


class OracleMachine(BuddyMachine):
    def make(self, num_blocks: int, block_size: int) -> ContiguousAllocator:
        return ReserveOracle(num_blocks, block_size, max_model_len=MAX_MODEL_LEN, oracle=self)

    def reservation(self, prompt: int, output: int) -> int:
        return prompt + output


class Pow2Machine(BuddyMachine):
    def make(self, num_blocks: int, block_size: int) -> ContiguousAllocator:
        return ReservePow2(num_blocks, block_size, max_model_len=MAX_MODEL_LEN, oracle=self)

    def reservation(self, prompt: int, output: int) -> int:
        return min(prompt + rounded(output), MAX_MODEL_LEN)


TestMaxMachine = MaxMachine.TestCase
TestOracleMachine = OracleMachine.TestCase
TestPow2Machine = Pow2Machine.TestCase
BRIEF = settings(max_examples=settings.default.max_examples // 2, stateful_step_count=30)
TestMaxMachine.settings = TestOracleMachine.settings = TestPow2Machine.settings = BRIEF
