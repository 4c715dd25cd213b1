"""The profile: a file for conf/cost with plain numbers, and in its head where they come from and how good they are."""

from __future__ import annotations

import platform
import subprocess
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import kvsim
from kvsim.atomic import replacing
from kvsim.calibrate.fit import Fit
from kvsim.calibrate.points import Measured, Point, Provenance, kinds
from kvsim.cost.fitted import Curve
from kvsim.protocols import Executor

WIDTH = 118


def provenance(executor: Executor, command: Sequence[str]) -> Provenance:
    """Where, when and how steps are being measured."""
    known: Mapping[str, str] = getattr(executor, "environment", {})
    return {
        "card": _card(),
        **{name: str(value) for name, value in known.items()},
        "versions": f"kvsim {kvsim.__version__}, python {platform.python_version()}",
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": " ".join(command),
    }


def _card() -> str:
    """Name and driver."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        lines = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return "none"
    return lines[0].replace(", ", ", driver ") if lines else "none"


def write_profile(path: Path, fit: Fit, measured: Measured) -> None:
    """Write the YAML file that ``cost=NAME`` reads."""
    with replacing(path) as staged:
        staged.write_text(profile_text(fit, measured), encoding="utf-8")


def profile_text(fit: Fit, measured: Measured) -> str:
    """The file's text: comments, then the constructor's arguments of `FittedCost`."""
    lines = [f"# Step times of {measured.model}, measured by kvsim calibrate.", "#"]
    lines += [f"#   {name}: {value}" for name, value in measured.provenance.items()]
    lines += ["#", "# Absolute relative error on steps left out of the fit (5 folds):"]
    lines += [
        f"#   {error.kind}: mean {error.mean:.2%}, p95 {error.p95:.2%}, bias {error.bias:+.2%}, {error.points} steps"
        for error in fit.errors
    ]
    lines += ["#", "# Measured from and to; outside, the curves go on in a straight line:"]
    lines += [f"#   {line}" for line in ranges(measured.points)]
    lines += ["_target_: kvsim.cost.fitted.FittedCost", "_partial_: true # the model is added when the run is built"]
    lines += [f"model_name: {measured.model}", f"num_parameters: {measured.num_parameters}"]
    for name, curve in fit.curves.items():
        lines += [f"{name}:", *_curve_lines(curve)]
    lines += ["rates:", "  _target_: kvsim.cost.fitted.Rates"]
    lines += [f"  {name}: {_number(value)}" for name, value in asdict(fit.rates).items()]
    return "\n".join(lines) + "\n"


def ranges(points: Sequence[Point]) -> list[str]:
    """Smallest and largest sizes of each kind."""
    lines = []
    for kind in kinds(points):
        shapes = [point.shape for point in points if point.kind == kind]
        rows = [shape.rows + shape.idle_rows for shape in shapes]
        tokens = [shape.all_tokens for shape in shapes]
        context = [shape.context_tokens + shape.keys for shape in shapes]
        spans = {"rows": rows, "tokens": tokens, "context tokens": context}
        lines.append(f"{kind}: " + ", ".join(f"{min(s):,} to {max(s):,} {name}" for name, s in spans.items()))
    return lines


def _curve_lines(curve: Curve) -> list[str]:
    return [
        "  _target_: kvsim.cost.fitted.Curve",
        *_list_lines("edges", [str(edge) for edge in curve.edges]),
        *_list_lines("values", [_number(value) for value in curve.values]),
        f"  padded: {str(curve.padded).lower()}",
        f"  beyond: {_number(curve.beyond)}",
    ]


def _list_lines(name: str, items: Sequence[str]) -> list[str]:
    text = f"  {name}: [{', '.join(items)}]"
    return textwrap.wrap(text, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def _number(value: float) -> str:
    """With a decimal point, which YAML 1.1 wants even before an exponent."""
    text = repr(float(value))
    mantissa, exponent, power = text.partition("e")
    return text if "." in mantissa else f"{mantissa}.0{exponent}{power}"
