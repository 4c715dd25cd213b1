"""`StepShape`: what of a plan decides how long its step lasts, where the kernels see lengths but no values."""

from __future__ import annotations

from typing import NamedTuple, Self

from kvsim.plan import StepPlan


class StepShape(NamedTuple):
    """Sizes of one step.

    Attributes:
        rows: sequences scheduled.
        single_rows: those that compute one token, whose attention is that of a decode.
        tokens: new tokens of all rows.
        samples: rows that draw a token.
        context_tokens: tokens that the single rows see, and the idle ones.
        longest: the most that one of the single rows sees; of idle ones only their sum is known.
        pairs: (query, key) pairs of the other rows, causal.
        keys: tokens that the other rows see.
        padding_tokens, idle_rows: as in the plan.
    """

    rows: int
    single_rows: int
    tokens: int
    samples: int
    context_tokens: int
    longest: int
    pairs: int
    keys: int
    padding_tokens: int
    idle_rows: int

    @classmethod
    def of(cls, plan: StepPlan) -> Self:
        """The sizes of `plan`."""
        rows = len(plan.seq_ids)
        single = plan.num_tokens == 1
        contexts = plan.context_lens[single]
        new, seen = plan.num_tokens[~single], plan.context_lens[~single]
        return cls(
            rows=rows,
            single_rows=len(contexts),
            tokens=plan.total_tokens,
            samples=int((plan.num_samples > 0).sum()),
            context_tokens=int(contexts.sum()) + plan.idle_context_tokens,
            longest=int(contexts.max(initial=0)),
            pairs=int((new * seen - new * (new - 1) // 2).sum()),
            keys=int(seen.sum()),
            padding_tokens=plan.padding_tokens,
            idle_rows=plan.idle_rows,
        )

    @property
    def decodes_only(self) -> bool:
        """Every row computes one token."""
        return self.single_rows == self.rows and not self.padding_tokens

    @property
    def all_tokens(self) -> int:
        """Tokens that the step computes, for something or for nothing."""
        return self.tokens + self.padding_tokens + self.idle_rows
