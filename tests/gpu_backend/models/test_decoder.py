"""OPT, Llama, Mistral and Qwen2 against transformers, token for token in float32."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_backend.attention.reference import Reference
from gpu_backend.kv_cache import KVCache
from gpu_backend.models.decoder import Decoder
from gpu_backend.models.load import load_decoder
from gpu_backend.models.opt import OPTDecoder
from gpu_backend.models.parameters import allocate
from gpu_backend.weights.random import fill_random
from kvsim.specs import ModelSpec
from tests.gpu_backend.models.generation import (
    FAMILIES,
    Row,
    greedy,
    hf_greedy,
    make_batch,
    random_prompts,
    save_random,
)

PROMPTS = random_prompts((1, 4, 9, 2), 96)
TOKENS = 5


def load(folder: Path, device: torch.device, weights: Path | None = None) -> Decoder:
    model = ModelSpec.from_hf_config(folder)
    return load_decoder(model, weights=str(weights or folder), dtype=torch.float32, device=device)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[list[int]]]]:
    """Folder of each family's model, and what transformers makes of the prompts."""
    found = {}
    for family in FAMILIES:
        folder = tmp_path_factory.mktemp(family)
        found[family] = folder, hf_greedy(save_random(family, folder), PROMPTS, TOKENS)
    return found


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("block_size", "chunk"), [(16, 99), (1, 4)])
def test_greedy_equals_transformers(
    saved: dict[str, Any], family: str, block_size: int, chunk: int, device: torch.device
) -> None:
    folder, expected = saved[family]
    assert len({tuple(tokens) for tokens in expected}) > len(PROMPTS) // 2  # the prompts matter
    assert greedy(load(folder, device), PROMPTS, TOKENS, Reference(), block_size, chunk) == expected


@pytest.mark.parametrize("changes", [{"enable_bias": False}, {"tie_word_embeddings": False}])
def test_opt_without_biases_or_with_a_head_of_its_own(
    changes: dict[str, bool], tmp_path: Path, device: torch.device
) -> None:
    expected = hf_greedy(save_random("opt", tmp_path, **changes), PROMPTS[:2], 4)
    assert greedy(load(tmp_path, device), PROMPTS[:2], 4, Reference(), 4, 99) == expected


def test_llama_with_every_bias_and_wide_heads(tmp_path: Path, device: torch.device) -> None:
    changes = {"attention_bias": True, "mlp_bias": True, "head_dim": 24, "num_key_value_heads": 3}
    expected = hf_greedy(save_random("llama", tmp_path, **changes), PROMPTS[:2], 4)
    assert greedy(load(tmp_path, device), PROMPTS[:2], 4, Reference(), 4, 99) == expected


def test_opt_with_grouped_heads_is_one_with_copies_of_them(tmp_path: Path, device: torch.device) -> None:
    save_random("opt", tmp_path)
    model = ModelSpec.from_hf_config(tmp_path)
    group, keys = 3, 16  # query heads of the one KV head, its width
    grouped = allocate(replace(model, num_kv_heads=1), dtype=torch.float32, device=device)
    fill_random(grouped, 0, device)
    copied = dict(grouped)
    for name, tensor in grouped.items():
        if ".qkv." in name:
            query, key, value = tensor.split([group * keys, keys, keys])
            copied[name] = torch.cat([query, *[key] * group, *[value] * group])
    few = OPTDecoder(replace(model, num_kv_heads=1), grouped)
    expected = greedy(OPTDecoder(model, copied), PROMPTS[:3], 4, Reference(), 4, 3)
    assert greedy(few, PROMPTS[:3], 4, Reference(), 4, 3) == expected


@pytest.mark.parametrize("family", ["opt", "llama"])
def test_random_weights_are_finite_deterministic_and_of_the_models_size(
    family: str, tmp_path: Path, device: torch.device
) -> None:
    save_random(family, tmp_path, num_hidden_layers=6)
    model = ModelSpec.from_hf_config(tmp_path)

    def draw(seed: int) -> tuple[Decoder, torch.Tensor]:
        decoder = load_decoder(model, weights=None, dtype=torch.bfloat16, device=device, seed=seed)
        cache = KVCache(model, 8, 8, dtype=torch.bfloat16, device=device)
        batch = make_batch([Row(PROMPTS[1], 0, [0])], 8, device, padding=0)
        return decoder, decoder.logits(decoder.hidden(batch, cache, Reference()))

    (decoder, one), (_, two), (_, three) = draw(5), draw(5), draw(6)
    assert torch.equal(one, two) and not torch.equal(one, three)
    assert 0.1 < one.float().std() < 10.0  # NaN would fail, too
    layers = [tensor for layer in decoder.layers for pair in layer for tensor in pair]
    tensors = [decoder.embedding, *decoder.final_norm, *layers] + [decoder.head] * (not model.tied_embeddings)
    count = sum(tensor.numel() for tensor in tensors if tensor is not None)
    assert count == model.num_parameters - model.num_position_embeddings * model.hidden_size
