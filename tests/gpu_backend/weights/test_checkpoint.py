"""Weights that are not the model's: one line each, which says what was found and what was expected."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from gpu_backend.models.load import check_decoder
from gpu_backend.weights.checkpoint import open_checkpoint
from kvsim.errors import ConfigError
from kvsim.specs import ModelSpec
from tests.gpu_backend.weights.loading import copy_folder, load, refusal

REMEDY = "choose the model of the weights"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("vocab_size", 97, "tensor embed_tokens.weight has shape (96, 48), llama0 needs (97, 48)"),
        ("ffn_size", 96, "tensor layers.0.mlp.gate_proj.weight has shape (80, 48), llama0 needs (96, 48)"),
        ("num_layers", 3, "its model has num_layers=2, model.num_layers is 3"),
        ("num_layers", 1, "its model has num_layers=2, model.num_layers is 1"),
        ("qkv_bias", True, "its model has qkv_bias=False, model.qkv_bias is True"),
        ("rope_theta", 10000.0, "its model has rope_theta=300.0, model.rope_theta is 10000.0"),
        ("norm_eps", 1e-5, "its model has norm_eps=0.0001, model.norm_eps is 1e-05"),
        ("tied_embeddings", True, "its model has tied_embeddings=False, model.tied_embeddings is True"),
        ("max_model_len", 65, "its model has max_model_len=64, model.max_model_len is 65"),
    ],
)
def test_another_model(folder: Path, model: ModelSpec, field: str, value: Any, message: str) -> None:
    assert refusal(replace(model, name="llama0", **{field: value}), folder) == f"{message}; {REMEDY}"


def test_heads_of_another_width(folder: Path, model: ModelSpec) -> None:
    text = refusal(replace(model, num_heads=6, num_kv_heads=2, head_dim=8), folder)
    assert "num_heads=3, model.num_heads is 6" in text  # every tensor has the right shape


def test_a_shorter_limit_is_no_other_model(folder: Path, model: ModelSpec) -> None:
    load(replace(model, max_model_len=7), folder)


def test_files_and_config_disagree(folder: Path, model: ModelSpec, tmp_path: Path) -> None:
    copy_folder(folder, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1}))
    one = replace(model, name="one", num_layers=1)
    assert refusal(one, tmp_path) == (f"tensor 'layers.1.input_layernorm.weight' (9 such) is no part of one; {REMEDY}")
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    three = replace(model, name="three", num_layers=3)
    assert refusal(three, tmp_path) == f"tensor layers.2.input_layernorm.weight is missing, three needs (48,); {REMEDY}"


def test_tensors_that_follow_from_the_rest_are_ignored(folder: Path, model: ModelSpec, tmp_path: Path) -> None:
    tied = replace(model, tied_embeddings=True)
    config = json.loads((folder / "config.json").read_text()) | {"tie_word_embeddings": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    tensors = {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}
    assert "lm_head.weight" in tensors
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
    save_file(tensors, tmp_path / "model.safetensors")
    assert load(tied, tmp_path).head is not None


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), 1e30])
def test_numbers_that_are_not_finite(folder: Path, model: ModelSpec, tmp_path: Path, number: float) -> None:
    copy_folder(folder, tmp_path)
    file = next(file for file in folder.glob("*.safetensors") if "model.layers.1.mlp.up_proj.weight" in load_file(file))
    tensors = load_file(file)
    tensors["model.layers.1.mlp.up_proj.weight"][7, 5] = number
    save_file(tensors, tmp_path / file.name)
    check_decoder(model, str(tmp_path))  # the headers are right
    with pytest.raises(ConfigError) as error:
        load(model, tmp_path, torch.float16)
    assert str(error.value).startswith(
        f"executor.weights='{tmp_path}': tensor layers.1.mlp.up_proj.weight holds NaN or infinite numbers in float16; "
    )


@pytest.mark.parametrize(
    "weights", [-1, float("nan"), True, [1], {"a": 1}, "", "/dev/null", "missing.gguf", "x" * 5000]
)
def test_no_weights_there(model: ModelSpec, weights: Any) -> None:
    assert refusal(model, weights).startswith("must be a folder with config.json and *.safetensors files, a .gguf file")


def test_names_of_a_base_model_have_no_prefix(folder: Path, model: ModelSpec, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    for file in folder.glob("*.safetensors"):
        renamed = {name.removeprefix("model."): tensor for name, tensor in load_file(file).items()}
        save_file(renamed, tmp_path / file.name)
    assert open_checkpoint(str(tmp_path), model).shapes == open_checkpoint(str(folder), model).shapes
