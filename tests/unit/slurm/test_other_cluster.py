# SPDX-License-Identifier: Apache-2.0
"""Commands name the other cluster, and the title that squeue prints for it is removed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from slurmscope.core.errors import MalformedAnswer
from slurmscope.slurm.cluster_names import run_in_cluster


def echo(command: str, arguments: Sequence[str]) -> bytes:
    """Print a title as squeue does, and the arguments."""
    return b"CLUSTER: beta\nCLUSTER: beta\n" + " ".join((command, *arguments)).encode()


def test_commands_name_the_cluster() -> None:
    run = run_in_cluster(echo, "beta")
    # Only the first line is a title; a job may have a name like it.
    assert b"CLUSTER: beta\nsqueue -M beta --all" == run("squeue", ("--all",))
    assert echo("sacctmgr", ("show",)) == run("sacctmgr", ("show",))


@pytest.mark.parametrize("name", ["", "-M", "a,b", "all clusters", "a\n"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(MalformedAnswer):
        run_in_cluster(echo, name)
