"""Ordinary flags: errors go to the dispatcher as one line, with a suggestion for what is misspelt."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from typing import NoReturn

from kvsim.checks import check_integer
from kvsim.errors import ConfigError
from kvsim.suggest import did_you_mean


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that raises ConfigError."""

    def __init__(self, prog: str, description: str, epilog: str = "") -> None:
        super().__init__(prog=prog, description=description, epilog=epilog, allow_abbrev=False)

    def read(self, arguments: list[str]) -> argparse.Namespace:
        """The options that `arguments` give.

        Raises:
            ConfigError: an unknown flag, a wrong value, or something is missing.
        """
        flags = [word for word in arguments if word.startswith("--") and word != "--"]
        for name in (word.partition("=")[0] for word in flags):
            if name not in self._option_string_actions:
                near = did_you_mean(name, self._option_string_actions)
                raise ConfigError(f"unknown option {name!r}{near}; see {self.prog} --help")
        return self.parse_args(arguments)

    def error(self, message: str) -> NoReturn:
        """Raise it."""
        raise ConfigError(f"{message}; see {self.prog} --help")


def whole(low: int, high: int) -> Callable[[str], int]:
    """A type for `add_argument`: a whole number in [low, high]."""

    def check(word: str) -> int:
        try:
            return check_integer("", int(word), low, high)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{word!r}: must be a whole number from {low} to {high}") from error

    return check


def one_of(choices: Collection[str]) -> Callable[[str], str]:
    """A type for `add_argument`: one of these words."""

    def check(word: str) -> str:
        if word not in choices:
            near = did_you_mean(word, choices)
            raise argparse.ArgumentTypeError(f"{word!r}: must be one of {', '.join(choices)}{near}")
        return word

    return check
