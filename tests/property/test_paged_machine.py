"""A paged pool under any sequence of calls, beside a naive one of lists."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvsim.kv.paged import PagedAllocator
from kvsim.protocols import Admission
from kvsim.request import Request, Sequence


class PagedMachine(RuleBasedStateMachine):
    """Admits, extends, grows and frees; the model is a list of free blocks and a list a sequence."""

    @initialize(num_blocks=st.integers(1, 24), block_size=st.sampled_from([1, 2, 4, 16]), watermark=st.floats(0, 0.4))
    def build(self, num_blocks: int, block_size: int, watermark: float) -> None:
        self.pool = PagedAllocator(num_blocks, block_size, max_model_len=1 << 20, watermark=watermark)
        self.reserve = int(watermark * num_blocks)
        self.total = num_blocks
        self.size = block_size
        self.free = list(range(num_blocks))
        self.held: dict[int, list[int]] = {}
        self.tokens: dict[int, int] = {}
        self.seqs: dict[int, Sequence] = {}
        self.next_id = 0

    def extend(self, seq_id: int, num_tokens: int) -> bool:
        """The model's allocate."""
        table = self.held.get(seq_id, [])
        lacks = max(0, -(-num_tokens // self.size) - len(table))
        if lacks > len(self.free):
            return False
        self.held[seq_id] = table + self.free[:lacks]
        del self.free[:lacks]
        self.tokens[seq_id] = num_tokens
        return True

    @rule(num_tokens=st.integers(1, 60), known=st.integers(0, 20))
    def admit(self, num_tokens: int, known: int) -> None:
        """A new sequence of which all or, as with chunks, only some known tokens are stored."""
        seq = Sequence(self.next_id, Request(self.next_id, 0, num_tokens + known))
        fits = -(-seq.num_tokens // self.size) <= len(self.free) - self.reserve
        assert (self.pool.can_admit(seq) is Admission.NOW) == fits
        done = self.extend(seq.seq_id, num_tokens)
        assert self.pool.allocate(seq, num_tokens) == done
        if done:
            self.next_id += 1
            seq.num_computed_tokens = num_tokens
            self.seqs[seq.seq_id] = seq

    @precondition(lambda self: self.seqs)
    @rule(data=st.data(), more=st.integers(0, 40))
    def extend_one(self, data: st.DataObject, more: int) -> None:
        """A chunk, or a decode, of one sequence."""
        seq = self.seqs[data.draw(st.sampled_from(sorted(self.seqs)))]
        wanted = seq.num_computed_tokens + more
        done = self.extend(seq.seq_id, wanted)
        assert self.pool.allocate(seq, wanted) == done
        if done:
            seq.num_computed_tokens = wanted

    @precondition(lambda self: self.seqs)
    @rule(data=st.data(), steps=st.integers(1, 40))
    def grow(self, data: st.DataObject, steps: int) -> None:
        """Some of the sequences decode, as long as it is surely possible."""
        ids = data.draw(st.lists(st.sampled_from(sorted(self.seqs)), min_size=1, unique=True))
        seqs = [self.seqs[seq_id] for seq_id in ids]
        num_tokens = np.array([seq.num_computed_tokens for seq in seqs])
        steps = min(steps, self.pool.max_decode_steps(num_tokens))
        if not steps:
            return
        before = len(self.free)
        taken = []
        for _ in range(steps):
            assert all(self.extend(seq_id, self.tokens[seq_id] + 1) for seq_id in ids)
            taken.append((before - len(self.free)) * self.size)
        assert self.pool.grow(seqs, num_tokens, steps).tolist() == taken
        for seq in seqs:
            seq.num_computed_tokens += steps

    @precondition(lambda self: self.seqs)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        seq = self.seqs.pop(data.draw(st.sampled_from(sorted(self.seqs))))
        self.free += self.held.pop(seq.seq_id)[::-1]
        del self.tokens[seq.seq_id]
        self.pool.free(seq)

    @invariant()
    def same_as_the_model(self) -> None:
        assert self.pool.tables == self.held
        assert self.pool.num_free_blocks == len(self.free)

    @invariant()
    def nobody_shares_a_block(self) -> None:
        blocks = [block for table in self.pool.tables.values() for block in table]
        assert len(blocks) == len(set(blocks))
        self.pool.check_integrity()

    @invariant()
    def usage_adds_up(self) -> None:
        usage = self.pool.usage()
        assert usage.total == self.total * self.size == usage.held + usage.free
        assert usage.resident == sum(self.tokens.values()) <= usage.held
        assert usage.held - usage.resident <= len(self.held) * (self.size - 1), "less than a block each is unfilled"

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        for seq in self.seqs.values():
            self.pool.free(seq)
        usage = self.pool.usage()
        assert (usage.free, usage.held, usage.resident) == (usage.total, 0, 0)
        self.pool.check_integrity()


TestPagedMachine = PagedMachine.TestCase
TestPagedMachine.settings = settings(max_examples=settings.default.max_examples // 2, stateful_step_count=30)
