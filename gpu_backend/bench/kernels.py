"""`kvsim bench kernels`: attention kernels on the same inputs, in the shapes that serving meets."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from gpu_backend.attention.reference import Reference
from gpu_backend.bench import paging
from gpu_backend.bench.contenders import Contender, contenders
from gpu_backend.bench.inputs import DECODE, PREFILL, SERVING, TINY, Inputs, Shape, make_inputs
from gpu_backend.bench.output import Record, check_output, measured_with, printed, write
from gpu_backend.bench.timing import copy_bandwidth, median_us
from gpu_backend.device import environment, open_device
from kvsim.cli.parser import Parser, one_of, whole
from kvsim.errors import ConfigError

MAX_REPEATS = 10_000
PHASES = ("decode", "serving", "prefill")
COLUMNS = (
    *Shape._fields,
    "peer",
    "median_us",
    "kv_read_TBps",
    "TFLOPs",
    "rel_error",
    "backend",
    "copy_share",
    "speedup",
    "error",
)


def main(arguments: list[str]) -> int:
    """Measure, print a table, write a CSV file and what it depends on beside it.

    Raises:
        ConfigError: wrong usage, or no CUDA device.
    """
    options = _parser().read(arguments)
    output = options.output and check_output(Path(options.output))
    on_cpu = options.device == "cpu"
    if not on_cpu and not torch.cuda.is_available():
        raise ConfigError(
            f"kvsim bench kernels needs a CUDA device, PyTorch {torch.__version__} sees none; "
            "--device cpu checks the kernels at tiny shapes"
        )
    device, dtype = open_device(options.device, "float32" if on_cpu else "bfloat16")
    copy_TBps = copy_bandwidth(device)
    print(f"copy bandwidth {copy_TBps:.3g} TB/s, {environment(device)['device']}")
    columns: Sequence[str]
    if options.sweep:
        grid = paging.SMOKE if on_cpu else paging.QUICK if options.quick else paging.FULL
        columns = paging.COLUMNS
        records = paging.sweep(grid, device=device, dtype=dtype, repeats=options.repeats)
    else:
        shapes = select(options.rows, TINY if on_cpu else DECODE + SERVING + PREFILL, quick=options.quick)
        peers = options.peers == "auto"
        flashinfer = peers and not on_cpu and importlib.util.find_spec("flashinfer") is not None
        rivals = {phase: contenders(phase, sdpa=peers, flashinfer=flashinfer) for phase in PHASES}
        columns = COLUMNS
        records = compare([(shape, rivals[shape.phase]) for shape in shapes], device, dtype, options.repeats, copy_TBps)
    done = list(printed(columns, records))
    if output:
        facts = {"command": ["kvsim", "bench", "kernels", *arguments], "copy_TBps": copy_TBps, **measured_with(device)}
        write(output, columns, done, facts)
    return 0


def _parser() -> Parser:
    parser = Parser("kvsim bench kernels", "Attention kernels, ours and installed peers, on the same inputs.")
    parser.add_argument("--rows", type=one_of((*PHASES, "all")), default="all", help="which shapes")
    parser.add_argument("--peers", type=one_of(("none", "auto")), default="auto", help="others' kernels, if installed")
    parser.add_argument("--sweep", type=one_of(("paging",)), help="decode with block tables and without, by context")
    rounds = whole(1, MAX_REPEATS)
    parser.add_argument("--repeats", type=rounds, default=10, help="rounds, of which the median counts (10)")
    parser.add_argument("--quick", action="store_true", help="the first shape of each phase; a coarse sweep")
    parser.add_argument("--device", type=one_of(("cuda", "cpu")), default="cuda", help="cpu: tiny shapes, no speed")
    parser.add_argument("--output", help="CSV file to write")
    return parser


def select(rows: str, shapes: Sequence[Shape], *, quick: bool) -> list[Shape]:
    """Those of these rows; with `quick` the first of each phase."""
    phases = PHASES if rows == "all" else (rows,)
    groups = [[shape for shape in shapes if shape.phase == phase] for phase in phases]
    return [shape for group in groups for shape in (group[:1] if quick else group)]


def compare(
    races: Sequence[tuple[Shape, Sequence[Contender]]],
    device: torch.device,
    dtype: torch.dtype,
    repeats: int,
    copy_TBps: float,
) -> Iterator[Record]:
    """A record a shape and kernel; one that fails says why in its column ``error``.

    Ours has a ``speedup``: the time of the fastest peer at the shape divided by its own.
    """
    for shape, rivals in races:
        inputs = None
        records: list[dict[str, Any]] = []
        for contender in rivals:
            record = {**shape._asdict(), "peer": contender.peer, "backend": contender.backend}
            try:
                inputs = inputs or make_inputs(shape, device=device, dtype=dtype)
                record |= measure(contender, inputs, repeats, copy_TBps)
            except Exception as error:
                record["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
            records.append(record)
        peers_us = [record["median_us"] for record in records if record["peer"] and "median_us" in record]
        for record in records:
            if peers_us and not record["peer"] and "median_us" in record:
                record["speedup"] = round(min(peers_us) / record["median_us"], 3)
            yield {column: record.get(column, "") for column in COLUMNS}


def measure(contender: Contender, inputs: Inputs, repeats: int, copy_TBps: float) -> dict[str, object]:
    """Time, rate and error of one kernel at one shape."""
    launches = contender.launches(inputs)
    batch = (inputs.consecutive if contender.contiguous else inputs.scattered)[0]
    q_THD = inputs.q_THD.float()
    reference = Reference().forward(q_THD, inputs.cache, batch, inputs.shape.block_size, inputs.scale)
    difference = launches[0]().reshape(reference.shape).float() - reference
    error = float(difference.norm() / reference.norm())
    del reference, difference
    time_us = median_us(launches, device=q_THD.device, repeats=repeats)
    figures: dict[str, object] = {"median_us": round(time_us, 1), "rel_error": float(f"{error:.3g}")}
    if inputs.shape.phase == "prefill":
        return figures | {"TFLOPs": round(inputs.flops / time_us / 1e6, 1)}
    rate = inputs.kv_bytes / time_us / 1e6
    return figures | {"kv_read_TBps": round(rate, 3), "copy_share": round(rate / copy_TBps, 3)}
