"""Weights that cannot be used: one line each, which says what was found and what was expected."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpu_backend.models.load import load_decoder
from gpu_backend.weights.checkpoint import open_checkpoint
from kvsim.errors import ConfigError
from kvsim.specs import ModelSpec
from tests.gpu_backend.models.generation import save_random

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    save_random("llama", path)
    return path


@pytest.fixture
def model(folder: Path) -> ModelSpec:
    return ModelSpec.from_hf_config(folder)


def refusal(model: ModelSpec, weights: Path) -> str:
    with pytest.raises(ConfigError) as error:
        load_decoder(model, weights=str(weights), dtype=torch.float32, device=CPU)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("vocab_size", 97, "tensor embed_tokens.weight has shape (96, 48), llama0 needs (97, 48)"),
        ("ffn_size", 96, "tensor layers.0.mlp.gate_proj.weight has shape (80, 48), llama0 needs (96, 48)"),
        ("num_layers", 3, "tensor layers.2.input_layernorm.weight is missing, llama0 needs (48,)"),
        ("num_layers", 1, "its model has num_layers=2, model.num_layers is 1"),
        ("qkv_bias", True, "tensor layers.0.self_attn.q_proj.bias is missing, llama0 needs (48,)"),
        ("rope_theta", 10000.0, "its model has rope_theta=300.0, model.rope_theta is 10000.0"),
        ("norm_eps", 1e-5, "its model has norm_eps=0.0001, model.norm_eps is 1e-05"),
        ("tied_embeddings", True, "its model has tied_embeddings=False, model.tied_embeddings is True"),
    ],
)
def test_another_model(folder: Path, model: ModelSpec, field: str, value: Any, message: str) -> None:
    changed = replace(model, name="llama0", **{field: value})
    assert refusal(changed, folder) == f"{folder}: {message}"


def test_heads_of_another_width(folder: Path, model: ModelSpec) -> None:
    text = refusal(replace(model, num_heads=6, num_kv_heads=2, head_dim=8), folder)
    assert "num_heads=3, model.num_heads is 6" in text  # every tensor has the right shape


def test_a_shorter_limit_is_no_other_model(folder: Path, model: ModelSpec) -> None:
    load_decoder(replace(model, max_model_len=7), weights=str(folder), dtype=torch.float32, device=CPU)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_scaling of type 'llama3' is not supported"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 300.0}}, "rope_scaling of type 'yarn'"),
        ({"rope_scaling": "linear"}, "rope_scaling of type 'linear'"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu' is not supported, must be 'silu'"),
    ],
)
def test_other_arithmetic(
    folder: Path, model: ModelSpec, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | changes))
    assert message in refusal(model, tmp_path)


def test_pickles_are_refused(folder: Path, model: ModelSpec, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    assert "has none" in refusal(model, tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    assert "only pickled weights" in refusal(model, tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no header")
    assert "model.safetensors is no readable safetensors file" in refusal(model, tmp_path)


def test_shards_are_those_of_the_index(folder: Path, model: ModelSpec, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "consolidated.safetensors").write_bytes(b"the same weights in another form")
    load_decoder(model, weights=str(tmp_path), dtype=torch.float32, device=CPU)
    next(tmp_path.glob("model-00002-*")).unlink()
    assert "model-00002-of-" in refusal(model, tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    assert "is no readable index" in refusal(model, tmp_path)


def test_nothing_there(model: ModelSpec, tmp_path: Path) -> None:
    assert "must be a folder" in refusal(model, tmp_path / "missing")
    assert "config.json" in refusal(model, tmp_path)
    (tmp_path / "weights.gguf").write_bytes(b"GGUF, not quite")
    assert "is no readable GGUF file" in refusal(model, tmp_path / "weights.gguf")


def write_gguf(path: Path, model: ModelSpec, architecture: str = "llama", scaling: str | None = None) -> dict[str, Any]:
    """A float32 GGUF of `model` with random tensors; returns what it wrote by GGUF name."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(model.num_layers)
    writer.add_embedding_length(model.hidden_size)
    writer.add_head_count(model.num_heads)
    writer.add_head_count_kv(model.num_kv_heads)
    writer.add_rope_dimension_count(model.head_dim)
    writer.add_rope_freq_base(model.rope_theta)
    writer.add_layer_norm_rms_eps(model.norm_eps)
    if scaling:
        writer.add_string("llama.rope.scaling.type", scaling)
    query, key = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    hidden, ffn = model.hidden_size, model.ffn_size
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (model.vocab_size, hidden), "output_norm": (hidden,)}
    shapes["output"] = shapes["token_embd"]
    for index in range(model.num_layers):
        layer = {
            "attn_norm": (hidden,),
            "attn_q": (query, hidden),
            "attn_k": (key, hidden),
            "attn_v": (key, hidden),
            "attn_output": (hidden, query),
            "ffn_norm": (hidden,),
            "ffn_gate": (ffn, hidden),
            "ffn_up": (ffn, hidden),
            "ffn_down": (hidden, ffn),
        }
        shapes |= {f"blk.{index}.{name}": shape for name, shape in layer.items()}
    draw = np.random.default_rng(0)
    tensors = {f"{name}.weight": draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def test_gguf_fills_the_merged_matrices(model: ModelSpec, tmp_path: Path) -> None:
    tensors = write_gguf(tmp_path / "tiny.gguf", model)
    decoder = load_decoder(model, weights=str(tmp_path / "tiny.gguf"), dtype=torch.float32, device=CPU)
    qkv = decoder.layers[1].qkv.weight.numpy()
    stored = tensors["blk.1.attn_q.weight"]
    for head in range(model.num_heads):
        for pair in range(model.head_dim // 2):
            to, at = head * model.head_dim + pair, head * model.head_dim + 2 * pair
            assert (qkv[to] == stored[at]).all() and (qkv[to + model.head_dim // 2] == stored[at + 1]).all()
    assert (qkv[-model.head_dim :] == tensors["blk.1.attn_v.weight"]).all()
    assert (decoder.layers[0].up.weight.numpy()[model.ffn_size :] == tensors["blk.0.ffn_up.weight"]).all()
    assert (decoder.head.numpy() == tensors["output.weight"]).all()


def test_gguf_refusals(model: ModelSpec, tmp_path: Path) -> None:
    write_gguf(tmp_path / "qwen2.gguf", model, architecture="qwen2")
    assert "GGUF architecture 'qwen2' is not supported" in refusal(model, tmp_path / "qwen2.gguf")
    write_gguf(tmp_path / "long.gguf", model, scaling="linear")
    assert "scaled rotary frequencies (linear)" in refusal(model, tmp_path / "long.gguf")
    write_gguf(tmp_path / "tiny.gguf", replace(model, num_heads=6, num_kv_heads=2, head_dim=8))
    assert "num_heads=6, model.num_heads is 3" in refusal(model, tmp_path / "tiny.gguf")


def test_names_of_a_base_model_have_no_prefix(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    for file in folder.glob("*.safetensors"):
        renamed = {name.removeprefix("model."): tensor for name, tensor in load_file(file).items()}
        save_file(renamed, tmp_path / file.name)
    assert open_checkpoint(str(tmp_path)).shapes == open_checkpoint(str(folder)).shapes
