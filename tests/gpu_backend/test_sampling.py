"""Greedy, random and best-k choices."""

from __future__ import annotations

import pytest
import torch

from gpu_backend.sampling import Sampler, log_probs


def test_greedy_takes_the_largest(device: torch.device) -> None:
    logits_SV = torch.tensor([[0.0, 3.0, 1.0], [5.0, -1.0, 4.0]], device=device)
    assert Sampler(device=device).sample(logits_SV).tolist() == [1, 0]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_softmax(temperature: float, device: torch.device) -> None:
    logits_V = torch.tensor([1.0, 0.0, -1.0, 2.0], device=device)
    drawn = Sampler(temperature, seed=1, device=device).sample(logits_V.expand(40_000, 4))
    shares = torch.bincount(drawn, minlength=4) / len(drawn)
    torch.testing.assert_close(shares, torch.softmax(logits_V / temperature, dim=0), atol=0.01, rtol=0.0)


def test_the_seed_decides(device: torch.device) -> None:
    logits_SV = torch.randn(64, 50, device=device).bfloat16()
    one, two, three = (Sampler(1.0, seed=seed, device=device).sample(logits_SV).tolist() for seed in (3, 3, 4))
    assert one == two != three


def test_it_begins_again(device: torch.device) -> None:
    logits_SV = torch.randn(64, 50, device=device)
    sampler = Sampler(1.0, seed=3, device=device)
    first, second = sampler.sample(logits_SV).tolist(), sampler.sample(logits_SV).tolist()
    sampler.reset()
    assert sampler.sample(logits_SV).tolist() == first != second


def test_log_probs(device: torch.device) -> None:
    logits_SV = torch.randn(3, 40, device=device).bfloat16()
    values_Sk, ids_Sk = log_probs(logits_SV, 4)
    assert values_Sk.dtype == torch.float32 and values_Sk.shape == ids_Sk.shape == (3, 4)
    expected_SV = torch.log_softmax(logits_SV.float(), dim=-1)
    torch.testing.assert_close(values_Sk, expected_SV.sort(dim=-1, descending=True).values[:, :4])
    torch.testing.assert_close(values_Sk, expected_SV.gather(1, ids_Sk))
