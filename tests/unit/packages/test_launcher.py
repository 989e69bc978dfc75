# SPDX-License-Identifier: Apache-2.0
"""The command of the rpm starts a Python that is new enough, and the one that the portal was compiled for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.packages.rpm import LAUNCHER


@pytest.mark.parametrize(
    ("installed", "portal", "expected"),
    [
        (("python3",), "", "python3"),
        (("python3", "python3.9", "python3.12"), "", "python3.12"),
        (("python3", "python3.11", "python3.12"), "", "python3.11"),
        (("python3", "python3.11", "python3.12"), "3.12\n", "python3.12"),
    ],
)
def test_python_is_chosen(tmp_path: Path, installed: tuple[str, ...], portal: str, expected: str) -> None:
    done = launch(tmp_path, installed, portal)

    assert (0, f"{expected} -I {tmp_path}/lib/start report 4711\n") == (done.returncode, done.stdout)


def test_missing_python_is_named(tmp_path: Path) -> None:
    done = launch(tmp_path, (), "")

    assert (2, "") == (done.returncode, done.stdout)
    assert "Python 3.11 or later is needed" in done.stderr


def launch(folder: Path, installed: tuple[str, ...], portal: str) -> subprocess.CompletedProcess[str]:
    """Run the launcher with these interpreters, which print how they were called."""
    programs, library = folder / "bin", folder / "lib"
    programs.mkdir()
    library.mkdir()
    for name in installed:
        program = programs / name
        program.write_text(f'#!/bin/sh\necho "{name} $*"\n')
        program.chmod(0o755)
    if portal:
        (library / "python").write_text(portal)
    script = LAUNCHER.decode().replace("/usr/bin/", f"{programs}/").replace("/usr/lib/slurmscope", str(library))
    return subprocess.run(
        ["sh", "-c", script, "slurmscope", "report", "4711"], capture_output=True, text=True, timeout=60, check=False
    )
