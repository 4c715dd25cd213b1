"""The `kvsim` command: finds the sub-command, turns errors into exit codes. Imports nothing heavy (0.1 s)."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import NamedTuple

import kvsim
from kvsim.errors import ConfigError, DeviceError, InvariantError
from kvsim.suggest import did_you_mean


class Command(NamedTuple):
    """A sub-command: `module` has ``main(arguments) -> exit code`` and is imported when called."""

    module: str
    help: str


COMMANDS = {
    "run": Command("kvsim.cli.run", "one experiment, e.g. kvsim run system=vllm_v1 workload=sharegpt rate=2"),
    "sweep": Command("kvsim.cli.sweep", "a grid of them, e.g. kvsim sweep system=orca_max,vllm_v1 rate=1,1.5,2"),
    "trace": Command("kvsim.cli.trace", "public traces to a table, their figures, new ones: import, stats, synth"),
    "report": Command("kvsim.cli.report", "runs side by side on one page, e.g. kvsim report outputs/sweep"),
    "reproduce": Command("kvsim.cli.reproduce", "published figures beside our own, e.g. kvsim reproduce fig2"),
    "calibrate": Command("kvsim.cli.calibrate", "a cost profile from steps measured on a GPU"),
    "validate": Command("kvsim.cli.validate", "the simulation against the same policies on a GPU, within tolerances"),
    "bench": Command("kvsim.cli.bench", "how fast the GPU backend is: kernels, engine"),
}

SHELL_COMPLETION = ("-sc", "--shell-completion")


def usage() -> str:
    """What bare `kvsim` prints: a line a command."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {command.help}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            f"kvsim {kvsim.__version__}: {kvsim.__doc__.partition(': ')[2]}" if kvsim.__doc__ else "kvsim",
            "",
            "usage: kvsim COMMAND ...",
            *lines,
            "",
            "kvsim COMMAND --help explains a command; kvsim --version prints the version.",
        ]
    )


def dispatch(arguments: list[str]) -> int:
    """Run the sub-command that `arguments` name.

    Raises:
        ConfigError: no such command.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0
    name, *rest = arguments
    if name == "--version":
        print(f"kvsim {kvsim.__version__}")
        return 0
    if name in SHELL_COMPLETION:
        return complete(arguments)
    if name not in COMMANDS:
        kind = "option" if name.startswith("-") else "command"
        raise ConfigError(
            f"unknown {kind} {name!r}{did_you_mean(name, [*COMMANDS, '--help', '--version'])}; see kvsim --help"
        )
    code: int = importlib.import_module(COMMANDS[name].module).main(rest)
    return code


def complete(arguments: list[str]) -> int:
    """Answer the shell, which asks ``kvsim -sc query=SHELL`` whatever stands on its line.

    The name of the command, once it is there, is taken out of COMP_LINE, for Hydra knows nothing of it.
    """
    program, _, line = os.environ.get("COMP_LINE", "").partition(" ")
    name, space, rest = line.lstrip().partition(" ")
    if "query=" in "".join(arguments) and not (space and name in COMMANDS):
        print(" ".join(command for command in COMMANDS if command.startswith(name)))
        return 0
    os.environ["COMP_LINE"] = f"{program} {rest}"
    return dispatch([name if name in COMMANDS else "run", *arguments])


def main() -> int:
    """Entry point. 0 ok; 1 the run failed; 2 wrong usage or configuration; 130 interrupted; 143 terminated."""
    _open_closed_streams()
    signal.signal(signal.SIGTERM, _terminate)
    try:
        code = dispatch(sys.argv[1:])
        sys.stdout.flush()
        return code
    except ConfigError as error:
        return fail(error, 2)
    except (InvariantError, DeviceError) as error:
        return fail(error, 1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes stdout once more at exit
        return 1
    except OSError as error:
        return fail(error, 1)
    except MemoryError:
        return fail("out of memory; lower kv.num_blocks or num_requests", 1)
    except KeyboardInterrupt:
        return fail("interrupted", 130)


def _terminate(*_: object) -> None:
    """Unwind, so that no temporary file stays."""
    raise SystemExit(143)


def _open_closed_streams() -> None:
    """A shell may close them (``>&-``); printing must not fail then."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (open to the end of the process)


def fail(error: object, code: int) -> int:
    """Print the error as one line on stderr."""
    print(f"kvsim: {' '.join(str(error).split())}", file=sys.stderr)
    return code
