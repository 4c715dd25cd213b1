"""The device, its number format and its memory. Imported before any kernel: it decides how those run."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from typing import Any

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # Triton asks when it is imported; so it takes CPU tensors

import triton

from kvsim.errors import ConfigError
from kvsim.specs import GIB, ModelSpec

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def _mend_interpreter() -> None:
    """range(begin, end) over tensors: Triton 3.6 asks for the index of an array of one element, NumPy 2.4 refuses."""
    from triton.runtime import interpreter

    patch = getattr(interpreter, "_patch_lang_tensor", None)
    if patch is None:
        return

    def patch_index(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        index = tensor.__index__

        def first_element(self: Any) -> int:
            try:
                return int(index(self))
            except TypeError:
                return int(self.handle.data.item())

        scope.set_attr(tensor, "__index__", first_element)

    interpreter._patch_lang_tensor = patch_index


if triton.knobs.runtime.interpret:
    _mend_interpreter()


def open_device(name: str, dtype: str) -> tuple[torch.device, torch.dtype]:
    """The device and number format of a configuration.

    Raises:
        ConfigError: there is no such device or format, or kernels are compiled for another device.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"executor.dtype={dtype!r} must be one of {', '.join(DTYPES)}")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(f"executor.device={name!r} is no device; give cuda, cuda:1 or cpu") from error
    if device.type not in ("cuda", "cpu") or name.startswith("cpu:"):
        raise ConfigError(f"executor.device={name!r} is not supported; give cuda, cuda:1 or cpu")
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise ConfigError(
                f"executor.device={name}: PyTorch {torch.__version__} sees {count} CUDA devices; give "
                "executor=sim to simulate, or executor.device=cpu to run a tiny model slowly"
            )
        torch.cuda.set_device(device.index or 0)  # kernels are launched on the current one
    elif not triton.knobs.runtime.interpret:
        raise ConfigError(
            f"executor.device={name}: Triton compiles for the CUDA device that it sees; hide it, "
            "CUDA_VISIBLE_DEVICES= kvsim ..., to run on the CPU"
        )
    return device, DTYPES[dtype]


def environment(device: torch.device) -> dict[str, str | None]:
    """What times measured on `device` depend on."""
    cuda = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if cuda else "cpu",
        "driver": _driver() if cuda else None,
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "triton": triton.__version__,
    }


@cache
def _driver() -> str | None:
    """Version of the NVIDIA driver, if it can be told."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def usable_memory(device: torch.device) -> int:
    """Bytes of `device` that nobody else has; all memory of the machine for the CPU."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_room(model: ModelSpec, num_slots: int, *, dtype: torch.dtype, device: torch.device) -> None:
    """Whether weights and KV pool find room together, before either is made.

    Raises:
        ConfigError: they do not.
    """
    weights = model.num_parameters * dtype.itemsize
    pool = num_slots * model.kv_bytes_per_token // model.dtype_bytes * dtype.itemsize
    usable = usable_memory(device)
    if weights + pool > usable:
        raise ConfigError(
            f"{model.name} needs {weights / GIB:.1f} GiB for its weights and {pool / GIB:.1f} GiB for {num_slots} "
            f"tokens of KV, {usable / GIB:.1f} GiB are free on {device}; lower kv.num_blocks or "
            "hardware.memory_utilization, or choose a smaller model"
        )
