"""Length models against the figures of their sources."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from kvsim.errors import ConfigError
from kvsim.plan import IntArray
from kvsim.streams import stream
from kvsim.workload.lengths import BinnedLengths, SyntheticLengths, embedded_models, read_model

MODELS = ("alpaca", "sharegpt", "sharegpt_llama")
PERCENTILES = (10, 50, 90, 99)
DERIVE = Path(__file__).parents[2] / "traces" / "derive_length_models.py"


@pytest.fixture(scope="module")
def derive() -> ModuleType:
    """The script that makes the models."""
    spec = importlib.util.spec_from_file_location("derive_length_models", DERIVE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def draw(name: str, count: int = 200_000, seed: int = 0) -> tuple[IntArray, IntArray]:
    return BinnedLengths(name).draw(stream(seed, "lengths"), count)


def resident(inputs: IntArray, outputs: IntArray) -> float:
    """Time-averaged tokens of a decoding sequence."""
    return float((outputs * inputs + outputs * (outputs - 1) / 2).sum() / outputs.sum())


def source_rows(derive: ModuleType, shared_trace: Callable[[str], Path], model: str) -> tuple[IntArray, IntArray]:
    name = next(name for name, source in derive.SOURCES.items() if source.model == model)
    inputs, outputs = derive.read_rows(shared_trace(name), derive.SOURCES[name])
    return inputs, outputs


def test_the_embedded_models() -> None:
    assert embedded_models() == list(MODELS)


@pytest.mark.parametrize("model", MODELS)
def test_draws_have_the_figures_of_the_model_file(model: str) -> None:
    figures = read_model(model)["figures"]
    drawn = dict(zip(("input", "output"), draw(model), strict=True))
    for kind, values in drawn.items():
        assert values.mean() == pytest.approx(figures[f"{kind}_mean"], rel=0.02)
        expected = [figures[f"{kind}_percentiles"][str(p)] for p in PERCENTILES]
        assert np.percentile(values, PERCENTILES) == pytest.approx(expected, rel=0.05)
    assert resident(drawn["input"], drawn["output"]) == pytest.approx(figures["resident_tokens_mean"], rel=0.02)


@pytest.mark.parametrize("model", MODELS)
def test_draws_have_the_figures_of_the_source(
    derive: ModuleType, shared_trace: Callable[[str], Path], model: str
) -> None:
    rows = source_rows(derive, shared_trace, model)
    drawn = draw(model, seed=1)
    for ours, theirs in zip(drawn, rows, strict=True):
        assert ours.mean() == pytest.approx(theirs.mean(), rel=0.02)
        assert np.percentile(ours, PERCENTILES) == pytest.approx(np.percentile(theirs, PERCENTILES), rel=0.05)
    assert resident(*drawn) == pytest.approx(resident(*rows), rel=0.02)
    assert np.corrcoef(*drawn)[0, 1] == pytest.approx(np.corrcoef(*rows)[0, 1], abs=0.02)


@pytest.mark.parametrize("model", MODELS)
def test_model_file_is_what_the_script_derives(
    derive: ModuleType, shared_trace: Callable[[str], Path], model: str
) -> None:
    name = next(name for name, source in derive.SOURCES.items() if source.model == model)
    assert derive.to_text(derive.derive(shared_trace(name))) == (DERIVE.parent / f"{model}.json").read_text("utf-8")


def test_rows_by_the_rule() -> None:
    rows = {name: (read_model(name)["rows_by_rule"], read_model(name)["rows"]) for name in MODELS}
    assert rows == {"alpaca": (6047, 6045), "sharegpt": (972, 971), "sharegpt_llama": (55857, 55857)}


@pytest.mark.parametrize("model", MODELS)
def test_model_file_is_sound(model: str) -> None:
    data = read_model(model)
    assert all(data[key] for key in ("origin", "licence", "rule", "source_sha256"))
    edges, bins = np.array(data["edges"]), np.array(data["bins"])
    assert (edges[0], edges[-1]) == (1, data["max_total"] + 1)
    assert (np.diff(edges) > 0).all() and (np.diff(edges[:23]) == 1).all()
    assert bins[:, 2].sum() == data["rows"] and (bins[:, 2] > 0).all()
    assert len(np.unique(bins[:, :2], axis=0)) == len(bins) < data["rows"]
    for kind, axis in (("input", 0), ("output", 1)):
        means = np.array(data[f"{kind}_means"])
        assert ((edges[:-1] <= means) & (means < edges[1:])).all()
        assert (bins[:, 2] * means[bins[:, axis]]).sum() / data["rows"] == pytest.approx(
            data["figures"][f"{kind}_mean"], rel=1e-4
        )


@pytest.mark.parametrize("model", MODELS)
def test_every_pair_fits_the_models_limit(model: str) -> None:
    inputs, outputs = draw(model)
    assert inputs.min() >= 1 and outputs.min() >= 1
    assert (inputs + outputs).max() <= 2048
    assert inputs.dtype == outputs.dtype == np.int64


def test_small_lengths_are_exact() -> None:
    data = read_model("alpaca")
    inputs, _ = draw("alpaca")
    for length in (5, 9, 15):
        share = sum(count for i, _, count in data["bins"] if data["edges"][i] == length) / data["rows"]
        assert (inputs == length).mean() == pytest.approx(share, rel=0.05, abs=1e-3)


def test_pairs_stay_together() -> None:
    data = read_model("sharegpt")
    pairs = {(i, o) for i, o, _ in data["bins"]}
    inputs, outputs = draw("sharegpt", 20_000)
    drawn = zip(*(np.searchsorted(data["edges"], v, side="right") - 1 for v in (inputs, outputs)), strict=True)
    outside = [pair for pair in drawn if pair not in pairs]
    assert len(outside) / len(inputs) < 0.01  # only clipping to the limit moves a pair


def test_draws_are_reproducible_and_depend_on_the_seed() -> None:
    assert np.array_equal(draw("alpaca", 100), draw("alpaca", 100))
    assert not np.array_equal(draw("alpaca", 100), draw("alpaca", 100, seed=1))


def test_unknown_model_lists_the_others() -> None:
    with pytest.raises(ConfigError, match="'sharegtp': must be one of alpaca, sharegpt, sharegpt_llama"):
        BinnedLengths("sharegtp")


@pytest.mark.parametrize(("distribution", "cv"), [("fixed", 0.0), ("uniform", 0.577), ("lognormal", 1.5)])
def test_synthetic_lengths_have_their_means_and_spread(distribution: str, cv: float) -> None:
    drawn = SyntheticLengths(distribution, 500, 200, cv=1.5).draw(stream(0, "lengths"), 400_000)
    for values, mean in zip(drawn, (500, 200), strict=True):
        assert values.mean() == pytest.approx(mean, rel=0.01)
        assert values.std() / mean == pytest.approx(cv, rel=0.05, abs=1e-9)
        assert values.min() >= 1


def test_uniform_lengths_fill_their_range() -> None:
    inputs, outputs = SyntheticLengths("uniform", 3, 1).draw(stream(0, "lengths"), 10_000)
    assert np.unique(inputs).tolist() == [1, 2, 3, 4, 5]
    assert np.unique(outputs).tolist() == [1]


@pytest.mark.parametrize("mean", [0, -1, float("nan"), float("inf"), "5", True, None, 1e9])
def test_bad_synthetic_mean_is_refused(mean: object) -> None:
    with pytest.raises(ConfigError, match="workload.lengths.output_mean="):
        SyntheticLengths("fixed", 5, mean)  # type: ignore[arg-type]


def test_unknown_distribution_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be one of fixed, uniform, lognormal"):
        SyntheticLengths("normal", 5, 5)


def test_the_script_refuses_an_unknown_file(derive: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="unknown source"):
        derive.derive(tmp_path / "other.csv")


def test_models_are_json_with_a_bin_a_line() -> None:
    text = (DERIVE.parent / "sharegpt.json").read_text("utf-8")
    assert len(text.splitlines()) > len(json.loads(text)["bins"])
