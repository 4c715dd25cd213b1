"""`kvsim bench`: how fast the GPU backend is."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence

from kvsim.cli.flags import split_flags
from kvsim.errors import ConfigError
from kvsim.suggest import did_you_mean

USAGE = """\
usage: kvsim bench COMMAND ...
  kernels   attention kernels, ours and installed peers, on the same inputs; --help lists its options
  engine    offline tokens a second: all requests at once, e.g. kvsim bench engine model=llama-3-8b hardware=h200"""

KERNELS = "gpu_backend.bench.kernels"


def main(arguments: list[str]) -> int:
    """Do what the first word says.

    Raises:
        ConfigError: wrong usage, or there is no GPU backend.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0
    commands = {"kernels": bench_kernels, "engine": bench_engine}
    name, *rest = arguments
    if name not in commands:
        raise ConfigError(f"unknown benchmark {name!r}{did_you_mean(name, [*commands, '--help'])}; "
                          "see kvsim bench --help")  # fmt: skip
    return commands[name](rest)


def bench_kernels(arguments: list[str]) -> int:
    """`kvsim bench kernels`."""
    try:
        module = importlib.import_module(KERNELS)
    except ImportError as error:
        raise ConfigError(f"kvsim bench kernels needs the GPU backend: {error}; pip install 'kvsim[gpu]'") from error
    code: int = module.main(arguments)
    return code


def bench_engine(arguments: list[str]) -> int:
    """`kvsim bench engine`: one run of a thousand requests that are all there at the start."""
    flags, overrides = split_flags(arguments)
    if {"--help", "-h"} & set(flags):
        print(USAGE)
        return 0
    if flags:
        raise ConfigError(f"option {flags[0]}: is not for kvsim bench engine, which takes KEY=VALUE and --help")
    from kvsim.calibrate.measure import StepRecorder
    from kvsim.cli.composed import built, changed, split_key

    executor, others = split_key(overrides, "executor")
    words = changed(others, *(executor or ["executor=gpu"]), "workload.arrivals=all_at_once", "rate=null")
    run = built(words)
    recorder = StepRecorder(run.executor)
    summary = dataclasses.replace(run, executor=recorder, fast_forward=False).execute()
    print(engine_report(summary, recorder.breakdowns))
    return 0


def engine_report(summary: Mapping[str, object], breakdowns: Sequence[tuple[int, ...]]) -> str:
    """What a person wants to know: tokens a second, steps, and where their time goes."""
    from kvsim.plan import PHASES
    from kvsim.table import as_text

    output_tokens, output_rate = float(str(summary["total_output_tokens"])), float(str(summary["output_throughput"]))
    tokens = output_tokens + float(str(summary["total_input_tokens"]))
    lines = {
        "requests": as_text(summary["completed"], ",d"),
        "output tokens/s": f"{output_rate:,.0f}",
        "total tokens/s": f"{output_rate * tokens / output_tokens:,.0f}",
        "steps": as_text(summary["steps"], ",d"),
    }
    measured = [breakdown for breakdown in breakdowns if breakdown]
    for phase, column in zip(PHASES, zip(*measured, strict=True), strict=False):
        lines[f"{phase}, us a step"] = f"{sum(column) / len(column) / 1e3:,.1f}"
    return "\n".join(f"{name:22}{value:>14}" for name, value in lines.items())
