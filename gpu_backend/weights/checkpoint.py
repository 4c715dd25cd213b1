"""Real weights: a file or folder of tensors, checked against the model and copied into its parameters."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from gpu_backend.models.parameters import layout
from kvsim.checks import shown
from kvsim.errors import ConfigError
from kvsim.specs import ModelSpec

DERIVED = ".rotary_emb.inv_freq"
"""Ending of tensors that older Hugging Face models keep though they follow from the configuration."""
REMEDY = "choose the model of the weights"


class Checkpoint(Protocol):
    """Tensors by Hugging Face name less a leading ``model.``."""

    facts: Mapping[str, Any]
    """Fields of `ModelSpec` that the checkpoint states."""
    shapes: Mapping[str, tuple[int, ...]]

    def read(self, name: str) -> Tensor:
        """The tensor, on the CPU, in its own or a wider type."""
        ...


def open_checkpoint(path: str, model: ModelSpec) -> Checkpoint:
    """The weights of `model` at `path`; their headers are read and checked, no tensor is.

    Raises:
        ConfigError: nothing there that can be read, of a kind that is not supported, or of another model.
    """
    with _named(path):
        checkpoint = _open(path)
        _check_facts(checkpoint.facts, model)
        _check_tensors(checkpoint.shapes, model)
        return checkpoint


def copy_checkpoint(path: str, model: ModelSpec, parameters: Mapping[str, Tensor]) -> None:
    """Fill `parameters` of `model` from the weights at `path`.

    Raises:
        ConfigError: see `open_checkpoint`, or a number is not finite in the type of the parameters.
    """
    checkpoint = open_checkpoint(path, model)
    with _named(path):
        for name, parameter in layout(model).items():
            row = 0
            for tensor, shape in parameter.parts:
                rows = parameters[name][row : row + shape[0]].copy_(checkpoint.read(tensor))
                if not torch.stack(rows.aminmax()).isfinite().all():
                    raise ConfigError(
                        f"tensor {tensor} holds NaN or infinite numbers in {str(rows.dtype).removeprefix('torch.')}; "
                        "give sound weights, or an executor.dtype that holds them"
                    )
                row += shape[0]


@contextmanager
def _named(path: str) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"executor.weights={path!r}: {error}") from error


def _open(path: str) -> Checkpoint:
    from gpu_backend.weights.gguf_file import GGUFFile
    from gpu_backend.weights.safetensors_folder import SafetensorsFolder

    if isinstance(path, str) and path.endswith(".gguf") and os.path.isfile(path):
        return GGUFFile(Path(path))
    if isinstance(path, str) and os.path.isdir(path):
        return SafetensorsFolder(Path(path))
    raise ConfigError(
        "must be a folder with config.json and *.safetensors files, a .gguf file, or null for random weights"
    )


def _check_facts(facts: Mapping[str, Any], model: ModelSpec) -> None:
    for field, fact in facts.items():
        value = getattr(model, field)
        if field == "max_model_len":
            fits = value <= fact  # beyond it, attention may have a sliding window
        elif isinstance(fact, float):
            fits = math.isclose(fact, value, rel_tol=1e-6)  # a GGUF keeps fractions in float32
        else:
            fits = fact == value
        if not fits:
            raise ConfigError(f"its model has {field}={fact}, model.{field} is {value}; {REMEDY}")


def _check_tensors(shapes: Mapping[str, tuple[int, ...]], model: ModelSpec) -> None:
    expected = {tensor: shape for parameter in layout(model).values() for tensor, shape in parameter.parts}
    for tensor, shape in expected.items():
        if tensor not in shapes:
            raise ConfigError(f"tensor {tensor} is missing, {model.name} needs {shape}; {REMEDY}")
        if shapes[tensor] != shape:
            raise ConfigError(f"tensor {tensor} has shape {shapes[tensor]}, {model.name} needs {shape}; {REMEDY}")
    known = expected.keys() | {"lm_head.weight"}  # some keep the head although it is the embedding
    beyond = sorted(name for name in shapes if name not in known and not name.endswith(DERIVED))
    if beyond:
        raise ConfigError(f"tensor {shown(beyond[0])} ({len(beyond)} such) is no part of {model.name}; {REMEDY}")
