# SPDX-License-Identifier: Apache-2.0
"""The plugin builds without a warning, and for the right Slurm only."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.plugin.conftest import build_plugin


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_no_compiler_warns(tmp_path: Path, compiler: str) -> None:
    """Warnings are errors."""
    assert shutil.which(compiler), f"{compiler} is missing: run make setup-test as root"
    built = build_plugin(tmp_path, CC=compiler, CFLAGS="-Werror -Wshadow -Wstrict-prototypes -Wvla")

    assert (0, "") == (built.returncode, built.stderr)


def test_slurm_can_resolve_every_symbol(tmp_path: Path) -> None:
    """Slurm's own library exports what the plugin calls."""
    assert build_plugin(tmp_path).returncode == 0
    needed = symbols("--undefined-only", tmp_path / "acct_gather_profile_prometheus.so")
    library = next(Path("/usr/lib").glob("*/slurm-wlm/libslurmfull.so"))

    assert {name for name in needed if "slurm" in name} <= symbols("--defined-only", library)


def symbols(which: str, library: Path) -> set[str]:
    """Return the dynamic symbols of a library, as nm shows them."""
    lines = subprocess.run(["nm", "-D", which, library], capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[-1].partition("@")[0] for line in lines}


def test_source_of_another_release_is_refused(tmp_path: Path) -> None:
    """The loader of Slurm would refuse the plugin, and the daemons would not start."""
    (tmp_path / "META").write_text("  Name:\tslurm\n  Version:\t21.08.1\n")
    built = build_plugin(tmp_path / "built", SLURM_SOURCE=str(tmp_path))

    assert built.returncode == 1
    assert re.fullmatch(
        r"plugin/build: the source in \S+ is Slurm 21\.08\.1, but [\d.]+ is installed, .*\n", built.stderr
    )


def test_wrong_source_directory_is_refused(tmp_path: Path) -> None:
    """One sentence."""
    built = build_plugin(tmp_path / "built", SLURM_SOURCE=str(tmp_path))

    expected = f"plugin/build: {tmp_path} is not a Slurm source tree: it has no file META.\n"
    assert (1, expected) == (built.returncode, built.stderr)
