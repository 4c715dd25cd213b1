"""`kvsim calibrate`: measure steps on an executor and write a cost profile."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from kvsim.checks import check_integer, check_number
from kvsim.cli.files import check_writable
from kvsim.cli.gpu_words import read_words
from kvsim.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from kvsim.calibrate.points import Measured

HEAD = """\
usage: kvsim calibrate [OPTION ...] [KEY=VALUE ...]    measure steps on a GPU and write a cost profile

  kvsim calibrate model=llama-3-8b hardware=h200 calibrate.output=DIR/cost/mine.yaml
  kvsim run --config-dir DIR cost=mine model=llama-3-8b hardware=h200 rate=5
  kvsim calibrate calibrate.from_points=DIR/cost/mine.points.csv calibrate.output=again.yaml

A grid of steps (decodes, prompts, chunks, mixes, padding), then short runs of two systems; what is fitted goes to
calibrate.output, the measured steps beside it, the error on steps left out of the fit to stdout. executor=sim
calibrates against another cost model.
"""

ELSEWHERE = {
    "rate": "calibrate.rate",
    "duration": "calibrate.run_seconds",
    "num_requests": "calibrate.run_seconds",
}
"""Keys of a run that mean nothing here."""


def main(arguments: list[str]) -> int:
    """Calibrate as the overrides among `arguments` say, on a GPU unless they name another executor.

    Raises:
        ConfigError: wrong usage or configuration; nothing is written.
    """
    overrides = read_words("kvsim calibrate", HEAD, arguments, ELSEWHERE)
    if overrides is None:
        return 0
    from kvsim.calibrate.fit import fit
    from kvsim.calibrate.points import write_points
    from kvsim.calibrate.profile import write_profile
    from kvsim.cli.composed import composed

    cfg = composed(overrides)
    output, points_file = _files(cfg)
    if cfg.calibrate.from_points is None:
        measured = _measure(cfg, overrides)
        write_points(points_file, measured)
        _say(f"points in {points_file}")
    else:
        measured = _read(Path(cfg.calibrate.from_points))
    result = fit(measured.points, measured.buckets)
    write_profile(output, result, measured)
    if cfg.output == "json":
        print(json.dumps([asdict(error) for error in result.errors], indent=2))
    else:
        for error in result.errors:
            print(f"{error.kind:24}{error.points:6} steps  mean {error.mean:6.2%}  p95 {error.p95:6.2%}  "
                  f"bias {error.bias:+6.2%}")  # fmt: skip
    _say(f"profile in {output}")
    return 0


def _files(cfg: DictConfig) -> tuple[Path, Path]:
    """The paths of the profile and of the points."""
    if cfg.calibrate.output is None:
        raise ConfigError("calibrate.output is not set; give for example calibrate.output=DIR/cost/mine.yaml")
    output = Path(cfg.calibrate.output)
    if output.suffix != ".yaml":
        raise ConfigError(f"calibrate.output={output}: must end in .yaml, so that cost=NAME finds it")
    check_writable("calibrate.output", output)
    source = cfg.calibrate.from_points
    points = Path(source or cfg.calibrate.points or output.with_suffix(".points.csv"))
    if source is None:
        check_writable("calibrate.points", points)
    if points.resolve() == output.resolve():
        key = "points" if source is None else "from_points"
        raise ConfigError(f"calibrate.{key}={points}: the profile, calibrate.output, is the same file; choose another")
    return output, points


def _read(path: Path) -> Measured:
    from kvsim.calibrate.fit import LEAST_POINTS
    from kvsim.calibrate.points import read_points

    measured = read_points(path)
    if len(measured.points) < LEAST_POINTS:
        raise ConfigError(
            f"calibrate.from_points={str(path)!r}: {len(measured.points)} points in it, a fit needs {LEAST_POINTS}; "
            "name another file, or measure again"
        )
    return measured


def _measure(cfg: DictConfig, overrides: Sequence[str]) -> Measured:
    from kvsim.calibrate.run import LOADS, Effort, calibrate
    from kvsim.cli.composed import built, changed, quoted
    from kvsim.parts import make_part

    asked = cfg.calibrate
    rate = check_number("calibrate.rate", asked.rate, 1e-6, 1e9)
    seconds = check_number("calibrate.run_seconds", asked.run_seconds, 0.1, 1e6) / len(LOADS)
    words = changed(overrides, f"rate={rate}", f"duration={seconds}", "num_requests=null", "engine.drain=false")
    real_runs = [
        (system, functools.partial(built, changed(words, f"system={quoted(system)}", f"rate={rate * load}")))
        for system in asked.systems
        for load in LOADS
    ]
    effort = Effort(
        check_integer("calibrate.repeats", asked.repeats, high=1000),
        check_number("calibrate.max_seconds", asked.max_seconds, 1.0, 1e6),
        check_integer("calibrate.max_tokens", asked.max_tokens, low=16),
        check_integer("calibrate.max_rows", asked.max_rows, high=1 << 16),
    )
    for _, make_real in real_runs:
        make_real()  # so that none proves wrong once the grid is measured
    # no limit of a scheduler: the engine then has all its buckets
    grid = changed(words, "scheduler.max_num_seqs=null", "scheduler.max_num_batched_tokens=null")
    make, command = functools.partial(built, grid), ["kvsim", *sys.argv[1:]]
    return calibrate(make_part(cfg, "model"), make, real_runs, effort, command, _say)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
