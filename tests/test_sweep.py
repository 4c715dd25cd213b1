"""Points, their folders and the index of a sweep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kvsim
from kvsim.results import FolderInUseError, RunFolder
from kvsim.run import Label
from kvsim.sweep import MAX_NAME, Earlier, Point, SweepFolder


def point(digest: str = "d0", **swept: Label) -> Point:
    return Point((), swept, digest, "k0")


def finish(folder: Path, digest: str, keys_digest: str = "k0", version: str = kvsim.__version__) -> None:
    with RunFolder(folder) as run:
        run.write_env({"config_digest": digest, "keys_digest": keys_digest, "versions": {"kvsim": version}})
        run.write_summary({"completed": 3})


@pytest.mark.parametrize(
    ("swept", "name"),
    [
        ({"system": "orca_max", "rate": 1.5, "seed": 0}, "system-orca_max+rate-1.5+seed-0"),
        ({"kv.num_blocks": None, "engine.drain": True, "rate": 2.0}, "kv.num_blocks-null+engine.drain-true+rate-2"),
        ({}, "run"),
    ],
)
def test_name_is_readable(swept: dict[str, Label], name: str) -> None:
    assert point(**swept).folder == name


def test_odd_names_are_safe_short_and_distinct() -> None:
    odd = ["a/b", "a b", "a;b", "../x", "a+b", "ä" * 300, "b" * 300, "b" * 299 + "c", "a_b"]
    names = [point(path=value).folder for value in odd]
    assert len(set(names)) == len(odd)
    for name in names:
        assert len(name) <= MAX_NAME
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+")


def test_two_keys_cannot_make_one_name() -> None:
    assert point(a="1+b-2").folder != point(a=1, b=2).folder


def test_finished_means_completed_with_the_same_configuration_and_version(tmp_path: Path) -> None:
    same, moved, inputs, keys, old, failed, killed, none = (point(seed=seed) for seed in range(8))
    sweep = SweepFolder(tmp_path, [same, moved, inputs, keys, old, failed, killed, none])
    for each in (same, failed, killed):
        finish(tmp_path / each.folder, "d0")
    finish(tmp_path / moved.folder, "d0", "k1")
    finish(tmp_path / inputs.folder, "d1")
    finish(tmp_path / keys.folder, "d1", "k1")
    finish(tmp_path / old.folder, "d0", version="0.0.1")
    with pytest.raises(RuntimeError), RunFolder(tmp_path / failed.folder):
        raise RuntimeError("no")
    (tmp_path / killed.folder / "status.json").write_text("{")
    assert [sweep.earlier(each) for each in sweep.points] == [
        Earlier.SAME, Earlier.SAME, Earlier.OTHER_INPUTS, Earlier.OTHER_KEYS, Earlier.OTHER_VERSION,
        Earlier.NOTHING, Earlier.NOTHING, Earlier.NOTHING,
    ]  # fmt: skip
    assert sweep.summary(same) == {"completed": 3}


def test_index(tmp_path: Path) -> None:
    done, failed, killed = (point(f"d{seed}", seed=seed) for seed in range(3))
    sweep = SweepFolder(tmp_path / "new" / "one", [done, failed, killed])
    with sweep.lock():
        sweep.prepare(sweep.points)
        with pytest.raises(FolderInUseError):
            sweep.lock().__enter__()
    finish(sweep.path / done.folder, "d0")
    with pytest.raises(RuntimeError), RunFolder(sweep.path / failed.folder):
        raise RuntimeError("no")
    assert sweep.num_ended() == 2
    sweep.write_index()
    assert json.loads((sweep.path / "index.json").read_text()) == [
        {"folder": "seed-0", "swept": {"seed": 0}, "state": "completed", "error": None, "config_digest": "d0"},
        {
            "folder": "seed-1",
            "swept": {"seed": 1},
            "state": "failed",
            "error": "RuntimeError: no",
            "config_digest": "d1",
        },
        {"folder": "seed-2", "swept": {"seed": 2}, "state": "unfinished", "error": None, "config_digest": "d2"},
    ]


def test_prepare_forgets_what_will_run_again(tmp_path: Path) -> None:
    kept, again = point(seed=0), point(seed=1)
    sweep = SweepFolder(tmp_path, [kept, again])
    for each in sweep.points:
        finish(tmp_path / each.folder, "d0")
    sweep.write_index()
    sweep.prepare([again])
    assert [outcome.state for outcome in sweep.outcomes()] == ["completed", "unfinished"]
    assert not (tmp_path / "index.json").exists()
