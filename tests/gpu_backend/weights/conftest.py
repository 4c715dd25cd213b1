"""A small random Llama in a folder, and its shape."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvsim.specs import ModelSpec
from tests.gpu_backend.models.generation import save_random


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    save_random("llama", path)
    return path


@pytest.fixture
def model(folder: Path) -> ModelSpec:
    return ModelSpec.from_hf_config(folder)
