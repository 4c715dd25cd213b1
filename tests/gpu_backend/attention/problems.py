"""Random attention problems: queries, a cache full of NaN where nobody wrote, and a batch of rows."""

from typing import NamedTuple

import torch
from torch import Tensor

from gpu_backend.batch import Batch
from gpu_backend.kv_cache import LayerCache


class Problem(NamedTuple):
    q_THD: Tensor
    cache: LayerCache
    batch: Batch
    block_size: int
    scale: float


def make_problem(
    rows: list[tuple[int, int]],
    *,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    head_dim: int = 32,
    block_size: int = 16,
    query_tile: int = 16,
    contiguous: bool = False,
    spare_blocks: int = 3,
    padding_tokens: int = 0,
    seed: int = 0,
) -> Problem:
    """Rows (new tokens, tokens seen), those of one token (or none, which see 0) first.

    Queries and cache are strided views; table entries beyond a row's context point outside of the pool.
    """
    generator = torch.Generator(device).manual_seed(seed)
    seq_lens = [seen for _, seen in rows]
    new = [count for count, _ in rows]
    pages = [-(-seen // block_size) for seen in seq_lens]
    num_blocks = sum(pages) + spare_blocks
    width = max(1, *pages)
    ids = torch.arange(num_blocks) if contiguous else torch.randperm(num_blocks, generator=torch.manual_seed(seed))
    tables = torch.full((len(rows), width), 1 << 30, dtype=torch.int32)
    start = 0
    for row, count in enumerate(pages):
        tables[row, :count] = ids[start : start + count]
        start += count

    # a third more slots than the view shows, so that the head stride is not what the shape says
    pool = torch.full((2, num_kv_heads, num_blocks * block_size + 16, head_dim), float("nan"), device=device)
    pool = pool.to(dtype)
    keys, values = pool[:, :, : num_blocks * block_size]
    offsets = torch.arange(block_size)
    for row, seen in enumerate(seq_lens):
        slots = (tables[row, : pages[row]].long()[:, None] * block_size + offsets).flatten()[:seen].to(device)
        for target in (keys, values):
            fresh = torch.randn((num_kv_heads, seen, head_dim), generator=generator, device=device)
            target[:, slots] = fresh.to(dtype)

    tokens = sum(new) + padding_tokens
    merged = torch.randn((tokens, num_heads + 2 * num_kv_heads, head_dim), generator=generator, device=device)
    singles = sum(count <= 1 for count in new)
    tiles = [(row, at) for row in range(singles, len(rows)) for at in range(0, new[row], query_tile)]
    starts = [0]
    for count in new:
        starts.append(starts[-1] + count)

    def integers(values: list[int], dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    batch = Batch(
        input_ids=integers([0] * tokens),
        positions=integers([0] * tokens),
        slot_mapping=integers([-1] * tokens, torch.int64),
        query_start_loc=integers(starts),
        seq_lens=integers(seq_lens),
        block_tables=tables.to(device),
        query_tiles=integers([index for tile in tiles for index in tile]).view(-1, 2),
        sample_tokens=integers([0], torch.int64),
        query_tile=query_tile,
        num_single_rows=singles,
        max_seq_len=max(seq_lens),
    )
    return Problem(merged.to(dtype)[:, :num_heads], LayerCache(keys, values), batch, block_size, head_dim**-0.5)
