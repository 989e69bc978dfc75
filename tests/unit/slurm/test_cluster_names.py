# SPDX-License-Identifier: Apache-2.0
"""The name of this host's cluster is known also while slurmctld is down, if jobs ran lately."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from slurmscope.core.errors import CommandFailed, MalformedAnswer
from slurmscope.slurm.cluster_names import KEEP_SECONDS, ClusterNames, read_all_names, read_own_name

CONFIG = b"Configuration data as of now\nClusterName             = Alpha\nPrivateData             = none\n"


def answers(**by_command: bytes | None):  # type: ignore[no-untyped-def]
    def run(command: str, arguments: Sequence[str]) -> bytes:
        answer = by_command.get(command)
        if answer is None:
            raise CommandFailed([command, *arguments], "cannot connect")
        return answer

    return run


def test_controller_names_its_cluster() -> None:
    assert "alpha" == read_own_name(answers(scontrol=CONFIG))


def test_jobs_name_their_cluster_while_the_controller_is_down() -> None:
    assert "alpha" == read_own_name(answers(sacct=b"alpha\nalpha\n"))


@pytest.mark.parametrize("jobs", [b"", b"alpha\nbeta\n", b"a b\n"])
def test_name_is_unknown_without_both(jobs: bytes) -> None:
    with pytest.raises(CommandFailed):
        read_own_name(answers(sacct=jobs))


def test_odd_name_is_refused() -> None:
    with pytest.raises(MalformedAnswer):
        read_own_name(answers(scontrol=CONFIG.replace(b"Alpha", b"a;b")))


def test_slurmdbd_names_all_clusters() -> None:
    assert ("alpha", "beta") == read_all_names(answers(sacctmgr=b"beta\nalpha\n\n--clusters=x y\n"))
    with pytest.raises(MalformedAnswer):
        read_all_names(answers(sacctmgr=b""))


def test_names_are_kept_while_they_cannot_be_read() -> None:
    now, known = 0.0, [("alpha",), ("alpha", "beta")]

    def read() -> tuple[str, ...]:
        if not known:
            raise CommandFailed(["sacctmgr"], "cannot connect")
        return known.pop(0)

    names = ClusterNames(read, clock=lambda: now)
    assert ("alpha",) == names.get()
    assert ("alpha",) == names.get()
    for _ in range(2):
        now += KEEP_SECONDS
        assert ("alpha", "beta") == names.get()
    with pytest.raises(CommandFailed):
        ClusterNames(read).get()
