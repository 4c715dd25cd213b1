"""The device of the tests: a GPU where there is one, else the CPU with Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

import gpu_backend.device  # noqa: F401 (before any kernel is defined)


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
