"""All inputs of a step in one buffer, so that one copy brings them to the device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpu_backend.batch import Batch
from gpu_backend.buckets import Shape

ALIGNMENT = 32
"""Integers; a field begins at a multiple, as the vector loads of kernels want it."""


class Fields(NamedTuple):
    """Views of one buffer, NumPy's or PyTorch's: what `Batch` documents under the same names."""

    slot_mapping: Any
    sample_tokens: Any
    input_ids: Any
    positions: Any
    query_start_loc: Any
    seq_lens: Any
    query_tiles: Any
    block_tables: Any


INT64_FIELDS = ("slot_mapping", "sample_tokens")


@lru_cache(maxsize=1024)
def _layout(shape: Shape, width: int) -> tuple[tuple[tuple[str, int, tuple[int, ...]], ...], int]:
    """(name, first integer, sizes) of every field, and the integers of all."""
    sizes: dict[str, tuple[int, ...]] = {
        "slot_mapping": (shape.tokens,),
        "sample_tokens": (shape.samples,),
        "input_ids": (shape.tokens,),
        "positions": (shape.tokens,),
        "query_start_loc": (shape.rows + 1,),
        "seq_lens": (shape.rows,),
        "query_tiles": (shape.tiles, 2),
        "block_tables": (shape.rows, width),
    }
    offset, fields = 0, []
    for name, size in sizes.items():
        fields.append((name, offset, size))
        integers = int(np.prod(size)) * (2 if name in INT64_FIELDS else 1)
        offset += -(-integers // ALIGNMENT) * ALIGNMENT
    return tuple(fields), offset


def num_integers(shape: Shape, width: int) -> int:
    """Size of the buffer of a shape with block tables `width` wide."""
    return _layout(shape, width)[1]


def carve(buffer: Any, shape: Shape, width: int) -> Fields:
    """The fields of a shape in an int32 buffer, a NumPy array or a tensor."""
    int64 = torch.int64 if isinstance(buffer, torch.Tensor) else np.int64
    views = []
    for name, offset, size in _layout(shape, width)[0]:
        count = int(np.prod(size))
        if name in INT64_FIELDS:
            views.append(buffer[offset : offset + 2 * count].view(int64))
        else:
            views.append(buffer[offset : offset + count].reshape(size))
    return Fields(*views)


def fill_padding(fields: Fields) -> None:
    """Inputs of a step without rows: nothing is written, read or drawn in earnest."""
    for name, field in fields._asdict().items():
        field[...] = -1 if name in ("slot_mapping", "query_tiles") else 0


class Packed(NamedTuple):
    """The inputs of one step: `fields` are views of `staged`, `host` is what the device fetches."""

    staged: NDArray[np.int32]
    host: Tensor
    device: Tensor
    fields: Fields

    def seal(self) -> None:
        """What is staged is what the device fetches from now on, until the next step is sealed."""
        np.copyto(self.host.numpy(), self.staged)

    def fetch(self) -> None:
        """Bring what is sealed to the device."""
        self.device.copy_(self.host, non_blocking=True)


class Buffers:
    """A staging area, a buffer that the device fetches from, and one on the device.

    The step to come is staged while the device may still fetch the one before.

    Args:
        shapes: what CUDA graphs fetch and read; their buffers never move.
        width: entries of their block tables.
    """

    def __init__(self, shapes: Sequence[Shape], width: int, device: torch.device) -> None:
        self._device = device
        capacity = max((num_integers(shape, width) for shape in shapes), default=0)
        host, on_device = self._host_buffer(capacity), self._device_buffer(capacity)
        staged = np.zeros(capacity, dtype=np.int32)
        self._fixed = {shape: self._pack(staged, host, on_device, shape, width) for shape in shapes}

    def take(self, shape: Shape, width: int) -> Packed:
        """Room for the inputs of the next step; of a shape without a graph, room of its own."""
        packed = self._fixed.get(shape)
        if packed is None:
            size = num_integers(shape, width)
            host = self._host_buffer(size)
            packed = self._pack(host.numpy(), host, self._device_buffer(size), shape, width)
        return packed

    def _pack(self, staged: NDArray[np.int32], host: Tensor, device: Tensor, shape: Shape, width: int) -> Packed:
        size = num_integers(shape, width)
        return Packed(staged[:size], host[:size], device[:size], carve(staged[:size], shape, width))

    def _host_buffer(self, size: int) -> Tensor:
        return torch.zeros(size, dtype=torch.int32, pin_memory=self._device.type == "cuda")

    def _device_buffer(self, size: int) -> Tensor:
        return torch.zeros(size, dtype=torch.int32, device=self._device)


def batch_of(packed: Packed, shape: Shape, width: int, query_tile: int, max_seq_len: int) -> Batch:
    """The batch that lies in the device's buffer."""
    fields = carve(packed.device, shape, width)
    return Batch(**fields._asdict(), query_tile=query_tile, num_single_rows=shape.singles, max_seq_len=max_seq_len)
