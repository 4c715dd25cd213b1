"""Hydra's own flags: told apart from KEY=VALUE overrides and put in front of them, where its parser wants them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from kvsim.errors import ConfigError
from kvsim.suggest import did_you_mean

SWITCHES = ("--help", "-h", "--hydra-help", "--resolve", "--run", "-r", "--info", "-i")
WITH_VALUE = ("--cfg", "-c", "--package", "-p", "--config-dir", "-cd", "--config-name", "-cn", "--config-path", "-cp")
COMPLETION = ("--shell-completion", "-sc")
MULTIRUN = ("--multirun", "-m")
MODES = ("--cfg", "-c", "--run", "-r", "--info", "-i", *COMPLETION)
HELP = {"--help", "-h"}
QUESTIONS = {"--cfg", "-c", "--info", "-i", "--hydra-help", *COMPLETION}
"""Flags that Hydra answers for every command as it does for a run."""
CFG_KINDS = ("job", "hydra", "all")


def flags_first(arguments: Sequence[str]) -> list[str]:
    """`arguments` with all flags before all overrides; see `split_flags`."""
    flags, overrides = split_flags(arguments)
    return flags + overrides


def split_flags(arguments: Sequence[str], command: str = "kvsim run") -> tuple[list[str], list[str]]:
    """The flags with their values, and the overrides, each kind in its order; `command` is whose.

    Raises:
        ConfigError: an unknown flag, flags that exclude each other, or a word that is no KEY=VALUE.
    """
    flags: list[str] = []
    overrides: list[str] = []
    rest = iter(arguments)
    for word in rest:
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            overrides.append(_checked_override(word))
        elif name in WITH_VALUE:
            value = value if equals else next(rest, "")
            flags += [name, _checked_value(name, value)]
        elif name in ("--info", "-i"):
            flags.append(f"--info={value or 'all'}")
        elif word in (*SWITCHES, *COMPLETION):
            flags.append(word)
        elif word in MULTIRUN:
            raise ConfigError(f"option {word}: say kvsim sweep KEY=a,b")
        else:
            known = [flag[2:] for flag in (*SWITCHES, *WITH_VALUE, *COMPLETION) if flag.startswith("--")]
            near = did_you_mean(name.lstrip("-"), known).replace("mean '", "mean '--")
            raise ConfigError(f"unknown option {name!r}{near}; see {command} --help")
    _check_together([flag.partition("=")[0] for flag in flags])
    return flags, overrides


def _checked_override(word: str) -> str:
    if word.startswith("=") or ("=" not in word and not word.startswith("~")):
        raise ConfigError(f"{word!r} is not KEY=VALUE; give for example rate=2 or system=vllm_v1")
    return word


def _checked_value(flag: str, value: str) -> str:
    if not value:
        raise ConfigError(f"option {flag} needs a value; see kvsim run --help")
    if flag in ("--cfg", "-c") and value not in CFG_KINDS:
        raise ConfigError(
            f"option {flag} {value!r}: must be one of {', '.join(CFG_KINDS)}{did_you_mean(value, CFG_KINDS)}"
        )
    return value


def _check_together(flags: list[str]) -> None:
    modes = [flag for flag in flags if flag in MODES]
    if len(modes) > 1:
        raise ConfigError(f"options {' and '.join(modes)} exclude each other; give one of them")
    if "--resolve" in flags and not {"--cfg", "-c", "--help", "-h"} & set(flags):
        raise ConfigError("option --resolve works only together with --cfg or --help; add --cfg job")


def values_of(words: Sequence[str], *flags: str) -> list[str]:
    """What follows any of `flags` among `words`, as `flags_first` orders them."""
    return [value for flag, value in pairwise(words) if flag in flags]
