"""A model small and quick enough for whole runs on a CPU, and executors over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from gpu_backend.attention.base import Attention
from gpu_backend.attention.sdpa import Sdpa
from gpu_backend.batch import Batch
from gpu_backend.executor import GpuExecutor
from gpu_backend.kv_cache import KVCache
from kvsim.protocols import CostModel
from kvsim.specs import ModelSpec
from kvsim.workload.outcomes import Outcomes

on_a_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="runs on a CPU; CUDA_VISIBLE_DEVICES= hides the GPU")

TINY = ModelSpec(
    name="tiny",
    architecture="llama",
    num_layers=2,
    hidden_size=32,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    ffn_size=16,
    vocab_size=211,
    max_model_len=4096,
    tied_embeddings=True,
    qkv_bias=False,
    output_bias=False,
    mlp_bias=False,
)


class TinyDecoder:
    """Attention layers over the cache and nothing else; every token depends on all before it and on their positions."""

    def __init__(self, model: ModelSpec, *, dtype: torch.dtype, device: torch.device, seed: int, **_: Any) -> None:
        draw = torch.Generator().manual_seed(seed)

        def matrix(rows: int, columns: int) -> Tensor:
            return (torch.randn(rows, columns, generator=draw) / columns**0.5).to(device, dtype)

        heads, kv_heads, dim = model.num_heads, model.num_kv_heads, model.head_dim
        self.model = model
        self.embedding = matrix(model.vocab_size, model.hidden_size) * model.hidden_size**0.5
        self.positions = matrix(model.max_model_len, model.hidden_size) * model.hidden_size**0.5
        self.qkv = [matrix((heads + 2 * kv_heads) * dim, model.hidden_size) for _ in range(model.num_layers)]
        self.out = [matrix(model.hidden_size, heads * dim) for _ in range(model.num_layers)]

    def hidden(self, batch: Batch, cache: KVCache, attention: Attention) -> Tensor:
        heads, kv_heads = self.model.num_heads, self.model.num_kv_heads
        x_TE = F.embedding(batch.input_ids, self.embedding) + F.embedding(batch.positions, self.positions)
        written = batch.slot_mapping >= 0
        slots = batch.slot_mapping[written]
        for index, (qkv, out) in enumerate(zip(self.qkv, self.out, strict=True)):
            heads_TXD = F.linear(x_TE, qkv).view(len(x_TE), -1, self.model.head_dim)
            layer = cache.layer(index)
            layer.keys[:, slots] = heads_TXD[written, heads : heads + kv_heads].transpose(0, 1)
            layer.values[:, slots] = heads_TXD[written, heads + kv_heads :].transpose(0, 1)
            attended = attention.forward(heads_TXD[:, :heads], layer, batch, cache.block_size, 1.0)
            x_TE = x_TE + F.linear(attended.flatten(1), out)
        return F.rms_norm(x_TE, x_TE.shape[1:])

    def logits(self, hidden_SE: Tensor) -> Tensor:
        return F.linear(hidden_SE, self.embedding)


def gpu_executor(outcomes: Outcomes, *, num_slots: int, block_size: int, **changes: Any) -> GpuExecutor:
    """A `GpuExecutor` over `TINY` on the CPU; tests put `TinyDecoder` in place of the real one."""
    settings: dict[str, Any] = {
        "device": "cpu",
        "dtype": "float32",
        "weights": None,
        "temperature": 0.0,
        "cuda_graphs": True,
        "check_memory": False,
        "attention": Sdpa(),
        "model": TINY,
        "tensor_parallel": 1,
        "max_model_len": 64,
        "max_num_seqs": None,
        "max_num_batched_tokens": None,
        "contiguous": False,
        "seed": 0,
    }
    return GpuExecutor(outcomes=outcomes, num_slots=num_slots, block_size=block_size, **settings | changes)


def executor_of(setup: Any, **changes: Any) -> Callable[[CostModel, Outcomes], GpuExecutor]:
    """What `tests.harness.build` takes as the executor of a setup."""
    pool = {"num_slots": setup.num_blocks * setup.block_size, "block_size": setup.block_size}
    limits = {name: getattr(setup, name) for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens")}
    return lambda cost, outcomes: gpu_executor(outcomes, **pool, **limits, **changes)
