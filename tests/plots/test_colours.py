"""Colours that everybody can tell apart."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from kvsim.metrics import MEMORY_CLASSES
from kvsim.plots.colours import MEMORY, SHADES, SYSTEMS, dark_colours, styles, variant_style

PAGES = {"light": "#ffffff", "dark": "#14171c"}
ALREADY_BUILT = list(SYSTEMS)[:7]
VISION = {  # Machado, Oliveira and Fernandes 2009, severity 1
    "usual": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour: str) -> NDArray[np.float64]:
    part = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(XYZ[1] @ linear(colour)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: NDArray[np.float64]) -> NDArray[np.float64]:
    white = XYZ @ np.ones(3)
    x, y, z = np.cbrt(XYZ @ rgb.clip(0.001, 1) / white)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("page", PAGES)
def test_systems_stand_out_from_the_page(page: str) -> None:
    for name, style in SYSTEMS.items():
        assert contrast(getattr(style, page), PAGES[page]) >= 3, name


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("vision", VISION)
def test_systems_differ_whatever_the_colour_vision(page: str, vision: str) -> None:
    seen = {name: lab(np.array(VISION[vision]) @ linear(getattr(SYSTEMS[name], page))) for name in ALREADY_BUILT}
    for one, other in itertools.combinations(ALREADY_BUILT, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > 12, (one, other)


def test_markers_differ_too() -> None:
    assert len({style.symbol for style in SYSTEMS.values()}) == len(SYSTEMS)
    assert len({style.marker for style in SYSTEMS.values()}) == len(SYSTEMS)


def test_a_preset_looks_the_same_in_any_company() -> None:
    for company in (["vllm_v1"], ["vllm_v1", "orca_max", "mine"], list(SYSTEMS)):
        assert styles(company)["vllm_v1"] == SYSTEMS["vllm_v1"]


def test_other_systems_take_what_is_free() -> None:
    look = styles(["mine", "orca_max", "his"])
    assert list(look) == ["orca_max", "his", "mine"]
    assert len(set(look.values())) == 3
    assert len(styles([*SYSTEMS, *(f"s{number}" for number in range(30))])) == len(SYSTEMS) + 30


def test_every_memory_class_has_a_colour() -> None:
    assert set(MEMORY_CLASSES) | {"external"} == set(MEMORY)


def test_light_colours_are_keys_to_the_dark_ones() -> None:
    assert len(dark_colours()) == len(SHADES) * len(SYSTEMS) + len(MEMORY)


def test_variants_of_a_system_differ_and_stand_out() -> None:
    for style in SYSTEMS.values():
        variants = [variant_style(style, number) for number in range(12)]
        assert variants[0] == style
        assert len({(one.light, one.marker) for one in variants}) == len({one.symbol for one in variants}) == 12
        assert all(contrast(getattr(one, page), PAGES[page]) >= 3 for one in variants for page in PAGES)
        assert all(dark_colours()[one.light] == one.dark for one in variants)
