"""`Point`: a step that was measured, and the file that keeps them, so that a fit can be repeated without a device."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kvsim.atomic import replacing
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
    try:
        with path.open(newline="", encoding="utf-8") as file:
            head = json.loads(file.readline().removeprefix("#"))
            points = [_point(row) for row in csv.DictReader(file)]
            buckets = Buckets(**{name: tuple(sizes) for name, sizes in head["buckets"].items()})
            provenance = dict(head["provenance"])
            return Measured(str(head["model"]), int(head["num_parameters"]), buckets, provenance, points)
    except OSError as error:
        raise ConfigError(f"calibrate.from_points={str(path)!r}: {error.strerror}; name a file of points") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"calibrate.from_points={str(path)!r}: no points of kvsim calibrate in it") from error


def _point(row: Mapping[str, str]) -> Point:
    shape = StepShape(*(int(row[name]) for name in StepShape._fields))
    return Point(row["kind"], shape, int(row["device_ns"]), int(row["host_ns"]), int(row["times"]))


def kinds(points: Sequence[Point]) -> list[str]:
    """Kinds in order of appearance."""
    return list(dict.fromkeys(point.kind for point in points))
