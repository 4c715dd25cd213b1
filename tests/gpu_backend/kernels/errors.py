"""How far a kernel is from a float32 reference, and how far it may be."""

from __future__ import annotations

import torch
from torch import Tensor

# the interpreter cuts bfloat16 off where a GPU rounds
TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 6e-3}


def error(out: Tensor, reference: Tensor | None) -> float:
    """||out - reference|| / ||reference||."""
    assert reference is not None
    return float((out.float() - reference.float()).norm() / reference.float().norm())
