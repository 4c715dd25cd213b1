"""`TraceStats`: what a trace holds: lengths, arrivals, sessions, and how much of its prompts repeats."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from kvsim.plan import IntArray
from kvsim.units import NS_PER_S
from kvsim.workload.formats.row import Row

PERCENTILES = (10, 50, 90, 99)


@dataclass
class PrefixReuse:
    """What a cache without limit would find of each prompt, in the file's order.

    Blocks hit from the first on, up to the first that no earlier prompt had with as many tokens: a last block that
    is not full neither hits a full one nor replaces it.

    Attributes:
        num_blocks, num_repeated: block ids in all, and those that an earlier prompt or block had too.
        prompt_tokens, hit_tokens: [rows that have block ids] tokens.
    """

    num_blocks: int = 0
    num_repeated: int = 0
    prompt_tokens: array[int] = field(default_factory=lambda: array("q"))
    hit_tokens: array[int] = field(default_factory=lambda: array("q"))
    _ids: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    _ids_of_length: defaultdict[tuple[int, int], set[int]] = field(default_factory=lambda: defaultdict(set))

    def add(self, hash_ids: str, block_size: int, num_tokens: int) -> None:
        """One prompt."""
        hit, leading = 0, True
        known = self._ids[block_size]
        for index, text in enumerate(hash_ids.split()):
            block = int(text)
            length = max(0, min(block_size, num_tokens - index * block_size))
            cached = self._ids_of_length[block_size, length]
            self.num_blocks += 1
            self.num_repeated += block in known
            leading = leading and block in cached
            hit += length if leading else 0
            known.add(block)
            cached.add(block)
        self.prompt_tokens.append(num_tokens)
        self.hit_tokens.append(hit)


class TraceStats:
    """Figures of a trace.

    Attributes:
        arrivals_ns: [rows] ascending, or None where the trace has no times.
        prompts, outputs: [rows] tokens.
        num_sessions: None where the trace has none.
        reuse: None where the trace has no block ids.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        arrivals, prompts, outputs = array("q"), array("q"), array("q")
        sessions: set[str] = set()
        reuse = PrefixReuse()
        for row in rows:
            if row.arrival_ns is not None:
                arrivals.append(row.arrival_ns)
            prompts.append(row.num_prompt_tokens)
            outputs.append(row.num_output_tokens)
            if row.session_id is not None:
                sessions.add(row.session_id)
            if row.hash_ids is not None and row.hash_block_size is not None:
                reuse.add(row.hash_ids, row.hash_block_size, row.num_prompt_tokens)
        self.arrivals_ns: IntArray | None = np.sort(_ints(arrivals)) if arrivals else None
        self.prompts, self.outputs = _ints(prompts), _ints(outputs)
        self.num_sessions = len(sessions) or None
        self.reuse = reuse if reuse.num_blocks else None

    def summary(self) -> dict[str, int | float | None]:
        """One flat dict: seconds, tokens and shares; what the trace does not know is None."""
        return {
            "rows": len(self.prompts),
            "sessions": self.num_sessions,
            **self._arrivals(),
            **_lengths("prompt_tokens", self.prompts),
            **_lengths("output_tokens", self.outputs),
            **self._reuse(),
        }

    def _arrivals(self) -> dict[str, float | None]:
        """Rate is rows / span, as `workload.rescale` takes it; burstiness the coefficient of variation of the gaps."""
        span = rate = burstiness = None
        if self.arrivals_ns is not None:
            gaps = np.diff(self.arrivals_ns)
            span = float(gaps.sum() / NS_PER_S)
            if span > 0:
                rate = len(self.arrivals_ns) / span
                burstiness = float(gaps.std() / gaps.mean())
        return {"span_s": span, "mean_rate": rate, "cv_of_gaps": burstiness}

    def _reuse(self) -> dict[str, float | int | None]:
        reuse = self.reuse
        tokens = sum(reuse.prompt_tokens) if reuse else 0
        return {
            "hash_blocks": reuse.num_blocks if reuse else None,
            "repeated_block_share": reuse.num_repeated / reuse.num_blocks if reuse else None,
            "infinite_cache_hit_share": sum(reuse.hit_tokens) / tokens if reuse and tokens else None,
        }


def _lengths(name: str, values: IntArray) -> dict[str, float]:
    points = np.percentile(values, PERCENTILES).tolist()
    return {
        f"mean_{name}": float(values.mean()),
        **{f"p{point}_{name}": value for point, value in zip(PERCENTILES, points, strict=True)},
        f"max_{name}": int(values.max()),
    }


def _ints(values: array[int]) -> IntArray:
    return np.frombuffer(values, dtype=np.int64) if values else np.zeros(0, dtype=np.int64)
