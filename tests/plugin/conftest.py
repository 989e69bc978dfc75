# SPDX-License-Identifier: Apache-2.0
"""Build the profiling plugin and the program that calls it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
HARNESS = Path(__file__).with_name("harness.c")
LIMIT_SECONDS = 400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltPlugin:
    """Hold a plugin and the program that calls it as slurmstepd does; ``wrapper`` is put before that program."""

    plugin: Path
    harness: Path
    wrapper: tuple[str, ...] = ()

    def run(self, socket_path: Path, scenario: str) -> str:
        """Run a scenario and return what Slurm would have logged; fail if anything was wrong."""
        command = (*self.wrapper, str(self.harness), str(self.plugin), str(socket_path), scenario)
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout


def build_plugin(directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run plugin/build into a directory."""
    (REPOSITORY / "build").mkdir(exist_ok=True)
    with (REPOSITORY / "build" / ".plugin-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # workers share the source of Slurm that the first one fetches
        return subprocess.run(
            [REPOSITORY / "plugin" / "build"],
            env={**os.environ, "PLUGIN_BUILD": str(directory), **environment},
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )


def build_both(directory: Path, *flags: str, wrapper: tuple[str, ...] = ()) -> BuiltPlugin:
    """Build plugin and harness with the same compiler flags."""
    built = build_plugin(directory, CFLAGS=" ".join(("-Werror", *flags)))
    assert built.returncode == 0, built.stderr
    harness = directory / "harness"
    includes = ("-isystem", str(directory / "include"), "-isystem", str(slurm_source()))
    warnings = ("-Wall", "-Wextra", "-Werror")
    command = ("gcc", "-std=gnu99", "-g", *warnings, *flags, "-rdynamic", *includes, "-o", str(harness), str(HARNESS))
    subprocess.run((*command, "-ldl", "-lpthread"), check=True, timeout=LIMIT_SECONDS)
    return BuiltPlugin(plugin=directory / "acct_gather_profile_prometheus.so", harness=harness, wrapper=wrapper)


def slurm_source() -> Path:
    """Return the source of Slurm that plugin/build used."""
    given = os.environ.get("SLURM_SOURCE")
    return Path(given) if given else next((REPOSITORY / "build" / "plugin").glob("slurm-wlm-*/META")).parent


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> BuiltPlugin:
    """Build the plugin as it is deployed."""
    return build_both(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="session", params=["address,undefined", "thread", "valgrind"])
def checked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> BuiltPlugin:
    """Build the plugin so that every wrong access to memory ends the harness with an error."""
    directory = tmp_path_factory.mktemp("checked")
    if request.param == "valgrind":
        assert shutil.which("valgrind"), "valgrind is missing: run make setup-test as root"
        valgrind = ("valgrind", "-q", "--error-exitcode=9", "--leak-check=full")
        return build_both(directory, wrapper=valgrind)
    # The thread sanitizer of gcc 12 needs its memory at fixed addresses.
    wrapper = ("setarch", "-R") if request.param == "thread" else ()
    return build_both(directory, f"-fsanitize={request.param}", "-fno-sanitize-recover=all", wrapper=wrapper)
