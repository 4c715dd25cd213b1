"""`load_decoder`: a model's decoder with random or real weights."""

from __future__ import annotations

import torch

from gpu_backend.models.decoder import Decoder
from gpu_backend.models.llama import LlamaDecoder
from gpu_backend.models.opt import OPTDecoder
from gpu_backend.models.parameters import allocate
from gpu_backend.weights.checkpoint import copy_checkpoint, open_checkpoint
from gpu_backend.weights.random import fill_random
from kvsim.errors import ConfigError
from kvsim.specs import ModelSpec

DECODERS: dict[str, type[Decoder]] = {"opt": OPTDecoder, "llama": LlamaDecoder}
MAX_HEAD_DIM = 256
HEAD_DIM_STEP = 4  # attention puts its parts together four elements at a time
MAX_GROUP = 128  # query heads of a KV head, which lie in shared memory together
MAX_HIDDEN_SIZE = 1 << 16  # a norm keeps a row in registers


def check_decoder(model: ModelSpec, weights: str | None) -> None:
    """Whether `load_decoder` can make this decoder; of the weights only the headers are read.

    Raises:
        ConfigError: the kernels do not take this shape, or see `load_decoder`.
    """
    if model.head_dim > MAX_HEAD_DIM or model.head_dim % HEAD_DIM_STEP:
        raise _unsupported(f"head_dim={model.head_dim}", f"multiples of {HEAD_DIM_STEP} up to {MAX_HEAD_DIM}")
    if model.num_heads > model.num_kv_heads * MAX_GROUP:
        found = f"num_kv_heads={model.num_kv_heads} of {model.num_heads} heads"
        raise _unsupported(found, f"up to {MAX_GROUP} query heads a KV head")
    if model.hidden_size > MAX_HIDDEN_SIZE:
        raise _unsupported(f"hidden_size={model.hidden_size}", f"up to {MAX_HIDDEN_SIZE}")
    if weights is not None:
        open_checkpoint(weights, model)


def _unsupported(found: str, taken: str) -> ConfigError:
    return ConfigError(f"model.{found}: the kernels of executor=gpu take {taken}; choose another model or executor=sim")


def load_decoder(
    model: ModelSpec, *, weights: str | None, dtype: torch.dtype, device: torch.device, seed: int = 0
) -> Decoder:
    """The decoder of `model` on `device`.

    Args:
        model: of a shape that `check_decoder` lets pass.
        weights: folder of a Hugging Face model in safetensors files, or a ``.gguf`` file of the llama architecture;
            None draws them from `seed`.

    Raises:
        ConfigError: the weights cannot be read, do not fit the model, are not finite, or do not fit the device.
    """
    parameters = allocate(model, dtype=dtype, device=device)
    if weights is None:
        fill_random(parameters, seed, device)
    else:
        copy_checkpoint(weights, model, parameters)
    return DECODERS[model.architecture](model, parameters)
