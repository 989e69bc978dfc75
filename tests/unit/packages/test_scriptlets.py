# SPDX-License-Identifier: Apache-2.0
"""The scripts of packages are good shell, and open no port by themselves."""

from __future__ import annotations

import subprocess

import pytest

from scripts.packages.roles import Package, common_package, role_packages
from scripts.packages.scriptlets import debian, rpm
from tests.requirements import require_program

PACKAGES = (common_package({}, "1.2.3"), *role_packages({}, "3.11"))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_scripts_are_good_shell(package: Package) -> None:
    shellcheck = require_program("shellcheck")
    for text in (*debian(package).values(), *rpm(package).values()):
        done = subprocess.run(
            [shellcheck, "--shell=sh", "-"], input=text, capture_output=True, text=True, timeout=60, check=False
        )
        assert "" == done.stdout


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_installation_starts_and_enables_nothing(package: Package) -> None:
    text = " ".join((debian(package)["postinst"], rpm(package).get("pre", ""), rpm(package).get("post", "")))

    assert "enable" not in text
    assert "systemctl start" not in text
