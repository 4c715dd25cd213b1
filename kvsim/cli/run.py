"""`kvsim run`: one experiment. Hydra is imported for a run, not for a question about it."""

from __future__ import annotations

import sys

from kvsim.cli.flags import flags_first, values_of
from kvsim.cli.help import RUN_HEAD, command_help


def main(arguments: list[str]) -> int:
    """Run what the overrides among `arguments` describe; Hydra's own flags work too.

    Raises:
        ConfigError: wrong usage or configuration; no folder is left behind.
    """
    words = flags_first(arguments)
    if {"--help", "-h"} & set(words):
        print(command_help(RUN_HEAD, values_of(words, "--config-dir", "-cd")), end="")
        return 0
    from kvsim.cli.app import run_app

    sys.argv[1:] = words
    run_app()
    return 0
