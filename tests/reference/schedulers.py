"""Who runs in a step, system by system."""

from __future__ import annotations

from typing import NamedTuple

from .pools import Cache, next_pow2
from .records import Seq, Setup

NO_LIMIT = 10**18


class Plan(NamedTuple):
    """Rows (sequence, new tokens) in plan order, and who was preempted, in order."""

    rows: list[tuple[Seq, int]]
    preempted: list[Seq]


class Scheduler:
    """Two queues in order of arrival. Subclasses decide."""

    reserves = False

    def __init__(self, setup: Setup, cache: Cache) -> None:
        self.setup = setup
        self.cache = cache
        self.waiting: list[Seq] = []
        self.running: list[Seq] = []
        self.max_seqs = NO_LIMIT if setup.max_num_seqs is None else setup.max_num_seqs
        self.max_tokens = NO_LIMIT if setup.max_num_batched_tokens is None else setup.max_num_batched_tokens

    def schedule(self) -> Plan:
        raise NotImplementedError

    def add(self, seq: Seq) -> None:
        self.waiting.append(seq)

    def admission_blocks(self, seq: Seq) -> int:
        """Blocks that must be free for `seq` to be admitted, and that it gets."""
        return self.cache.blocks_for(seq.known)

    def fits(self, seq: Seq) -> bool:
        return self.cache.pool.fits(self.admission_blocks(seq))

    def admit(self, batched: int) -> list[tuple[Seq, int]]:
        """Admit whole prompts from the head of the queue until one does not fit; `batched` tokens are spoken for."""
        rows = []
        while self.waiting:
            seq = self.waiting[0]
            if not self.fits(seq):
                break
            if batched + seq.known > self.max_tokens:
                break
            if len(self.running) + 1 > self.max_seqs:
                break
            self.waiting.pop(0)
            self.cache.take(seq, self.admission_blocks(seq))
            self.running.append(seq)
            rows.append((seq, seq.known))
            batched += seq.known
        return rows

    def preempt(self, seq: Seq) -> None:
        """Take all memory from a sequence that the caller has removed from `running`."""
        self.cache.drop(seq)
        self.waiting.insert(0, seq)

    def finish(self, done: list[Seq]) -> list[Seq]:
        """Release those who drew their last token; returns those delivered now."""
        for seq in done:
            self.running.remove(seq)
            self.cache.drop(seq)
        return done


class Orca(Scheduler):
    """Iteration-level FCFS; a buddy chunk for prompt + estimated output is held from admission to the end."""

    reserves = True

    def reservation(self, seq: Seq) -> int:
        """Tokens asked for, before rounding."""
        estimates = {"orca_oracle": seq.output, "orca_pow2": next_pow2(seq.output)}
        estimate = estimates.get(self.setup.system, self.setup.max_model_len)
        return min(seq.prompt + estimate, self.setup.max_model_len)

    def add(self, seq: Seq) -> None:
        seq.reserved = self.reservation(seq)
        super().add(seq)

    def admission_blocks(self, seq: Seq) -> int:
        return self.cache.blocks_for(seq.reserved)

    def schedule(self) -> Plan:
        decodes = [(seq, 1) for seq in self.running]
        return Plan(decodes + self.admit(batched=len(decodes)), [])


class FasterTransformer(Orca):
    """Request-level batches: nobody joins or leaves until the longest member is done."""

    def __init__(self, setup: Setup, cache: Cache) -> None:
        super().__init__(setup, cache)
        self.max_tokens = NO_LIMIT

    def schedule(self) -> Plan:
        if not self.running:
            return Plan(self.admit(batched=0), [])
        return Plan([(seq, 1) for seq in self.running if not seq.dead], [])

    def finish(self, done: list[Seq]) -> list[Seq]:
        for seq in done:
            seq.dead = True
        if all(seq.dead for seq in self.running):
            return super().finish(list(self.running))
        return []


class VllmPaper(Scheduler):
    """The PagedAttention artifact: make room for the decodes, then admit prompts into the same batch."""

    def can_append(self, seq: Seq, alone: bool) -> bool:
        """One block at worst; a sequence alone in memory is asked for its real need only."""
        return self.cache.pool.fits(self.cache.new_blocks(seq, seq.known) if alone else 1)

    def make_room(self) -> tuple[list[tuple[Seq, int]], list[Seq]]:
        """A slot for every running sequence's next token, oldest first, latest preempted."""
        keep: list[Seq] = []
        preempted: list[Seq] = []
        while self.running:
            seq = self.running.pop(0)
            while not self.can_append(seq, alone=not self.running and not keep):
                victim = self.running.pop() if self.running else seq
                self.preempt(victim)
                preempted.append(victim)
                if victim is seq:
                    break
            if seq not in preempted:
                self.cache.take(seq, self.cache.new_blocks(seq, seq.known))
                keep.append(seq)
        self.running = keep
        return [(seq, 1) for seq in keep], preempted

    def schedule(self) -> Plan:
        decodes, preempted = self.make_room()
        prompts = [] if preempted else self.admit(batched=len(decodes))
        return Plan(decodes + prompts, preempted)


class VllmV0(VllmPaper):
    """Released vLLM 0: prompts first, in batches of their own, and a watermark at admission."""

    def __init__(self, setup: Setup, cache: Cache) -> None:
        super().__init__(setup, cache)
        self.watermark = watermark_blocks(setup)

    def fits(self, seq: Seq) -> bool:
        return self.cache.pool.fits(self.admission_blocks(seq) + self.watermark)

    def schedule(self) -> Plan:
        prompts = self.admit(batched=0)
        if prompts:
            return Plan(prompts, [])
        return Plan(*self.make_room())


class VllmV1(Scheduler):
    """vLLM V1: a token budget, chunked prompts, no prefix caching."""

    def schedule(self) -> Plan:
        budget = self.max_tokens
        rows: list[tuple[Seq, int]] = []
        preempted: list[Seq] = []
        index = 0
        while index < len(self.running) and budget > 0:
            seq = self.running[index]
            tokens = min(seq.known - seq.computed, budget)
            while not self.cache.pool.fits(self.cache.new_blocks(seq, seq.computed + tokens)):
                victim = self.running.pop()
                self.preempt(victim)
                preempted.append(victim)
                if victim is seq:
                    break
            if seq in preempted:
                break
            self.cache.take(seq, self.cache.new_blocks(seq, seq.computed + tokens))
            rows.append((seq, tokens))
            budget -= tokens
            index += 1
        while not preempted and self.waiting and budget > 0 and len(self.running) < self.max_seqs:
            seq = self.waiting[0]
            if not self.fits(seq):
                break
            self.waiting.pop(0)
            tokens = min(seq.known, budget)
            self.cache.take(seq, self.cache.blocks_for(tokens))
            self.running.append(seq)
            rows.append((seq, tokens))
            budget -= tokens
        return Plan(rows, preempted)


def watermark_blocks(setup: Setup) -> int:
    """Blocks vLLM 0 keeps free at admission: 1 % of the pool, rounded down; other systems none."""
    return int(0.01 * setup.num_blocks) if setup.system == "vllm_v0" else 0


SCHEDULERS: dict[str, type[Scheduler]] = {
    "fastertransformer": FasterTransformer,
    "orca_max": Orca,
    "orca_pow2": Orca,
    "orca_oracle": Orca,
    "vllm_paper": VllmPaper,
    "vllm_v0": VllmV0,
    "vllm_v1": VllmV1,
}
