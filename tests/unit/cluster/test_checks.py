# SPDX-License-Identifier: Apache-2.0
"""Every cause of missing jobs has a check of its own, with its remedy."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from slurmscope.cluster.exporter import check_slurm
from slurmscope.core.check import Check
from slurmscope.core.errors import CommandMissing, CommandTimedOut
from slurmscope.slurm.munge import find_munge_socket

NOW_SECONDS = 1_700_000_000


def slurm(private_data: str = "none", admin_level: str = "None", clock_seconds: int = NOW_SECONDS) -> Mapping[str, str]:
    """Return what the commands of a cluster print."""
    return {
        "scontrol": f"PrivateData = {private_data}\nSlurmUser = nobody-else(64030)\n",
        "sacctmgr": f"{admin_level}\n",
        "sdiag": f"***\nsdiag output at Tue Nov 14 22:13:20 2023 ({clock_seconds})\n",
    }


def check(answers: Mapping[str, str], environment: Mapping[str, str] | None = None) -> dict[str, Check]:
    def run(name: str, arguments: Sequence[str]) -> bytes:
        if name not in answers:
            raise CommandMissing((name, *arguments), f"{name} was not found")
        return answers[name].encode()

    found = check_slurm(run, environment or {"SLURM_CONF": "/nonexistent"}, wall_clock=lambda: float(NOW_SECONDS))
    return {one.name: one for one in found}


def test_nothing_is_missing_on_an_ordinary_cluster() -> None:
    checks = check(slurm())

    assert {"PrivateData": True, "clock": True} == {name: one.is_good for name, one in checks.items()}


@pytest.mark.parametrize(("skew_seconds", "words"), [(300, "300 s behind"), (-301, "300 s ahead of")])
def test_clock_skew_is_reported(skew_seconds: int, words: str) -> None:
    clock = check(slurm(clock_seconds=NOW_SECONDS + skew_seconds))["clock"]

    assert not clock.is_good
    assert words in clock.message
    assert "synchronize" in clock.advice


def test_wrong_bin_path_is_reported_with_its_flag() -> None:
    checks = check({})

    assert ["Slurm commands"] == list(checks)
    assert not checks["Slurm commands"].is_good
    assert "--slurm.bin-path" in checks["Slurm commands"].advice


def test_munge_that_is_down_is_reported_and_ends_the_checks(tmp_path: Path) -> None:
    path = tmp_path / "munge"
    config = tmp_path / "slurm.conf"
    config.write_text(f"AuthType=auth/munge\nAuthInfo=cred_expire=60,socket={path}\n")

    def hang(name: str, arguments: Sequence[str]) -> bytes:
        raise CommandTimedOut((name, *arguments), f"{name} timed out")

    environment = {"SLURM_CONF": str(config)}
    down = list(check_slurm(hang, environment))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as munged:
        munged.bind(str(path))
        munged.listen()
        up = next(iter(check_slurm(hang, environment)))

    assert [("munge", False)] == [(one.name, one.is_good) for one in down]
    assert "start munge" in down[0].advice
    assert ("munge", True) == (up.name, up.is_good)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("AuthType=auth/jwt\n", None), ("", "/run/munge/munge.socket.2"), ("authinfo = socket=/a,ttl=5\n", "/a")],
)
def test_socket_of_munge_comes_from_slurm_conf(tmp_path: Path, text: str, expected: str | None) -> None:
    config = tmp_path / "slurm.conf"
    config.write_text(text)

    assert (Path(expected) if expected else None) == find_munge_socket({"SLURM_CONF": str(config)})


def test_clock_is_compared_with_the_time_of_the_call() -> None:
    answers = slurm(clock_seconds=int(time.time()))

    found = {
        one.name: one for one in check_slurm(lambda name, _: answers[name].encode(), {"SLURM_CONF": "/nonexistent"})
    }

    assert found["clock"].is_good
