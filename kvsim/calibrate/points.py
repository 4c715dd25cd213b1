"""`Point`: a step that was measured, and the file that keeps them, so that a fit can be repeated without a device."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kvsim.atomic import replacing
from kvsim.checks import check_integer, shown
from kvsim.cost.shape import StepShape
from kvsim.errors import ConfigError

Provenance = dict[str, str]


class Point(NamedTuple):
    """A measured step.

    Attributes:
        kind: what it was made to show.
        shape: its sizes.
        device_ns: of the device with the launches; the median of `times` measurements.
        host_ns: of all else, in a real run; 0 on the grid, where nobody decides and every sequence is new.
        times: how often it was measured.
    """

    kind: str
    shape: StepShape
    device_ns: int
    host_ns: int = 0
    times: int = 1

    @property
    def in_run(self) -> bool:
        """Taken from a run, not from the grid."""
        return self.kind.startswith("run ")


class Buckets(NamedTuple):
    """Sizes to which the engine pads, ascending; empty where it does not.

    Attributes:
        decode: rows of a step of decodes.
        mixed: tokens of any other.
        samples: rows that draw a token.
    """

    decode: tuple[int, ...] = ()
    mixed: tuple[int, ...] = ()
    samples: tuple[int, ...] = ()


class Measured(NamedTuple):
    """What a calibration measured, of which model, its size, and where."""

    model: str
    num_parameters: int
    buckets: Buckets
    provenance: Provenance
    points: list[Point]


LARGEST = 10**15
"""Of any size, and ns of any step."""

_COLUMNS = ("kind", *StepShape._fields, "device_ns", "host_ns", "times")


def write_points(path: Path, measured: Measured) -> None:
    """Write CSV: a comment with model, buckets and provenance, then a line a point."""
    head = {
        "model": measured.model,
        "num_parameters": measured.num_parameters,
        "buckets": measured.buckets._asdict(),
        "provenance": measured.provenance,
    }
    with replacing(path) as staged, staged.open("w", newline="", encoding="utf-8") as file:
        file.write(f"# {json.dumps(head)}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for point in measured.points:
            writer.writerow((point.kind, *point.shape, point.device_ns, point.host_ns, point.times))


def read_points(path: Path) -> Measured:
    """What `write_points` wrote.

    Raises:
        ConfigError: no such file, or something else in it.
    """
    line = 1
    try:
        with path.open(newline="", encoding="utf-8") as file:
            head = json.loads(file.readline().removeprefix("#"))
            measured = Measured(
                _text("model", head["model"]),
                check_integer("num_parameters", head["num_parameters"], high=LARGEST),
                Buckets(**{name: _ascending(name, sizes) for name, sizes in head["buckets"].items()}),
                {_text("provenance", name): _text(name, value) for name, value in head["provenance"].items()},
                [],
            )
            rows = csv.DictReader(file)
            for row in rows:
                line = 1 + rows.line_num
                measured.points.append(_point(row))
            return measured
    except OSError as error:
        raise ConfigError(f"calibrate.from_points={str(path)!r}: {error.strerror}; name a file of points") from error
    except (ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        reason = f" ({error})" if isinstance(error, ConfigError) else ""
        raise ConfigError(
            f"calibrate.from_points={str(path)!r}, line {line}: no points of kvsim calibrate{reason}; name another file"
        ) from error


def _text(name: str, value: object) -> str:
    """On one line, as it stands in the comments of a profile."""
    if not isinstance(value, str) or not value.isprintable():
        raise ConfigError(f"{name}={shown(value)}: must be text on one line")
    return value


def _ascending(name: str, sizes: Sequence[object]) -> tuple[int, ...]:
    whole = [check_integer(f"buckets.{name}", size) for size in sizes]
    if whole != sorted(set(whole)):
        raise ConfigError(f"buckets.{name}={shown(sizes)}: must ascend")
    return tuple(whole)


def _point(row: Mapping[str, str]) -> Point:
    def number(name: str, low: int) -> int:
        return check_integer(name, int(row[name]), low, LARGEST)

    least = dict.fromkeys(StepShape._fields, 0) | {"rows": 1, "tokens": 1}
    shape = StepShape(*(number(name, low) for name, low in least.items()))
    return Point(_text("kind", row["kind"]), shape, number("device_ns", 1), number("host_ns", 0), number("times", 1))


def kinds(points: Sequence[Point]) -> list[str]:
    """Kinds in order of appearance."""
    return list(dict.fromkeys(point.kind for point in points))
