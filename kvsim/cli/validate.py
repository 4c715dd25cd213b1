"""`kvsim validate`: the simulation against measured steps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kvsim.checks import check_integer, check_number
from kvsim.cli.gpu_words import read_words
from kvsim.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from kvsim.run import Run
    from kvsim.validate.case import CaseResult, Sides
    from kvsim.validate.compare import Case, Setting, Tolerance

HEAD = """\
usage: kvsim validate [OPTION ...] [KEY=VALUE ...]    compare the simulation with the same policies on a GPU

  kvsim validate --config-dir DIR cost=mine model=opt-13b hardware=h200 'validate.systems=[vllm_v1,orca_max]'
  kvsim validate --config-dir DIR cost=mine model=opt-13b hardware=h200 'validate.loads={knee:0.8,overload:null}'
  kvsim validate executor=sim "validate.measured=['cost.host.fixed_us=900']"      two simulations

For every system and load: step times of the same plans, end-to-end metrics of the same workload, and whether measured
durations give the same decisions back. executor=... makes the measured side, cost=... the simulated one; kvsim
calibrate writes DIR/cost/mine.yaml. Results go to validate.output, the table to stdout.

An error past validate.tolerance is a MISS, and the exit code 1. It is noisy instead, which is neither pass nor miss, if
the repeated runs differ by as much, but by no more than three times the tolerance: past that, measure again.
"""

ELSEWHERE = {
    "num_requests": "validate.num_requests",
    "system": "validate.systems",
    "rate": "validate.loads",
    "duration": "validate.num_requests",
}
"""Keys of a run that mean nothing here."""

MAX_SHARE = 100.0


def main(arguments: list[str]) -> int:
    """Validate as the overrides among `arguments` say; 1 if a tolerance was missed.

    Raises:
        ConfigError: wrong usage or configuration; nothing is written.
    """
    overrides = read_words("kvsim validate", HEAD, arguments, ELSEWHERE)
    if overrides is None:
        return 0
    from kvsim.cli.composed import composed, split_key
    from kvsim.validate.case import validate_case
    from kvsim.validate.compare import Verdict
    from kvsim.validate.output import count, describe, draw, open_folder, print_table, write_results

    executor, simulated = split_key(overrides, "executor")
    cfg = composed(simulated)
    words = Words(simulated, [*executor, *cfg.validate.measured])
    _check(cfg)
    results: list[CaseResult] = []
    with open_folder(Path(cfg.validate.output)) as folder:
        for case, setting, sides, limits in _cases(cfg, words):
            _say(f"{case.system} {case.load}: {case.rate:.3g} requests/s")
            place = folder / f"{case.system}_{case.load}"
            result = validate_case(case, setting, sides, place, repeats=cfg.validate.repeats, limits=limits, say=_say)
            results.append(result)
            write_results(folder, result)
            draw(folder, results)
    print_table(results, cfg.output)
    rows = [row for result in results for row in result.rows]
    counts = count(rows)
    if cfg.output != "json":
        for row in rows:
            if row.verdict in (Verdict.MISS, Verdict.NOISY):
                print(f"{row.verdict} {describe(row)}")
        print(f"{counts['miss']} missed, {counts['noisy']} noisy, {counts['pass']} passed")
    _say(f"results in {folder}")
    return int(counts["miss"] > 0)


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
        from kvsim.cli.composed import built, changed, quoted

        return built(changed(self.simulated, "executor=replay", f"executor.path={quoted(str(folder))}"))


def _check(cfg: DictConfig) -> None:
    asked = cfg.validate
    check_integer("validate.num_requests", asked.num_requests)
    check_integer("validate.repeats", asked.repeats)
    for name, limit in asked.tolerance.items():
        check_number(f"validate.tolerance.{name}", limit, 0.0, 1e6)
    for word in asked.measured:
        if not word.partition("=")[1]:
            raise ConfigError(f"validate.measured: {word!r} is not KEY=VALUE; give for example ['engine.drain=true']")
    for load, share in _shares(cfg).items():
        check_number(f"validate.loads.{load}", share, 1e-6, MAX_SHARE)
    if not asked.systems or not _shares(cfg):
        raise ConfigError("validate.systems and validate.loads: nothing is left to compare; name one of each")


def _shares(cfg: DictConfig) -> dict[str, float]:
    return {str(load): share for load, share in cfg.validate.loads.items() if share is not None}


def _cases(cfg: DictConfig, words: Words) -> list[tuple[Case, Setting, Sides, Tolerance]]:
    """All cases, ready to be carried out. Both sides of every system are built before the first is simulated."""
    from kvsim.cli.composed import composed, quoted
    from kvsim.config import build_cost
    from kvsim.validate.case import Sides, setting_of
    from kvsim.validate.compare import Case, Tolerance

    asked = cfg.validate
    systems = {
        system: words.with_workload(f"system={quoted(system)}", f"num_requests={asked.num_requests}", "duration=null")
        for system in asked.systems
    }
    settings = {}
    for system, ours in systems.items():
        alone = ours.with_workload("rate=1")
        settings[system] = setting_of(alone.simulation(), alone.measurement(), asked.num_requests)
    cases = []
    for system, ours in systems.items():
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
            cases.append((case, settings[system], sides, limits))
    return cases


def _capacity(system: str, words: Words) -> float:
    """Requests a second that the simulated system completes if all come at once."""
    summary = words.with_workload("workload.arrivals=all_at_once", "rate=null").simulation().execute()
    throughput = summary["request_throughput"]
    if not throughput:
        raise ConfigError(f"{system}: completes no request; see kvsim run with these words")
    return float(throughput)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
