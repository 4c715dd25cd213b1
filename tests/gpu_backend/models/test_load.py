"""Shapes that the kernels do not take: refused before anything is made."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_backend.models.load import check_decoder
from gpu_backend.models.parameters import layout
from kvsim.errors import ConfigError
from kvsim.specs import ModelSpec
from tests.gpu_backend.doubles import TINY

LLAMA = replace(TINY, ffn_size=48, vocab_size=96, max_model_len=64, tied_embeddings=False)
OPT = replace(
    LLAMA,
    architecture="opt",
    qkv_bias=True,
    output_bias=True,
    mlp_bias=True,
    num_position_embeddings=66,
    num_kv_heads=1,
)


@pytest.mark.parametrize("head_dim", [3, 6, 15, 17, 260, 512])
def test_head_dim(head_dim: int) -> None:
    with pytest.raises(ConfigError, match=rf"^model.head_dim={head_dim}: .* multiples of 4 up to 256; choose another"):
        check_decoder(replace(LLAMA, head_dim=head_dim), None)


@pytest.mark.parametrize("head_dim", [4, 80, 100, 256])
def test_head_dims_that_are_taken(head_dim: int) -> None:
    check_decoder(replace(LLAMA, head_dim=head_dim), None)


def test_group_and_hidden_size() -> None:
    with pytest.raises(ConfigError, match=r"^model.num_kv_heads=2 of 258 heads: .* up to 128 query heads a KV head; "):
        check_decoder(replace(LLAMA, num_heads=258), None)
    with pytest.raises(ConfigError, match=r"^model.hidden_size=65540: .* take up to 65536; choose another model"):
        check_decoder(replace(LLAMA, hidden_size=65540), None)
    check_decoder(replace(LLAMA, num_heads=256, hidden_size=65536), None)


@pytest.mark.parametrize("model", [LLAMA, OPT, replace(OPT, tied_embeddings=True, qkv_bias=False)])
def test_the_layout_has_the_parameters_that_memory_is_planned_for(model: ModelSpec) -> None:
    sizes = (shape for parameter in layout(model).values() for _, shape in parameter.parts)
    assert sum(shape[0] * (shape[1] if len(shape) > 1 else 1) for shape in sizes) == model.num_parameters
