# SPDX-License-Identifier: Apache-2.0
"""The lowest allowed releases are read from pyproject.toml, without what only developers need."""

from __future__ import annotations

import tomllib

import pytest

from scripts.lowest import ROOT, lowest_releases


def make_project(*requirements: str) -> dict[str, object]:
    extras = {"web": [*requirements, "slurmscope[reports]"], "dev": ["ruff>=0.5"]}
    return {"project": {"dependencies": ["click>=8.3.3"], "optional-dependencies": extras}}


def test_lowest_releases_of_all_extras_but_dev_are_named() -> None:
    project = make_project("fastapi>=0.133", "psycopg[binary]>=3.2.13")

    assert ["click==8.3.3", "fastapi==0.133", "psycopg==3.2.13"] == list(lowest_releases(project))


@pytest.mark.parametrize("requirement", ["fastapi", "fastapi<2", "fastapi==1.0", "fastapi>=1,<2"])
def test_requirement_without_a_lowest_release_is_refused(requirement: str) -> None:
    with pytest.raises(SystemExit, match="names no lowest release"):
        list(lowest_releases(make_project(requirement)))


def test_every_package_of_the_project_has_a_lowest_release() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    names = {release.partition("==")[0] for release in lowest_releases(project)}

    assert {"click", "jinja2", "starlette", "sqlalchemy"} <= names
