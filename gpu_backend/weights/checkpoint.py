"""Real weights: a file or folder of tensors, checked against the model and copied into its parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from gpu_backend.models.parameters import layout
from kvsim.errors import ConfigError
from kvsim.specs import ModelSpec


class Checkpoint(Protocol):
    """Tensors by Hugging Face name less a leading ``model.``."""

    path: Path
    facts: Mapping[str, Any]
    """Fields of `ModelSpec` that the checkpoint states."""
    shapes: Mapping[str, tuple[int, ...]]

    def read(self, name: str) -> Tensor:
        """The tensor, on the CPU, in its own or a wider type."""
        ...


def open_checkpoint(path: str) -> Checkpoint:
    """The weights at `path`.

    Raises:
        ConfigError: nothing there that can be read, or of a kind that is not supported.
    """
    from gpu_backend.weights.gguf_file import GGUFFile
    from gpu_backend.weights.safetensors_folder import SafetensorsFolder

    file = Path(path)
    if file.suffix == ".gguf" and file.is_file():
        return GGUFFile(file)
    if file.is_dir():
        return SafetensorsFolder(file)
    raise ConfigError(f"weights={path!r} must be a folder with config.json and *.safetensors files, or a .gguf file")


def copy_checkpoint(path: str, model: ModelSpec, parameters: Mapping[str, Tensor]) -> None:
    """Fill `parameters` of `model` from the weights at `path`.

    Raises:
        ConfigError: see `open_checkpoint`, or the weights are of another model.
    """
    checkpoint = open_checkpoint(path)
    _check(checkpoint, model)
    for name, parameter in layout(model).items():
        row = 0
        for tensor, shape in parameter.parts:
            parameters[name][row : row + shape[0]].copy_(checkpoint.read(tensor))
            row += shape[0]


def _check(checkpoint: Checkpoint, model: ModelSpec) -> None:
    for parameter in layout(model).values():
        for tensor, expected in parameter.parts:
            found = checkpoint.shapes.get(tensor)
            if found is None:
                raise ConfigError(f"{checkpoint.path}: tensor {tensor} is missing, {model.name} needs {expected}")
            if found != expected:
                raise ConfigError(
                    f"{checkpoint.path}: tensor {tensor} has shape {found}, {model.name} needs {expected}"
                )
    for field, fact in checkpoint.facts.items():
        value = getattr(model, field)
        # a GGUF keeps its fractions in float32
        if not (math.isclose(fact, value, rel_tol=1e-6) if isinstance(fact, float) else fact == value):
            raise ConfigError(f"{checkpoint.path}: its model has {field}={fact}, model.{field} is {value}")
