"""GGUF files: how their tensors lie, and those that cannot be used."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_backend.models.load import check_decoder
from kvsim.errors import ConfigError
from kvsim.specs import ModelSpec
from tests.gpu_backend.weights.loading import load, refusal

gguf = pytest.importorskip("gguf")


def write_gguf(
    path: Path, model: ModelSpec, fields: Mapping[str, Any] | None = None, extra: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A float32 GGUF of `model` with random tensors; returns what it wrote by GGUF name.

    Args:
        fields: in place of those that say what `model` is, without ``llama.``; None leaves one out.
        extra: tensors by GGUF name, in place of the random ones or beside them.
    """
    stated = {
        "block_count": model.num_layers,
        "embedding_length": model.hidden_size,
        "attention.head_count": model.num_heads,
        "attention.head_count_kv": model.num_kv_heads,
        "rope.dimension_count": model.head_dim,
        "rope.freq_base": model.rope_theta,
        "attention.layer_norm_rms_epsilon": model.norm_eps,
    } | dict(fields or {})
    writer = gguf.GGUFWriter(path, stated.pop("architecture", "llama"))
    for key, value in stated.items():
        if value is not None:
            add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string, list: writer.add_array}
            add[type(value)](f"llama.{key}", value)
    query, key_size = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    hidden, ffn = model.hidden_size, model.ffn_size
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (model.vocab_size, hidden), "output_norm": (hidden,)}
    shapes["output"] = shapes["token_embd"]
    for index in range(model.num_layers):
        layer = {
            "attn_norm": (hidden,),
            "attn_q": (query, hidden),
            "attn_k": (key_size, hidden),
            "attn_v": (key_size, hidden),
            "attn_output": (hidden, query),
            "ffn_norm": (hidden,),
            "ffn_gate": (ffn, hidden),
            "ffn_up": (ffn, hidden),
            "ffn_down": (hidden, ffn),
        }
        shapes |= {f"blk.{index}.{name}": shape for name, shape in layer.items()}
    draw = np.random.default_rng(0)
    tensors = {f"{name}.weight": draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    tensors |= extra or {}
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def test_merged_matrices(model: ModelSpec, tmp_path: Path) -> None:
    tensors = write_gguf(tmp_path / "tiny.gguf", model)
    decoder = load(model, tmp_path / "tiny.gguf")
    qkv = decoder.layers[1].qkv.weight.numpy()
    stored = tensors["blk.1.attn_q.weight"]
    for head in range(model.num_heads):
        for pair in range(model.head_dim // 2):
            to, at = head * model.head_dim + pair, head * model.head_dim + 2 * pair
            assert (qkv[to] == stored[at]).all() and (qkv[to + model.head_dim // 2] == stored[at + 1]).all()
    assert (qkv[-model.head_dim :] == tensors["blk.1.attn_v.weight"]).all()
    assert (decoder.layers[0].up.weight.numpy()[model.ffn_size :] == tensors["blk.0.ffn_up.weight"]).all()
    assert (decoder.head.numpy() == tensors["output.weight"]).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"architecture": "qwen2"}, "GGUF architecture 'qwen2' is not supported, must be 'llama'"),
        ({"rope.scaling.type": "linear"}, "scaled rotary frequencies are not supported"),
        ({"rope.scaling.factor": 4.0}, "scaled rotary frequencies are not supported"),
        ({"attention.head_count": 6}, "its model has num_heads=6, model.num_heads is 3"),
        ({"attention.head_count": 0}, "field llama.attention.head_count=0: must be a whole number from 1"),
        ({"attention.head_count": "three"}, "field llama.attention.head_count='three': must be a whole number"),
        ({"attention.head_count": [3, 3]}, "field llama.attention.head_count=[3, 3]: must be a whole number"),
        ({"attention.head_count": None}, "field llama.attention.head_count is missing"),
        ({"block_count": 1}, "its model has num_layers=1, model.num_layers is 2"),
        ({"rope.freq_base": "often"}, "field llama.rope.freq_base='often': must be a number"),
        ({"rope.freq_base": float("nan")}, "field llama.rope.freq_base=nan: must be a number"),
    ],
)
def test_fields(model: ModelSpec, tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    write_gguf(tmp_path / "tiny.gguf", model, fields)
    assert refusal(model, tmp_path / "tiny.gguf").startswith(message)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"blk.0.ffn_up.weight": np.zeros((80, 48), np.int32)}, "tensor blk.0.ffn_up.weight has type I32"),
        ({"blk.0.ffn_up.weight": np.zeros((80, 48), np.float64)}, "tensor blk.0.ffn_up.weight has type F64"),
        ({"blk.0.attn_q.bias": np.zeros(48, np.float32)}, "tensor 'layers.0.self_attn.q_proj.bias' (1 such)"),
        ({"rope_freqs.weight": np.zeros(8, np.float32)}, "scaled rotary frequencies are not supported"),
    ],
)
def test_tensors(model: ModelSpec, tmp_path: Path, tensors: dict[str, Any], message: str) -> None:
    write_gguf(tmp_path / "tiny.gguf", model, extra=tensors)
    assert refusal(model, tmp_path / "tiny.gguf").startswith(message)


def test_no_gguf(model: ModelSpec, tmp_path: Path) -> None:
    (tmp_path / "weights.gguf").write_bytes(b"GGUF, not quite")
    assert refusal(model, tmp_path / "weights.gguf").startswith("is no readable GGUF file: ")


def test_damaged_headers_are_refused_or_read(model: ModelSpec, tmp_path: Path) -> None:
    small = replace(model, num_layers=1, vocab_size=4)
    write_gguf(tmp_path / "sound.gguf", small)
    sound, draw = (tmp_path / "sound.gguf").read_bytes(), random.Random(0)
    refused = 0
    for index in range(150):
        damaged = bytearray(sound)
        for _ in range(3):
            damaged[draw.randrange(1000)] = draw.choice((0, 1, 127, 255, draw.randrange(256)))
        path = tmp_path / f"{index}.gguf"
        path.write_bytes(damaged[: draw.choice((len(damaged), draw.randrange(1, len(damaged))))])
        try:
            check_decoder(small, str(path))
        except ConfigError:
            refused += 1
    assert refused > 75
