"""`kvsim sweep`: a grid of experiments. Hydra is imported for a sweep, not for a question about it."""

from __future__ import annotations

import sys

from kvsim.cli.flags import HELP, QUESTIONS, split_flags, values_of
from kvsim.cli.help import SWEEP_HEAD, command_help
from kvsim.errors import ConfigError

REFUSED = {"--run", "-r", "--config-name", "-cn", "--config-path", "-cp"}


def main(arguments: list[str]) -> int:
    """Run every point of the grid that the overrides among `arguments` span; 1 if a run failed.

    Raises:
        ConfigError: wrong usage or configuration; no folder is left behind.
    """
    flags, overrides = split_flags(arguments)
    config_dirs = values_of(flags, "--config-dir", "-cd")
    names = {flag.partition("=")[0] for flag in flags}
    if HELP & names:
        print(command_help(SWEEP_HEAD, config_dirs), end="")
        return 0
    sys.argv[1:] = flags + overrides
    if QUESTIONS & names:
        from kvsim.cli.app import run_app

        run_app()
        return 0
    for flag in sorted(REFUSED & names):
        raise ConfigError(f"option {flag} is not for a sweep; kvsim sweep --help lists those that are")
    from kvsim.cli.sweep_app import run_sweep

    return run_sweep(overrides, config_dirs[-1] if config_dirs else None)
