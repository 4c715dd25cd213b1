"""`load_decoder`: a model's decoder with random or real weights."""

from __future__ import annotations

import torch

from gpu_backend.models.decoder import Decoder
from gpu_backend.models.llama import LlamaDecoder
from gpu_backend.models.opt import OPTDecoder
from gpu_backend.models.parameters import allocate
from gpu_backend.weights.checkpoint import copy_checkpoint
from gpu_backend.weights.random import fill_random
from kvsim.specs import ModelSpec

DECODERS: dict[str, type[Decoder]] = {"opt": OPTDecoder, "llama": LlamaDecoder}


def load_decoder(
    model: ModelSpec, *, weights: str | None, dtype: torch.dtype, device: torch.device, seed: int = 0
) -> Decoder:
    """The decoder of `model` on `device`.

    Args:
        weights: folder of a Hugging Face model in safetensors files, or a ``.gguf`` file of the llama architecture;
            None draws them from `seed`.

    Raises:
        ConfigError: the weights cannot be read, do not fit the model, or do not fit the device.
    """
    parameters = allocate(model, dtype=dtype, device=device)
    if weights is None:
        fill_random(parameters, seed, device)
    else:
        copy_checkpoint(weights, model, parameters)
    return DECODERS[model.architecture](model, parameters)
