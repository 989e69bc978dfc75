# SPDX-License-Identifier: Apache-2.0
"""Manual pages and completion are made of the commands, and the programs that read them understand them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.packages.manual import completions, manual_pages
from slurmscope.cli import COMMANDS

PAGES = manual_pages("1.2.3")


def test_every_command_has_a_page() -> None:
    assert {"slurmscope.1", *(f"slurmscope-{name}.1" for name in COMMANDS)} == set(PAGES)


def test_pages_are_good_roff() -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is missing")
    text = "\n".join(PAGES.values())
    done = subprocess.run(
        [groff, "-man", "-ww", "-z"], input=text, capture_output=True, text=True, timeout=60, check=True
    )

    assert "" == done.stderr


def test_page_has_the_commands_below_with_their_options() -> None:
    text = PAGES["slurmscope-trace.1"]

    assert '.SS "token"' in text
    assert "\n.B \\-\\-job ID\nJob ID." in text


def test_completion_offers_commands() -> None:
    script = completions()["bash-completion/completions/slurmscope"]
    bash = (
        'eval "$0"; COMP_WORDS=(slurmscope do); COMP_CWORD=1; _slurmscope_completion slurmscope; echo "${COMPREPLY[@]}"'
    )

    done = subprocess.run(
        ["bash", "-c", bash, script], capture_output=True, text=True, timeout=60, check=True, env={"PATH": path()}
    )

    assert "doctor\n" == done.stdout


def path() -> str:
    """Return the search path with the slurmscope of the tests first."""
    return f"{Path(sys.executable).parent}:{os.environ['PATH']}"
