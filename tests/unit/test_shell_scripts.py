# SPDX-License-Identifier: Apache-2.0
"""Every shell script of the project is valid in its shell, and shellcheck warns of nothing in it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.requirements import require_program

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (".ci", "deploy", "lab", "plugin", "scripts")
SHELL = re.compile(r"#!(?:/usr/bin/env |/bin/busybox )?(?:/bin/)?(bash|sh)\n")


def find_scripts() -> Iterator[tuple[Path, str]]:
    """Yield the shell scripts with the shell that runs them."""
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).iterdir() if path.is_file()):
        with path.open(encoding="utf-8") as file:
            if match := SHELL.match(file.readline()):
                yield path, match[1]


SCRIPTS = dict(find_scripts())


def test_scripts_are_found() -> None:
    known = {"run", "epilog-slurmscope", "traced-job.sh", "guest_init.sh", "build", "setup"}
    assert known <= {path.name for path in SCRIPTS}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_script_is_valid_and_gives_no_warning(script: Path) -> None:
    assert 0 == subprocess.run([SCRIPTS[script], "-n", str(script)], check=False, timeout=60).returncode
    argv = [require_program("shellcheck"), "--severity=warning", str(script)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert (0, "") == (done.returncode, done.stdout)
