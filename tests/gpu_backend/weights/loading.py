"""Loading weights on the CPU, and what is said where they are refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_backend.models.decoder import Decoder
from gpu_backend.models.load import check_decoder, load_decoder
from kvsim.errors import ConfigError
from kvsim.specs import ModelSpec


def load(model: ModelSpec, weights: Path, dtype: torch.dtype = torch.float32) -> Decoder:
    return load_decoder(model, weights=str(weights), dtype=dtype, device=torch.device("cpu"))


def refusal(model: ModelSpec, weights: Any) -> str:
    """What the check of the headers says after the name of the weights; loading them says the same."""
    path = str(weights) if isinstance(weights, Path) else weights
    with pytest.raises(ConfigError) as error:
        check_decoder(model, path)
    with pytest.raises(ConfigError) as late:
        load_decoder(model, weights=path, dtype=torch.float32, device=torch.device("cpu"))
    assert str(late.value) == str(error.value)
    head, text = f"executor.weights={path!r}: ", str(error.value)
    assert text.startswith(head) and "\n" not in text
    return text.removeprefix(head)


def copy_folder(folder: Path, copy: Path) -> Path:
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    return copy
