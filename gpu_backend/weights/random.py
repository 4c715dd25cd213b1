"""Random weights at a model's shape, for runs in which only speed and memory matter."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from kvsim.streams import SEED_LIMIT, stream


def fill_random(parameters: Mapping[str, Tensor], seed: int, device: torch.device) -> None:
    """Fill every parameter in place, on the device, from the stream ``weights`` of `seed`.

    The same seed and device kind give the same numbers.

    Products keep the size of what they multiply (normal, variance 1 / inputs) and norms scale by one, so that the
    states of the deepest models stay far from overflow.
    """
    generator = torch.Generator(device).manual_seed(int(stream(seed, "weights").integers(SEED_LIMIT)))
    for name, tensor in parameters.items():
        if name.endswith("norm.weight"):
            tensor.fill_(1.0)
        else:
            tensor.normal_(0.0, tensor.shape[-1] ** -0.5, generator=generator)
