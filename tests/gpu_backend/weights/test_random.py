"""Random weights."""

from __future__ import annotations

import torch

from gpu_backend.sampling import Sampler
from gpu_backend.weights.random import fill_random

CPU = torch.device("cpu")


def filled(seed: int) -> torch.Tensor:
    weights = torch.empty(1000, 1)
    fill_random({"head.weight": weights}, seed, CPU)
    return weights


def test_the_seed_decides() -> None:
    assert torch.equal(filled(5), filled(5))
    assert not torch.equal(filled(5), filled(6))


def test_they_share_no_numbers_with_draws() -> None:
    for seed in (5, Sampler(1.0, seed=5, device=CPU).generator.initial_seed()):
        generator = torch.Generator().manual_seed(seed)
        assert not torch.equal(filled(5), torch.empty(1000, 1).normal_(generator=generator))
