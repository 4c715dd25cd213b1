"""Decoders on a GPU: token for token as transformers under every backend and block size; graphs; random weights."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from gpu_backend.attention.base import Attention
from gpu_backend.attention.sdpa import Sdpa
from gpu_backend.attention.triton_contiguous import TritonContiguous
from gpu_backend.attention.triton_paged import TritonPaged
from gpu_backend.kernels.prefill_attention import query_tile
from gpu_backend.kv_cache import KVCache
from gpu_backend.models.decoder import Decoder
from gpu_backend.models.load import load_decoder
from kvsim.specs import ModelSpec
from tests.gpu.conftest import Real
from tests.gpu_backend.models import smollm2
from tests.gpu_backend.models.generation import (
    FAMILIES,
    Row,
    greedy,
    hf_greedy,
    make_batch,
    random_prompts,
    save_random,
)

pytestmark = pytest.mark.gpu

CUDA = torch.device("cuda")
CONF = Path(__file__).parents[2] / "conf/model"
PROMPTS = random_prompts((1, 5, 17, 2, 30), 96)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
BACKENDS = (Sdpa(), TritonPaged(), TritonContiguous())
SMALL = [
    *((family, attention, 16) for family in FAMILIES for attention in BACKENDS),
    *(("llama", TritonPaged(), size) for size in (1, 8, 256)),
]
REAL = [
    *((TritonPaged(), size) for size in SIZES),
    *((attention, size) for attention in (TritonContiguous(), Sdpa()) for size in (1, 16, 256)),
]


@pytest.fixture(autouse=True)
def exact_products() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[list[int]]]]:
    found = {}
    for family in FAMILIES:
        folder = tmp_path_factory.mktemp(family)
        found[family] = folder, hf_greedy(save_random(family, folder).to(CUDA), PROMPTS, 12)
    return found


@pytest.mark.parametrize(("family", "attention", "block_size"), SMALL, ids=str)
def test_small_models(saved: dict[str, Any], family: str, attention: Attention, block_size: int) -> None:
    folder, expected = saved[family]
    decoder = load_decoder(ModelSpec.from_hf_config(folder), weights=str(folder), dtype=torch.float32, device=CUDA)
    assert greedy(decoder, PROMPTS, 12, attention, block_size, 7) == expected


@pytest.fixture(scope="module")
def smol_decoder(smol: Real) -> Decoder:
    return load_decoder(smollm2.MODEL, weights=str(smol.path), dtype=torch.float32, device=CUDA)


@pytest.mark.slow
@pytest.mark.parametrize(("attention", "block_size"), REAL, ids=str)
def test_smollm2(smol: Real, smol_decoder: Decoder, attention: Attention, block_size: int) -> None:
    assert greedy(smol_decoder, smollm2.PROMPTS, len(smol.texts[0]), attention, block_size, 8) == smol.texts


def conf_model(name: str, **changes: Any) -> ModelSpec:
    model = instantiate(OmegaConf.load(CONF / f"{name}.yaml"))
    return replace(model, **changes)


@pytest.mark.parametrize("name", ["opt-13b", "llama-3-8b"])
def test_random_weights_come_fast_and_stay_finite(name: str) -> None:
    model = conf_model(name)
    torch.cuda.synchronize()
    start = time.perf_counter()
    decoder = load_decoder(model, weights=None, dtype=torch.bfloat16, device=CUDA)
    torch.cuda.synchronize()
    assert time.perf_counter() - start < 5.0
    cache = KVCache(model, 1024, 16, dtype=torch.bfloat16, device=CUDA)
    tile = query_tile(model.num_heads // model.num_kv_heads)
    batch = make_batch([Row(range(1000), 0, range(63))], 16, CUDA, tile=tile)
    logits_TV = decoder.logits(decoder.hidden(batch, cache, TritonPaged())[:1000])
    assert 0.1 < logits_TV.float().std() < 10.0


@pytest.mark.parametrize("name", ["opt-125m", "smollm2-135m"])
def test_a_graph_repeats_the_pass(name: str) -> None:
    model = conf_model(name, num_layers=3)
    decoder = load_decoder(model, weights=None, dtype=torch.bfloat16, device=CUDA)
    cache = KVCache(model, 1024, 16, dtype=torch.bfloat16, device=CUDA)
    for pool in (cache.keys, cache.values):
        pool.normal_()
    rows = [Row([token], 40 + token, range(10 * token, 10 * token + 10)) for token in range(6)]
    batch = make_batch(rows, 16, CUDA)
    eager = decoder.hidden(batch, cache, TritonPaged())[:6]
    keys = cache.keys.clone()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        decoder.hidden(batch, cache, TritonPaged())
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = decoder.hidden(batch, cache, TritonPaged())
    batch.input_ids.add_(7)
    graph.replay()
    assert not torch.equal(captured[:6], eager)
    batch.input_ids.sub_(7)
    graph.replay()
    assert torch.equal(captured[:6], eager) and torch.equal(cache.keys, keys)
