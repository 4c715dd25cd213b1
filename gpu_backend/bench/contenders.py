"""Attention kernels that can be measured: ours, PyTorch's and FlashInfer's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from gpu_backend.attention.base import Attention
from gpu_backend.attention.flashinfer import FlashInfer
from gpu_backend.attention.triton_contiguous import TritonContiguous
from gpu_backend.attention.triton_paged import TritonPaged
from gpu_backend.bench.inputs import Inputs

Launch = Callable[[], Tensor]


class Contender(NamedTuple):
    """One kernel. A launch gives [T, H, D], or [R, N, H, D] where all rows have N tokens.

    Attributes:
        backend: what it is called.
        peer: what it is called in tables of others' kernels; empty if it is ours.
        contiguous: reads `Inputs.consecutive`, not `Inputs.scattered`.
        launches: one launch a copy of the cache, the first copy's first.
    """

    backend: str
    peer: str
    contiguous: bool
    launches: Callable[[Inputs], list[Launch]]


def _attend(attention: Attention) -> Callable[[Inputs], list[Launch]]:
    def launches(inputs: Inputs) -> list[Launch]:
        q_THD, cache, size, scale = inputs.q_THD, inputs.cache, inputs.shape.block_size, inputs.scale
        batches = inputs.consecutive if attention.contiguous else inputs.scattered
        return [partial(attention.forward, q_THD, cache, batch, size, scale) for batch in batches]

    return launches


def _flashinfer(peer: FlashInfer) -> Callable[[Inputs], list[Launch]]:
    def launches(inputs: Inputs) -> list[Launch]:
        q_THD, cache, size, scale = inputs.q_THD, inputs.cache, inputs.shape.block_size, inputs.scale
        runs = [peer.plan(q_THD, cache, batch, size, scale) for batch in inputs.scattered]
        return [partial(run, q_THD, cache) for run in runs]

    return launches


def _sdpa_prefill(inputs: Inputs) -> list[Launch]:
    """Prompts of one length, dense: the best that PyTorch does without pages."""
    batch, length = inputs.shape.batch, inputs.shape.max_context
    q_RHND, k_RKND, v_RKND = (
        tensor.reshape(batch, length, -1, inputs.shape.head_dim).transpose(1, 2).contiguous()
        for tensor in (inputs.q_THD, *(pool[:, : batch * length].transpose(0, 1) for pool in inputs.cache))
    )
    grouped = q_RHND.shape[1] != k_RKND.shape[1]

    def launch() -> Tensor:
        out_RHND = F.scaled_dot_product_attention(
            q_RHND, k_RKND, v_RKND, is_causal=True, scale=inputs.scale, enable_gqa=grouped
        )
        return out_RHND.transpose(1, 2)

    return [launch]


OURS = (
    Contender("triton_paged", "", False, _attend(TritonPaged())),
    Contender("triton_contiguous", "", True, _attend(TritonContiguous())),
)
SDPA = Contender("sdpa", "sdpa-contiguous", True, _sdpa_prefill)
_DECODE = (
    Contender("flashinfer", "flashinfer-tc0", False, _flashinfer(FlashInfer(tensor_cores=False))),
    Contender("flashinfer", "flashinfer-tc1", False, _flashinfer(FlashInfer(tensor_cores=True))),
)
FLASHINFER = {
    "decode": _DECODE,
    "serving": _DECODE,
    "prefill": (
        Contender("flashinfer", "flashinfer-fa2", False, _flashinfer(FlashInfer(prefill="fa2"))),
        Contender("flashinfer", "flashinfer-fa3", False, _flashinfer(FlashInfer(prefill="fa3"))),
    ),
}


def contenders(phase: str, *, sdpa: bool, flashinfer: bool) -> list[Contender]:
    """Who is measured at a shape of `phase`, ours first."""
    peers = [SDPA] if sdpa and phase == "prefill" else []
    return [*OURS, *peers, *(FLASHINFER[phase] if flashinfer else ())]
