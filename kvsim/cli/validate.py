"""`kvsim validate`: the simulation against measured steps."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kvsim.checks import check_integer, check_number
from kvsim.cli.flags import split_flags
from kvsim.cli.help import command_help
from kvsim.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from kvsim.run import Run
    from kvsim.validate.case import CaseResult
    from kvsim.validate.compare import Row

HEAD = """\
usage: kvsim validate [KEY=VALUE ...]    compare the simulation with the same policies on a GPU

  kvsim validate model=llama-3-8b hardware=h200 cost=h200_llama-3-8b validate.systems=[vllm_v1,orca_max]
  kvsim validate model=opt-13b hardware=h200 cost=h200_opt-13b 'validate.loads={overload:null}'

For every system and load: step times of the same plans, end-to-end metrics of the same workload, and whether measured
durations give the same decisions back. executor=... makes the measured side, cost=... the simulated one. Results go to
validate.output, the table to stdout; exit code 1 if an error exceeds validate.tolerance.
"""

MAX_SHARE = 100.0


def main(arguments: list[str]) -> int:
    """Validate as the overrides among `arguments` say; 1 if a tolerance was missed.

    Raises:
        ConfigError: wrong usage or configuration.
    """
    flags, overrides = split_flags(arguments)
    if {"--help", "-h"} & set(flags):
        print(command_help(HEAD).partition("\nOptions:")[0])  # Hydra's flags are for runs
        return 0
    if flags:
        raise ConfigError(f"option {flags[0]}: is not for kvsim validate, which takes KEY=VALUE and --help")
    from kvsim.cli.composed import composed, split_key
    from kvsim.validate.compare import Verdict
    from kvsim.validate.output import describe, draw, open_folder, print_table, write_results

    executor, simulated = split_key(overrides, "executor")
    cfg = composed(simulated)
    words = Words(simulated, [*(executor or ["executor=gpu"]), *cfg.validate.measured])
    _check(cfg)
    folder = open_folder(Path(cfg.validate.output))
    results: list[CaseResult] = []
    rows: list[Row] = []
    for result in _results(cfg, words, folder):
        results.append(result)
        rows += result.rows
        write_results(folder, rows)
        draw(folder, results)
    print_table(rows)
    misses = [row for row in rows if row.verdict is Verdict.MISS]
    for row in misses:
        print(f"MISS {describe(row)}")
    _say(f"results in {folder}")
    return int(bool(misses))


class Words(NamedTuple):
    """What the user said: of both sides, and beyond that of the measured one."""

    simulated: list[str]
    measured: list[str]

    def with_workload(self, *words: str) -> Words:
        """The same with `words` on both sides."""
        from kvsim.cli.composed import changed

        return Words(changed(self.simulated, *words), self.measured)

    def simulation(self) -> Run:
        """A simulated run."""
        from kvsim.cli.composed import built

        return built(self.simulated)

    def measurement(self) -> Run:
        """A measured run of the same workload."""
        from kvsim.cli.composed import built, changed

        return built(changed(self.simulated, *self.measured))

    def replay(self, folder: Path) -> Run:
        """A simulated run that takes its durations from another one's folder."""
        from kvsim.cli.composed import built, changed

        return built(changed(self.simulated, "executor=replay", f"executor.path={_quoted(folder)}"))


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _check(cfg: DictConfig) -> None:
    asked = cfg.validate
    check_integer("validate.num_requests", asked.num_requests)
    check_integer("validate.repeats", asked.repeats)
    for name, limit in asked.tolerance.items():
        check_number(f"validate.tolerance.{name}", limit, 0.0, 1e6)
    for load, share in _shares(cfg).items():
        check_number(f"validate.loads.{load}", share, 1e-6, MAX_SHARE)
    if not asked.systems or not _shares(cfg):
        raise ConfigError("validate.systems and validate.loads: nothing is left to compare; name one of each")


def _shares(cfg: DictConfig) -> dict[str, float]:
    return {str(load): share for load, share in cfg.validate.loads.items() if share is not None}


def _results(cfg: DictConfig, words: Words, folder: Path) -> Iterator[CaseResult]:
    from kvsim.cli.composed import composed
    from kvsim.config import build_cost
    from kvsim.validate.case import Sides, validate_case
    from kvsim.validate.compare import Case, Tolerance

    asked = cfg.validate
    for system in asked.systems:
        ours = words.with_workload(f"system={system}", f"num_requests={asked.num_requests}", "duration=null")
        capacity = _capacity(system, ours)
        for load, share in _shares(cfg).items():
            case = Case(system, load, capacity * share)
            loaded = ours.with_workload(f"rate={case.rate}")
            limits = Tolerance(
                asked.tolerance.step,
                asked.tolerance.throughput,
                asked.tolerance.median,
                asked.tolerance.p99 if share <= 1 else asked.tolerance.p99_overload,
            )
            cost = build_cost(composed(loaded.simulated))
            sides = Sides(loaded.simulation, loaded.measurement, loaded.replay, cost)
            _say(f"{system} {load}: {case.rate:.3g} requests/s of {capacity:.3g}")
            yield validate_case(
                case, sides, folder / f"{system}_{load}", repeats=asked.repeats, limits=limits, say=_say
            )


def _capacity(system: str, words: Words) -> float:
    """Requests a second that the simulated system completes if all come at once."""
    summary = words.with_workload("workload.arrivals=all_at_once", "rate=null").simulation().execute()
    throughput = summary["request_throughput"]
    if not throughput:
        raise ConfigError(f"{system}: completes no request; see kvsim run with these words")
    return float(throughput)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
