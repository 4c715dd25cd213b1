"""A Hugging Face model in a folder: config.json and safetensors files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from kvsim.checks import shown
from kvsim.errors import ConfigError
from kvsim.specs import ModelSpec

FACTS = (
    "architecture",
    "num_layers",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "tied_embeddings",
    "qkv_bias",
    "output_bias",
    "mlp_bias",
    "rope_theta",
    "norm_eps",
    "max_model_len",
)
ACTIVATIONS = {"opt": ("activation_function", "relu"), "llama": ("hidden_act", "silu")}
TYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


class SafetensorsFolder:
    """Tensors of every ``*.safetensors`` file of a folder, or of those that its index names.

    Raises:
        ConfigError: no config.json, no safetensors file, or a model that is computed in another way.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        config = self._read_json("config.json")
        model = ModelSpec.from_hf_config(path)
        self.facts: Mapping[str, Any] = {field: getattr(model, field) for field in FACTS}
        _check_arithmetic(config, model.architecture)
        shapes: dict[str, tuple[int, ...]] = {}
        self._files: dict[str, tuple[Any, str]] = {}
        for file in self._list_files():
            try:
                handle: Any = safe_open(file, framework="pt")
            except (OSError, SafetensorError) as error:
                raise ConfigError(f"{file.name} is no readable safetensors file: {error}") from error
            for key in handle.keys():  # noqa: SIM118 (no mapping)
                name = key.removeprefix("model.")
                if name in shapes:
                    raise ConfigError(f"tensor {shown(key)} is in the folder twice; leave only one set of files in it")
                tensor = handle.get_slice(key)
                if tensor.get_dtype() not in TYPES:
                    raise ConfigError(
                        f"tensor {shown(key)} has type {tensor.get_dtype()}, must be one of {', '.join(TYPES.values())}"
                    )
                shapes[name] = tuple(tensor.get_shape())
                self._files[name] = handle, key
        self.shapes: Mapping[str, tuple[int, ...]] = shapes

    def read(self, name: str) -> Tensor:
        """The tensor, on the CPU."""
        handle, key = self._files[name]
        tensor: Tensor = handle.get_tensor(key)
        return tensor

    def _read_json(self, name: str) -> dict[str, Any]:
        if not (self._path / name).is_file():
            raise ConfigError(f"the folder has no {name}; give that of a Hugging Face model")
        try:
            content = json.loads((self._path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{name} is no readable JSON file: {error}") from error
        if not isinstance(content, dict):
            raise ConfigError(f"{name} must hold a mapping, holds {shown(content)}")
        return content

    def _list_files(self) -> list[Path]:
        index = "model.safetensors.index.json"
        if (self._path / index).is_file():
            weight_map = self._read_json(index).get("weight_map")
            names: list[Any] = list(weight_map.values()) if isinstance(weight_map, dict) else [weight_map]
            for name in names:
                # a file of the folder itself, which may be a link
                if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
                    raise ConfigError(f"{index}: weight_map names {shown(name)}, must name files of the folder")
            return [self._path / name for name in sorted(set(names))]
        files = sorted(self._path.glob("*.safetensors"))
        if not files:
            pickles = any(file for kind in ("bin", "pt", "pth") for file in self._path.glob(f"*.{kind}"))
            found = "only pickled weights, which can run code when read; convert them" if pickles else "none"
            raise ConfigError(f"the folder needs *.safetensors files, has {found}")
        return files


def _check_arithmetic(config: dict[str, Any], architecture: str) -> None:
    field, expected = ACTIVATIONS[architecture]
    if config.get(field, expected) != expected:
        raise ConfigError(f"config.json: {field}={shown(config[field])} is not supported, must be {expected!r}")
    for field in ("rope_scaling", "rope_parameters"):
        rope = config.get(field) or {}
        entries = rope if isinstance(rope, dict) else {"rope_type": rope}
        nested = [entry for entry in entries.values() if isinstance(entry, dict)]  # one a kind of layer
        for kind in (entries.get("rope_type", "default"), entries.get("type", "default"), *nested):
            if kind != "default":
                raise ConfigError(
                    f"config.json: {field} of type {shown(kind)} is not supported, must be null or 'default'"
                )
