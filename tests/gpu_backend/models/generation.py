"""Greedy generation by a decoder and by transformers, and small random models to compare them on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from gpu_backend.attention.base import Attention
from gpu_backend.batch import Batch
from gpu_backend.kernels.prefill_attention import query_tile
from gpu_backend.kv_cache import KVCache
from gpu_backend.models.decoder import Decoder
from gpu_backend.sampling import Sampler

FAMILIES = ("opt", "llama", "mistral", "qwen2")
SHAPE = {"vocab_size": 96, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3}
LLAMA = SHAPE | {"head_dim": 16, "intermediate_size": 80, "num_key_value_heads": 1, "rms_norm_eps": 1e-4}


class Row(NamedTuple):
    """Some new tokens of one sequence, and its blocks."""

    tokens: Sequence[int]
    position: int
    table: Sequence[int]


def make_batch(
    rows: Sequence[Row], block_size: int, device: torch.device, *, tile: int = 16, padding: int = 3
) -> Batch:
    """`rows`, those with one token first, then `padding` tokens and rows of nothing."""
    singles = sum(len(row.tokens) == 1 for row in rows)
    assert all(len(row.tokens) == 1 for row in rows[:singles])
    decodes_only = singles == len(rows)
    ids, positions, slots, starts, tiles, lengths = [], [], [], [0], [], []
    for index, row in enumerate(rows):
        seen = range(row.position, row.position + len(row.tokens))
        ids += row.tokens
        positions += seen
        slots += [row.table[at // block_size] * block_size + at % block_size for at in seen]
        starts.append(len(ids))
        lengths.append(seen.stop)
        if len(row.tokens) > 1:
            tiles += [(index, first) for first in range(0, len(row.tokens), tile)]
    pages = max(len(row.table) for row in rows)
    tables = [[*row.table, *[2**30] * (pages - len(row.table))] for row in rows] + [[2**30] * pages] * padding

    def tensor(values: Any, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    return Batch(
        input_ids=tensor(ids + [0] * padding),
        positions=tensor(positions + [0] * padding),
        slot_mapping=tensor(slots + [-1] * padding, torch.int64),
        query_start_loc=tensor(starts + starts[-1:] * padding),
        seq_lens=tensor(lengths + [0] * padding),
        block_tables=tensor(tables),
        query_tiles=tensor([*tiles, (-1, 0)]) if tiles else torch.empty(0, 2, dtype=torch.int32, device=device),
        sample_tokens=tensor([start - 1 for start in starts[1:]], torch.int64),
        query_tile=tile,
        num_single_rows=singles + padding * decodes_only,
        max_seq_len=max(lengths),
    )


def greedy(
    decoder: Decoder, prompts: Sequence[list[int]], num_tokens: int, attention: Attention, block_size: int, chunk: int
) -> list[list[int]]:
    """The next `num_tokens` of every prompt, all in one batch, `chunk` prompt tokens a step, in scattered blocks."""
    pages = [-(-(len(prompt) + num_tokens) // block_size) for prompt in prompts]
    blocks = list(range(sum(pages) + 1))
    if not attention.contiguous:
        random.Random(0).shuffle(blocks)
    tables = [[blocks.pop(0) for _ in range(count)] for count in pages]
    cache = KVCache(
        decoder.model, (sum(pages) + 1) * block_size, block_size, dtype=decoder.dtype, device=decoder.device
    )
    for pool in (cache.keys, cache.values):
        pool.normal_(std=100.0)  # what nobody wrote must not matter
    sampler = Sampler(device=decoder.device)
    tile = query_tile(decoder.model.num_heads // decoder.model.num_kv_heads)
    texts = [list(prompt) for prompt in prompts]
    done = [0] * len(prompts)
    while True:
        plan = [
            (index, text[done[index] :][:chunk])
            for index, text in enumerate(texts)
            if len(text) < len(prompts[index]) + num_tokens
        ]
        if not plan:
            return [text[len(prompt) :] for text, prompt in zip(texts, prompts, strict=True)]
        plan.sort(key=lambda row: len(row[1]) > 1)
        batch = make_batch(
            [Row(new, done[index], tables[index]) for index, new in plan], block_size, decoder.device, tile=tile
        )
        hidden = decoder.hidden(batch, cache, attention)
        drawn = sampler.sample(decoder.logits(hidden[batch.sample_tokens])).tolist()
        for (index, new), token in zip(plan, drawn, strict=True):
            done[index] += len(new)
            if done[index] == len(texts[index]):
                texts[index].append(token)


def hf_greedy(model: Any, prompts: Sequence[list[int]], num_tokens: int) -> list[list[int]]:
    """The same from a transformers model, one prompt at a time."""
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    results = []
    for prompt in prompts:
        ids = torch.tensor([prompt], device=model.device)
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=num_tokens, do_sample=False)
        results.append(out[0, len(prompt) :].tolist())
    return results


def save_random(family: str, folder: Path, **changes: Any) -> Any:
    """A small transformers model with weights that matter, saved in `folder`."""
    transformers = pytest.importorskip("transformers")
    if family == "opt":
        fields = SHAPE | {"ffn_dim": 80, "word_embed_proj_dim": 48, "max_position_embeddings": 64, "dropout": 0.0}
        name = "OPT"
    else:
        fields = LLAMA | {"max_position_embeddings": 64, "tie_word_embeddings": family == "qwen2"}
        fields["rope_parameters"] = {"rope_type": "default", "rope_theta": 300.0}
        name = family.capitalize()
    config = getattr(transformers, f"{name}Config")(**fields | changes)
    torch.manual_seed(1)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.normal_(1.0 if key.endswith("weight") else 0.0, 0.3)
            else:
                # a small embedding, or a tied head would only repeat the last token
                parameter.normal_(0.0, parameter.shape[1] ** -0.5 * (0.2 if "embed" in key else 1.0))
    model.save_pretrained(folder, max_shard_size="20KB")
    return model


def random_prompts(lengths: Sequence[int], vocab_size: int) -> list[list[int]]:
    """One prompt of each length."""
    draw = random.Random(3)
    return [[draw.randrange(vocab_size) for _ in range(length)] for length in lengths]
