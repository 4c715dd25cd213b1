"""Calling kvsim inside this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from kvsim import cli


class Reply(NamedTuple):
    code: int
    out: str
    err: str


Call = Callable[..., Reply]


def caller(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *command: str) -> Call:
    """A function of the arguments after `command` that gives exit code, stdout and stderr."""

    def run(*arguments: str) -> Reply:
        monkeypatch.setattr(sys, "argv", ["kvsim", *command, *arguments])
        try:
            code = cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Reply(code, *capfd.readouterr())

    return run
