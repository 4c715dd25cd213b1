"""The ways a run can go wrong, one exception each."""

from __future__ import annotations


class ConfigError(ValueError):
    """Wrong usage or configuration (exit 2). The text names the value, the limit and the remedy."""


class TraceError(ConfigError):
    """A trace file that cannot be read (exit 2). The text names file, line and column."""


class DeviceError(RuntimeError):
    """The device could not go on with a run (exit 1). The text says what it lacked and the remedy."""


class InvariantError(RuntimeError):
    """A law that every run obeys was broken (exit 1): the results cannot be trusted and are not written.

    Args:
        name: the invariant, for example ``"INV-blocks"``.
        detail: what was found, with the ids concerned.
    """

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(name, detail)
        self.name = name
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}"
