"""The run folder: complete or absent, the same bytes for the same rows, NaN nowhere."""

from __future__ import annotations

import gzip
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import kvsim.tables
from kvsim.environment import environment
from kvsim.errors import ConfigError
from kvsim.results import BLOCK_COLUMNS, FolderInUseError, RunFolder, to_json, write_json

SCHEMA: dict[str, kvsim.tables.Kind] = {"step": "int64", "start_s": "float64", "state": "string"}
ROWS = 70_000


def rows(count: int = ROWS) -> dict[str, object]:
    step = np.arange(count, dtype=np.int64)
    return {"step": step, "start_s": step / 7, "state": ["completed"] * count}


def write_run(path: Path, chunk: int = ROWS) -> None:
    columns = rows()
    with RunFolder(path) as folder:
        steps = folder.parquet("steps.parquet", SCHEMA)
        plans = folder.plans()
        for at in range(0, ROWS, chunk):
            steps.write({name: column[at : at + chunk] for name, column in columns.items()})  # type: ignore[index]
        for step in range(50):
            plans.write(step, step * 10**8, np.arange(3) + step, np.array([512, 1, 1]), [], [step])
        folder.write_summary({"completed": 3, "mean_ttft_ms": 1.5})
        folder.write_env({"command": ["kvsim"]})


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(path.iterdir()) if file.name != "status.json"}


def test_files_read_back(tmp_path: Path) -> None:
    write_run(tmp_path / "a" / "run")
    folder = tmp_path / "a" / "run"
    names = ["env.json", "plans.jsonl.gz", "status.json", "steps.parquet", "summary.json"]
    assert sorted(file.name for file in folder.iterdir()) == names
    table = pq.read_table(folder / "steps.parquet").to_pydict()
    assert table == {name: list(column) for name, column in rows().items()}  # type: ignore[call-overload]
    assert json.loads((folder / "summary.json").read_text()) == [{"completed": 3, "mean_ttft_ms": 1.5}]
    status = json.loads((folder / "status.json").read_text())
    assert status.keys() == {"state", "wall_s", "cpu_s", "error"}
    assert (status["state"], status["error"]) == ("completed", None)
    assert min(status["wall_s"], status["cpu_s"]) >= 0
    lines = gzip.decompress((folder / "plans.jsonl.gz").read_bytes()).splitlines()
    assert len(lines) == 50
    assert json.loads(lines[2]) == {
        "step": 2,
        "start_s": 0.2,
        "scheduled": [[2, 512], [3, 1], [4, 1]],
        "preempted": [],
        "finished": [2],
    }


def test_same_rows_give_the_same_bytes_however_they_are_cut(tmp_path: Path) -> None:
    for number, chunk in enumerate((ROWS, 9_999, 32_768)):
        write_run(tmp_path / str(number), chunk)
    assert contents(tmp_path / "0") == contents(tmp_path / "1") == contents(tmp_path / "2")


def test_gzip_header_holds_neither_time_nor_name(tmp_path: Path) -> None:
    write_run(tmp_path)
    header = (tmp_path / "plans.jsonl.gz").read_bytes()[:10]
    assert header[3] == 0, "no name, no comment"
    assert header[4:8] == bytes(4), "no time"


@settings(deadline=None, max_examples=40)
@example([(1.0, "ends in NUL\0"), (math.inf, None)])
@given(st.lists(st.tuples(st.floats() | st.none(), st.text(max_size=5) | st.none()), max_size=40))
def test_values_survive_and_nan_becomes_null(
    tmp_path_factory: pytest.TempPathFactory, cells: list[tuple[float, str]]
) -> None:
    path = tmp_path_factory.mktemp("run")
    numbers = np.array([math.nan if number is None else number for number, _ in cells], dtype=np.float64)
    with RunFolder(path) as folder:
        stream = folder.parquet("requests.parquet", {"finished_s": "float64", "reason": "string"})
        stream.write({"finished_s": numbers, "reason": [text for _, text in cells]})
    table = pq.read_table(path / "requests.parquet").to_pydict()
    assert table["finished_s"] == [None if math.isnan(number) else number for number in numbers]
    assert table["reason"] == [text for _, text in cells]


def test_a_stream_keeps_no_reference_to_what_it_is_given(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as folder:
        stream = folder.parquet("blocks.parquet", BLOCK_COLUMNS)
        block = np.array([1, 2])
        stream.write({"block": block, "start_s": block / 1, "end_s": block / 1, "owner": block})
        block[:] = 9
    assert pq.read_table(tmp_path / "blocks.parquet").to_pydict()["owner"] == [1, 2]


def test_a_table_without_rows_has_its_columns(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as folder:
        folder.parquet("blocks.parquet", BLOCK_COLUMNS)
    table = pq.read_table(tmp_path / "blocks.parquet")
    assert (table.num_rows, table.column_names) == (0, list(BLOCK_COLUMNS))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"state": ["completed"]}, ValueError),
        ({"extra": np.arange(4)}, ValueError),
        ({"step": np.arange(4) / 2}, TypeError),
    ],
)
def test_columns_that_do_not_fit_the_schema_are_refused(
    tmp_path: Path, change: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error), RunFolder(tmp_path) as folder:
        folder.parquet("steps.parquet", SCHEMA).write({**rows(4), **change})  # type: ignore[dict-item]


def fail(path: Path, error: BaseException) -> None:
    with RunFolder(path) as folder:
        folder.parquet("steps.parquet", SCHEMA).write(rows())  # type: ignore[arg-type]
        folder.plans().write(0, 0, np.arange(2), np.arange(2), [], [])
        folder.write_summary({"completed": 1})
        raise error


@pytest.mark.parametrize("error", [RuntimeError("INV-blocks: step 3"), KeyboardInterrupt()])
def test_a_failed_run_leaves_only_its_status(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)):
        fail(tmp_path, error)
    assert [file.name for file in tmp_path.iterdir()] == ["status.json"]
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["state"] == "failed"
    assert status["error"] == f"{type(error).__name__}: {error}"


def test_a_stream_that_cannot_be_closed_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kvsim.tables.ParquetStream, "_flush", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_run(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["status.json"]
    assert json.loads((tmp_path / "status.json").read_text())["state"] == "failed"


def test_status_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    replace = Path.replace

    def watch(self: Path, target: Path) -> Path:
        seen.append(target.name)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watch)
    write_run(tmp_path)
    assert (seen[-1], len(seen)) == ("status.json", 5)


def test_a_second_run_replaces_the_first_and_leaves_other_files(tmp_path: Path) -> None:
    write_run(tmp_path)
    (tmp_path / ".hydra").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".memory.parquet.tmp").write_text("of a killed run")
    with RunFolder(tmp_path) as folder:
        assert sorted(file.name for file in tmp_path.iterdir()) == [".hydra", "notes.txt"], "not taken for finished"
        folder.write_summary({"completed": 4})
    assert sorted(file.name for file in tmp_path.iterdir()) == [".hydra", "notes.txt", "status.json", "summary.json"]


def test_nothing_shows_before_the_end(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as folder:
        folder.parquet("steps.parquet", SCHEMA).close()
        folder.write_summary({})
        assert all(file.name.startswith(".") and file.suffix == ".tmp" for file in tmp_path.iterdir())


def test_names_are_those_of_a_run_and_written_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"other\.parquet is no file of a run"), RunFolder(tmp_path) as folder:
        folder.parquet("other.parquet", SCHEMA)
    with RunFolder(tmp_path) as folder:
        folder.plans()
        with pytest.raises(ValueError, match="written twice"):
            folder.plans()


def test_a_folder_that_cannot_be_written_is_a_wrong_configuration(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot write to the run folder .*file.*: .*; choose another"):
        RunFolder(tmp_path / "file" / "run").__enter__()


def test_two_runs_cannot_write_to_one_folder_at_once(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as first:
        first.write_summary({"completed": 1})
        with pytest.raises(FolderInUseError, match=r"in use by another kvsim.*choose another"):
            RunFolder(tmp_path).__enter__()
    assert json.loads((tmp_path / "summary.json").read_text()) == [{"completed": 1}]
    with pytest.raises(RuntimeError):
        fail(tmp_path, RuntimeError("no"))
    write_run(tmp_path)  # free again, however a run ended


def test_a_killed_run_frees_its_folder(tmp_path: Path) -> None:
    program = f"""
import os, signal
from kvsim.results import RunFolder
with RunFolder({str(tmp_path)!r}):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[1]).returncode == -9
    write_run(tmp_path)


numbers = st.floats() | st.integers() | st.booleans() | st.none() | st.floats(width=32).map(np.float32)


@given(st.dictionaries(st.text(), numbers))
def test_json_never_holds_nan(metrics: dict[str, object]) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    (read,) = json.loads(to_json([metrics]), parse_constant=refuse)
    finite = {key: None if value is None or not math.isfinite(value) else value for key, value in metrics.items()}  # type: ignore[arg-type]
    assert read == finite


def test_numpy_scalars_become_plain_numbers() -> None:
    metrics = {"a": np.int64(3), "b": np.float64("inf"), "c": np.bool_(True), "d": (np.float64(0.1),)}
    assert json.loads(to_json(metrics)) == {"a": 3, "b": None, "c": True, "d": [0.1]}


def test_write_json_leaves_no_half_file(tmp_path: Path) -> None:
    write_json(tmp_path / "index.json", {"runs": 1})
    with pytest.raises(TypeError):
        write_json(tmp_path / "index.json", {"runs": object()})
    assert json.loads((tmp_path / "index.json").read_text()) == {"runs": 1}
    assert len(list(tmp_path.iterdir())) == 1


def test_environment_names_versions_command_and_engine() -> None:
    config = {"seed": 1, "engine": {"drain": True}}
    env = environment(config, ["kvsim", "run"])
    assert (env["command"], env["engine"]) == (["kvsim", "run"], {"drain": True})
    versions = env["versions"]
    assert isinstance(versions, dict)
    assert (versions["kvsim"], versions["numpy"]) == (kvsim.__version__, np.__version__)
    assert env["config_digest"] == environment({"engine": {"drain": True}, "seed": 1}, [])["config_digest"]
    assert env["config_digest"] != environment({**config, "seed": 2}, [])["config_digest"]


@pytest.mark.parametrize(
    ("key", "file"),
    [
        ("workload.path", "in"),
        ("model.config", "in/config.json"),
        ("executor.path", "in/steps.parquet"),
        ("executor.weights", "in"),
    ],
)
def test_content_of_input_files_counts_and_not_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, file: str
) -> None:
    def digests(path: str) -> tuple[object, object]:
        group, name = key.split(".")
        env = environment({group: {name: path}, "seed": 0}, [])
        assert isinstance(env["inputs"], dict) and list(env["inputs"]) == [key]
        return env["config_digest"], env["keys_digest"]

    for place, content in (("a", "one"), ("b", "one"), ("c", "two")):
        (tmp_path / place / file).parent.mkdir(parents=True)
        (tmp_path / place / file).write_text(content)
    found = []
    for place in "abc":
        monkeypatch.chdir(tmp_path / place)
        found.append(digests("in"))
    assert found[0] == found[1] == (digests(str(tmp_path / "a/in"))[0], found[1][1])
    assert found[0][0] != found[2][0] and found[0][1] == found[2][1]
    monkeypatch.chdir(tmp_path / "a")
    (tmp_path / "a" / file).write_text("one more")
    assert digests("in")[0] != found[0][0]


def test_every_file_of_a_folder_of_weights_counts(tmp_path: Path) -> None:
    def digest() -> object:
        return environment({"executor": {"weights": str(tmp_path)}}, [])["config_digest"]

    for name in ("config.json", "a.safetensors", "b.safetensors", "README.md"):
        (tmp_path / name).write_text(name)
    found = [digest()]
    for name in ("config.json", "a.safetensors", "b.safetensors"):
        (tmp_path / name).write_text(f"other {name}")
        found.append(digest())
    assert len(set(found)) == 4
    (tmp_path / "README.md").write_text("of no concern")
    assert digest() == found[-1]


def test_environment_has_what_measurements_depend_on() -> None:
    assert environment({}, [], {"device": "NVIDIA H200"})["executor"] == {"device": "NVIDIA H200"}
    assert environment({}, [])["executor"] == {}


def test_a_pipe_is_no_input_file_to_read_twice(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert environment({"workload": {"path": str(tmp_path / "pipe")}}, [])["inputs"] == {}


def test_writing_a_run_does_not_import_pandas(tmp_path: Path) -> None:
    program = f"""
import sys, numpy as np
from kvsim.results import RunFolder
assert "pyarrow" not in sys.modules
with RunFolder({str(tmp_path)!r}) as folder:
    folder.parquet("requests.parquet", {{"a": "int64", "b": "float64", "c": "string"}}).write(
        {{"a": np.arange(2), "b": np.array([1, np.nan]), "c": ["x", None]}})
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[1])
