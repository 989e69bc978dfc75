# SPDX-License-Identifier: Apache-2.0
"""A test whose program is missing is skipped, fails in CI, and finds its program after ``scripts/setup test``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.requirements import PACKAGES, REQUIRING_VARIABLES, require_program

SETUP = Path(__file__).parents[2] / "scripts" / "setup"


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide all programs, and that this may be CI."""
    monkeypatch.setenv("PATH", "/nowhere")
    for name in REQUIRING_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_test_without_its_program_is_skipped() -> None:
    with pytest.raises(pytest.skip.Exception, match="promtool is not installed: apt-get install prometheus"):
        require_program("promtool")


@pytest.mark.parametrize("variable", REQUIRING_VARIABLES)
def test_test_without_its_program_fails_in_ci(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "true")

    with pytest.raises(pytest.fail.Exception, match="promtool is not installed"):
        require_program("promtool")


def test_setup_installs_the_package_of_every_program() -> None:
    installed = SETUP.read_text(encoding="utf-8").partition("test_packages=(")[2].partition(")")[0].split()

    assert set() == {package for packages in PACKAGES.values() for package in packages.split()} - set(installed)
