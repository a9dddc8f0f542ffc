import itertools

import numpy as np
import pytest

from sostenuto.report.palette import COLORS, variables

SCHEMES = ("light", "dark")
# Machado, Oliveira and Fernandes (2009): full protanopia, deuteranopia and tritanopia, on linear RGB.
VISION = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def linear(color: str) -> np.ndarray:
    channels = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    weights = np.array([0.2126, 0.7152, 0.0722])
    dark, light = sorted((float(weights @ linear(one)), float(weights @ linear(other))))
    return (light + 0.05) / (dark + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(rgb, 0, 1) / np.array([0.9505, 1.0, 1.089])
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def in_scheme(role: str, scheme: str) -> str:
    return getattr(COLORS[role], scheme)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("role", ["ink", "muted", "good", "caution", "bad", "series-1"])
def test_text_can_be_read(role: str, scheme: str) -> None:
    assert contrast(in_scheme(role, scheme), in_scheme("paper", scheme)) >= 4.5


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("role", [*(f"series-{i}" for i in range(1, 6)), "right", "wrong"])
def test_lines_and_areas_can_be_seen(role: str, scheme: str) -> None:
    assert contrast(in_scheme(role, scheme), in_scheme("paper", scheme)) >= 3


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("role", ["right", "wrong"])
def test_counts_can_be_read_in_every_shade_of_a_cell(role: str, scheme: str) -> None:
    def channels(color: str) -> np.ndarray:
        return np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)], dtype=float)

    for opacity in np.linspace(0, 1, 25):
        mixed = opacity * channels(in_scheme(role, scheme)) + (1 - opacity) * channels(in_scheme("paper", scheme))
        cell = "#" + "".join(f"{round(channel):02x}" for channel in mixed)
        assert contrast(in_scheme("ink", scheme), cell) >= 4.5


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("vision", VISION)
def test_series_stay_apart_for_the_color_blind(vision: str, scheme: str) -> None:
    seen = [lab(VISION[vision] @ linear(in_scheme(f"series-{i}", scheme))) for i in range(1, 6)]
    assert min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(seen, 2)) > 10


def test_placeholders_are_distinct_and_every_role_becomes_a_variable() -> None:
    assert len({color.placeholder for color in COLORS.values()}) == len(COLORS)
    for scheme in SCHEMES:
        assert all(f"--{role}: " in variables(scheme) for role in COLORS)
