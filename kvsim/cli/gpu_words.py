"""The words of the commands that measure on a GPU: as those of `kvsim run`, with ``executor=gpu`` the default."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from kvsim.cli.flags import HELP, QUESTIONS, split_flags, values_of
from kvsim.cli.help import command_help
from kvsim.errors import ConfigError

EXECUTOR = "executor=gpu"


def read_words(
    command: str, head: str, arguments: Sequence[str], elsewhere: Mapping[str, str] | None = None
) -> list[str] | None:
    """The words to compose a configuration from; None where the arguments asked a question, which is answered.

    Args:
        command: its name, for messages.
        head: of its help.
        elsewhere: keys that it sets itself, and the key that says to what.

    Raises:
        ConfigError: a flag or a key that is not for this command, or no such folder of options.
    """
    flags, overrides = split_flags(arguments, command)
    config_dirs = values_of(flags, "--config-dir", "-cd")
    names = {flag.partition("=")[0] for flag in flags if flag.startswith("-")}
    if HELP & names:
        print(command_help(head, config_dirs, EXECUTOR), end="")
        return None
    from kvsim.cli.composed import key_of, search_words, split_key

    executor, others = split_key(overrides, "executor")
    if "executor" not in map(key_of, executor):
        executor = [EXECUTOR, *executor]
    if QUESTIONS & names:
        from kvsim.cli.app import run_app

        sys.argv[1:] = [*flags, *others, *executor]
        run_app()
        return None
    for flag in sorted(names - {"--config-dir", "-cd"}):
        raise ConfigError(f"option {flag}: is not for {command}; {command} --help lists those that are")
    for word in others:
        if instead := (elsewhere or {}).get(key_of(word)):
            raise ConfigError(f"{word}: {command} sets {key_of(word)} itself; give {instead}=VALUE")
    return [*search_words(config_dirs[-1] if config_dirs else None), *others, *executor]
