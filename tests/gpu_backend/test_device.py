"""What decides how kernels run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from triton.runtime import interpreter

from gpu_backend.device import _mend_interpreter, open_device
from kvsim.errors import ConfigError


def test_compiled_kernels_take_no_cpu_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    with pytest.raises(ConfigError, match="executor.device=cpu: .* CUDA_VISIBLE_DEVICES= kvsim"):
        open_device("cpu", "float32")


def test_interpreted_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.knobs.runtime, "interpret", True)
    assert open_device("cpu", "float16") == (torch.device("cpu"), torch.float16)


class Scope:
    def set_attr(self, tensor: type, name: str, value: Any) -> None:
        setattr(tensor, name, value)


def mended(monkeypatch: pytest.MonkeyPatch, index: Any) -> Any:
    """A tensor of an interpreter whose tensors have this ``__index__``."""

    def patch(tensor: type, scope: Scope) -> None:
        scope.set_attr(tensor, "__index__", index)

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patch, raising=False)
    _mend_interpreter()
    kind = type("Tensor", (), {"handle": SimpleNamespace(data=torch.tensor([7]).numpy())})
    interpreter._patch_lang_tensor(kind, Scope())
    return kind()


def refuse(tensor: Any) -> int:
    raise TypeError("only 0-dimensional arrays can be converted to Python scalars")


@pytest.mark.parametrize(("index", "stop"), [(refuse, 7), (lambda tensor: 3, 3)], ids=["faulty", "sound"])
def test_only_a_fault_of_the_interpreter_is_mended(monkeypatch: pytest.MonkeyPatch, index: Any, stop: int) -> None:
    assert list(range(mended(monkeypatch, index))) == list(range(stop))


def test_an_interpreter_without_the_hook_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(interpreter, "_patch_lang_tensor", raising=False)
    _mend_interpreter()
    assert not hasattr(interpreter, "_patch_lang_tensor")
