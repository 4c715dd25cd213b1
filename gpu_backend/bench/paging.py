"""What block tables cost decode attention: the same kernel with and without them (vLLM paper, Fig. 18a)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from gpu_backend.bench.contenders import OURS
from gpu_backend.bench.inputs import DECODE, TINY, Shape, make_inputs
from gpu_backend.bench.output import Record
from gpu_backend.bench.timing import median_us

COLUMNS = (*Shape._fields, "paged_us", "contiguous_us", "overhead")


class Grid(NamedTuple):
    """What is varied; batches and contexts of one length a row."""

    base: Shape
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    block_sizes: tuple[int, ...]


FULL = Grid(DECODE[0], (8, 32), tuple(64 << doubling for doubling in range(8)), tuple(1 << n for n in range(9)))
QUICK = FULL._replace(contexts=FULL.contexts[::3], block_sizes=FULL.block_sizes[::4])
SMOKE = Grid(TINY[0], (8,), (64,), (16,))


def sweep(grid: Grid, *, device: torch.device, dtype: torch.dtype, repeats: int) -> Iterator[Record]:
    """A record a point of the grid."""
    paged, contiguous = OURS
    for batch in grid.batches:
        for context in grid.contexts:
            without_us = None
            for block_size in grid.block_sizes:
                shape = grid.base._replace(batch=batch, max_context=context, block_size=block_size)
                inputs = make_inputs(shape, device=device, dtype=dtype, ragged=False)
                if without_us is None:  # no block table, so no block size
                    without_us = median_us(contiguous.launches(inputs), device=device, repeats=repeats)
                with_us = median_us(paged.launches(inputs), device=device, repeats=repeats)
                figures = {"paged_us": round(with_us, 2), "contiguous_us": round(without_us, 2)}
                yield {**shape._asdict(), **figures, "overhead": round(with_us / without_us - 1, 4)}
                del inputs
