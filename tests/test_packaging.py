"""What is installed: every package, the configuration and the length models as data, nothing at the top level."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path

ROOT = Path(__file__).parents[1]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def test_every_package_is_listed() -> None:
    files = (path for package in ("kvsim", "gpu_backend") for path in (ROOT / package).rglob("*.py"))
    found = {".".join(path.parent.relative_to(ROOT).parts) for path in files}
    assert set(SETUPTOOLS["packages"]) == found | {"kvsim.conf", "kvsim.traces"}


def test_data_folders_are_mapped_under_kvsim() -> None:
    assert SETUPTOOLS["package-dir"] == {"kvsim.conf": "conf", "kvsim.traces": "traces"}
    assert (resources.files("kvsim.conf") / "config.yaml").is_file()
    assert (resources.files("kvsim.traces") / "sharegpt.json").is_file()


def test_every_data_file_matches_a_pattern() -> None:
    for package, folder in SETUPTOOLS["package-dir"].items():
        packed = {path for pattern in SETUPTOOLS["package-data"][package] for path in (ROOT / folder).glob(pattern)}
        data = {path for path in (ROOT / folder).rglob("*") if path.suffix in (".yaml", ".json", ".csv")}
        assert data == packed
