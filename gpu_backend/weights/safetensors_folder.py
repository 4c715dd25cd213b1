"""A Hugging Face model in a folder: config.json and safetensors files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

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
)
ACTIVATIONS = {"opt": ("activation_function", "relu"), "llama": ("hidden_act", "silu")}


class SafetensorsFolder:
    """Tensors of every ``*.safetensors`` file of a folder, one file or many.

    Raises:
        ConfigError: no config.json, no safetensors file, or a model that is computed in another way.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        model = ModelSpec.from_hf_config(path)
        self.facts: Mapping[str, Any] = {field: getattr(model, field) for field in FACTS}
        self._check_config(json.loads((path / "config.json").read_text(encoding="utf-8")), model.architecture)
        files = self._list_files()
        shapes: dict[str, tuple[int, ...]] = {}
        self._files: dict[str, tuple[Any, str]] = {}
        for file in files:
            try:
                handle: Any = safe_open(file, framework="pt")
            except (OSError, SafetensorError) as error:
                raise ConfigError(f"{file} is no readable safetensors file: {error}") from error
            for key in handle.keys():  # noqa: SIM118 (no mapping)
                name = key.removeprefix("model.")
                shapes[name] = tuple(handle.get_slice(key).get_shape())
                self._files[name] = handle, key
        self.shapes: Mapping[str, tuple[int, ...]] = shapes

    def read(self, name: str) -> Tensor:
        """The tensor, on the CPU."""
        handle, key = self._files[name]
        tensor: Tensor = handle.get_tensor(key)
        return tensor

    def _list_files(self) -> list[Path]:
        index = self.path / "model.safetensors.index.json"
        if index.is_file():
            try:
                names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ConfigError(f"{index} is no readable index of safetensors files: {error}") from error
            return [self.path / name for name in sorted(names)]
        files = sorted(self.path.glob("*.safetensors"))
        if not files:
            pickles = any(file for kind in ("bin", "pt", "pth") for file in self.path.glob(f"*.{kind}"))
            found = "only pickled weights, which can run code when read; convert them" if pickles else "none"
            raise ConfigError(f"{self.path}: needs *.safetensors files, has {found}")
        return files

    def _check_config(self, config: dict[str, Any], architecture: str) -> None:
        field, expected = ACTIVATIONS[architecture]
        if config.get(field, expected) != expected:
            raise ConfigError(f"{self.path}: {field}={config[field]!r} is not supported, must be {expected!r}")
        scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
        kind = scaling.get("rope_type", scaling.get("type", "default")) if isinstance(scaling, dict) else scaling
        if kind != "default":
            raise ConfigError(f"{self.path}: rope_scaling of type {kind!r} is not supported, must be null or 'default'")
