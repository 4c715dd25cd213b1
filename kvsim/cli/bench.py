"""`kvsim bench`: how fast the GPU backend is."""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Mapping, Sequence

from kvsim.cli.gpu_words import read_words
from kvsim.errors import ConfigError
from kvsim.suggest import did_you_mean

USAGE = """\
usage: kvsim bench COMMAND ...
  kernels   attention kernels, ours and installed peers, on the same inputs; --help lists its options
  engine    offline tokens a second: all requests at once, e.g. kvsim bench engine model=llama-3-8b hardware=h200"""

ENGINE_HEAD = """\
usage: kvsim bench engine [OPTION ...] [KEY=VALUE ...]    offline tokens a second on a GPU

  kvsim bench engine model=llama-3-8b hardware=h200
  kvsim bench engine system=orca_max model=opt-13b hardware=h200 num_requests=500 output=json

All requests are there at the start, 1,000 unless num_requests says otherwise. Printed are tokens a second, steps, and
the mean time of a step's phases. No files are written.
"""

ELSEWHERE = {"rate": "num_requests", "workload.arrivals": "num_requests"}
"""Keys of a run that mean nothing where all requests are there at the start."""

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
    words = read_words("kvsim bench engine", ENGINE_HEAD, arguments, ELSEWHERE)
    if words is None:
        return 0
    from kvsim.calibrate.measure import StepRecorder
    from kvsim.cli import fail
    from kvsim.cli.composed import built, changed, composed

    words = changed(words, "workload.arrivals=all_at_once", "rate=null")
    output, run = composed(words).output, built(words)
    recorder = StepRecorder(run.executor)
    summary = dataclasses.replace(run, executor=recorder, fast_forward=False).execute()
    if not summary["completed"]:
        rejected = summary["rejected"]
        return fail(f"no request was completed, {rejected} were rejected; kvsim run with these words says why", 1)
    report = engine_report(summary, recorder.breakdowns)
    print(json.dumps(report, indent=2) if output == "json" else as_lines(report))
    return 0


def engine_report(summary: Mapping[str, object], breakdowns: Sequence[tuple[int, ...]]) -> dict[str, float]:
    """Tokens a second, steps, and the mean microseconds of their phases where they were measured."""
    from kvsim.plan import PHASES

    output_tokens, output_rate = float(str(summary["total_output_tokens"])), float(str(summary["output_throughput"]))
    tokens = output_tokens + float(str(summary["total_input_tokens"]))
    report = {
        "requests": int(str(summary["completed"])),
        "output_tokens_per_s": output_rate,
        "total_tokens_per_s": output_rate * tokens / output_tokens,
        "steps": int(str(summary["steps"])),
    }
    measured = [breakdown for breakdown in breakdowns if breakdown]
    for phase, column in zip(PHASES, zip(*measured, strict=True), strict=False):
        report[f"{phase}_us"] = sum(column) / len(column) / 1e3
    return report


def as_lines(report: Mapping[str, float]) -> str:
    """For people."""
    lines = []
    for name, value in report.items():
        label = name.removesuffix("_us") + ", us a step" if name.endswith("_us") else name.replace("_per_", "/")
        lines.append(f"{label.replace('_', ' '):22}{value:>14{',.1f' if name.endswith('_us') else ',.0f'}}")
    return "\n".join(lines)
