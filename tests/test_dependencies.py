"""No lower bound in pyproject.toml admits a version with a known hole."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
BOUND = re.compile(r"([a-z0-9_-]+)>=([\d.]+)")

FIXED = {
    "jinja2": ("3.1.6", "CVE-2025-27516: a template leaves the sandbox through `|attr`"),
    "numpy": ("1.22.0", "CVE-2021-34141: strings that compare wrongly"),
    "pydantic": ("2.4.0", "CVE-2024-3772: a regular expression that takes very long"),
    "pytest": ("9.0.3", "CVE-2025-71176: a temporary folder of a predictable name"),
}
"""The first version without the hole, by package: add to it when an advisory is published."""


def release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def bounds() -> dict[str, str]:
    lists = (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    matches = [BOUND.fullmatch(each) for entries in lists for each in entries]
    assert all(matches), lists
    return {match[1]: match[2] for match in matches if match}


@pytest.mark.parametrize("package", FIXED)
def test_a_version_with_a_known_hole_is_not_admitted(package: str) -> None:
    fixed, hole = FIXED[package]

    assert release(bounds()[package]) >= release(fixed), hole
