"""Folders that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from kvsim.specs import ModelSpec
from tests.gpu_backend.weights.loading import copy_folder, load, refusal

INDEX = "model.safetensors.index.json"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_scaling of type 'llama3' is not supported"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling of type 'linear'"),
        ({"rope_scaling": "linear"}, "rope_scaling of type 'linear'"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 300.0}}, "rope_parameters of type 'yarn'"),
        ({"rope_parameters": {"full": {"rope_type": "yarn"}}}, "rope_parameters of type {'rope_type': 'yarn'}"),
        ({"rope_scaling": {"type": "default"}, "rope_parameters": {"type": "yarn"}}, "rope_parameters of type 'yarn'"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu' is not supported, must be 'silu'"),
        ({"model_type": "gpt2"}, "config.json: model_type 'gpt2' is not supported"),
        ({"num_hidden_layers": "two"}, "config.json: model.num_layers='two': must be a whole number"),
    ],
)
def test_other_arithmetic(
    folder: Path, model: ModelSpec, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    copy_folder(folder, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | changes))
    assert message in refusal(model, tmp_path)


@pytest.mark.parametrize("text", ["[]", "{", "[" * 100_000, "\udcff"])
def test_config_that_is_no_mapping(model: ModelSpec, tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode(errors="surrogateescape"))
    assert refusal(model, tmp_path).startswith("config.json ")


def test_what_is_not_there(folder: Path, model: ModelSpec, tmp_path: Path) -> None:
    assert refusal(model, tmp_path) == "the folder has no config.json; give that of a Hugging Face model"
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    assert refusal(model, tmp_path) == "the folder needs *.safetensors files, has none"
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    assert "only pickled weights" in refusal(model, tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no header")
    assert "model.safetensors is no readable safetensors file" in refusal(model, tmp_path)


def test_shards_are_those_of_the_index(folder: Path, model: ModelSpec, tmp_path: Path) -> None:
    copy_folder(folder, tmp_path)
    (tmp_path / "consolidated.safetensors").write_bytes(b"the same weights in another form")
    load(model, tmp_path)
    next(tmp_path.glob("model-00002-*")).unlink()
    assert "model-00002-of-" in refusal(model, tmp_path)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ([], "must hold a mapping, holds []"),
        ({}, "weight_map names None"),
        ({"weight_map": {"a": 1}}, "weight_map names 1, must name files of the folder"),
        ({"weight_map": {"a": [1]}}, "weight_map names [1]"),
        ({"weight_map": {"a": "../other/model.safetensors"}}, "weight_map names '../other/model.safetensors'"),
        ({"weight_map": {"a": "/etc/passwd"}}, "weight_map names '/etc/passwd'"),
        ({"weight_map": {"a": "config.json"}}, "weight_map names 'config.json'"),
    ],
)
def test_indices_of_something_else(folder: Path, model: ModelSpec, tmp_path: Path, index: Any, message: str) -> None:
    copy_folder(folder, tmp_path)
    (tmp_path / INDEX).write_text(json.dumps(index))
    text = refusal(model, tmp_path)
    assert text.startswith(INDEX) and message in text


def test_a_file_of_the_index_may_be_a_link(folder: Path, model: ModelSpec, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).symlink_to(file)
    load(model, tmp_path)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, torch.complex64, torch.float64, torch.bool])
def test_types_that_are_not_computed_with(folder: Path, model: ModelSpec, tmp_path: Path, dtype: torch.dtype) -> None:
    copy_folder(folder, tmp_path)
    file = next(tmp_path.glob("model-00001-*"))
    tensors = load_file(file)
    name = next(iter(tensors))
    save_file(tensors | {name: tensors[name].to(dtype)}, file)
    text = refusal(model, tmp_path)
    assert text.startswith(f"tensor {name!r} has type ")
    assert text.endswith(", must be one of float32, float16, bfloat16")


def test_tensors_that_are_there_twice(folder: Path, model: ModelSpec, tmp_path: Path) -> None:
    copy_folder(folder, tmp_path)
    (tmp_path / INDEX).unlink()
    load(model, tmp_path)
    first = next(tmp_path.glob("model-00001-*"))
    (tmp_path / "copy.safetensors").write_bytes(first.read_bytes())
    assert "is in the folder twice" in refusal(model, tmp_path)
