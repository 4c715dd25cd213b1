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
from kvsim.workload.formats import writer
from kvsim.workload.formats.source import TraceSource

def peak_kib():  # unlike ru_maxrss, not that of the parent
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])

writer.ROW_GROUP = 1000
peaks = []
for path in sys.argv[1:]:
    source = TraceSource(Path(path))
    count = writer.write_table(Path(path).with_suffix(".parquet"), source, source.columns)
    peaks.append(peak_kib())
print(count, peaks[1] - peaks[0])
"""
LIMIT_KIB = 24 * 1024
TIMES = 40


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux to tell a process's peak")
@pytest.mark.parametrize(
    ("name", "start", "between", "end"), [("sharegpt", "[", ",", "]"), ("mooncake", "", "\n", "\n")]
)
def test_memory_does_not_grow_with_the_file(tmp_path: Path, name: str, start: str, between: str, end: str) -> None:
    made = MAKERS[name]()
    content = made.content.decode().strip("[]\n") if name == "sharegpt" else made.content.decode()
    small, large = tmp_path / "small", tmp_path / "large"
    for path, times in ((small, 10), (large, TIMES)):
        path.write_text(start + between.join([content] * times) + end)
    assert large.stat().st_size > 14 << 20
    command = [sys.executable, "-c", PROGRAM, str(small), str(large)]
    count, grown_kib = map(int, subprocess.run(command, capture_output=True, check=True).stdout.split())
    assert count == len(made.rows) * TIMES
    assert grown_kib < LIMIT_KIB
