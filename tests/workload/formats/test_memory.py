"""A file is read in bounded memory, however long it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.workload.formats.files import MAKERS

PROGRAM = """
import sys
from pathlib import Path
import pyarrow.parquet
from kvsim.workload.formats.source import TraceSource
from kvsim.workload.formats.writer import write_table
def peak_kib():  # unlike ru_maxrss, not that of the parent
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
before = peak_kib()
source = TraceSource(Path(sys.argv[1]))
count = write_table(Path(sys.argv[2]), source, source.columns)
print(count, peak_kib() - before)
"""
LIMIT_KIB = 60 * 1024
TIMES = 40


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux to tell a process's peak")
@pytest.mark.parametrize(
    ("name", "start", "between", "end"), [("sharegpt", "[", ",", "]"), ("mooncake", "", "\n", "\n")]
)
def test_memory_does_not_grow_with_the_file(tmp_path: Path, name: str, start: str, between: str, end: str) -> None:
    made = MAKERS[name]()
    content = made.content.decode().strip("[]\n")
    path, out = tmp_path / "large", tmp_path / "out.parquet"
    path.write_text(start + between.join([content] * TIMES) + end)
    assert path.stat().st_size > 14 << 20
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), str(out)], capture_output=True, text=True, check=True
    )
    count, grown_kib = map(int, done.stdout.split())
    assert count == len(made.rows) * TIMES
    assert grown_kib < LIMIT_KIB
