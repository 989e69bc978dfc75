# SPDX-License-Identifier: Apache-2.0
"""Attack: PrivateData cannot be read, because scontrol fails or hangs, while series by user are enabled."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import ALICE, BOB, SlurmLab
from tests.processes import serving, until

COMMANDS = ("squeue", "sinfo", "sdiag", "sacct", "sacctmgr", "sshare")


def make_commands(lab: SlurmLab, folder: Path, broken: str) -> Path:
    """Make a folder of the real commands, in which scontrol is broken for as long as a file is there."""
    folder.mkdir()
    for name in COMMANDS:
        (folder / name).symlink_to(lab.bin_path / name)
    (folder / "broken").touch()
    script = f'[ -e {folder}/broken ] && [ "$2" = config ] && {{ {broken}; }}\nexec {lab.bin_path}/scontrol "$@"'
    (folder / "scontrol").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "scontrol").chmod(0o755)
    return folder


@pytest.mark.parametrize("broken", ["exit 1", "exec sleep 600", "echo PrivateData; exit 0"])
def test_no_user_is_named_while_private_data_is_unknown(clean_lab: SlurmLab, tmp_path: Path, broken: str) -> None:
    for user in (ALICE, BOB):
        clean_lab.wait_state(clean_lab.submit(user, script="sleep 600"), {"RUNNING"})
    commands = make_commands(clean_lab, tmp_path / "bin", broken)
    flags = ("--slurm.bin-path", str(commands), "--slurm.poll-limit=1", "--slurm.timeout=3", "--collector.job_info")

    with serving("cluster", *flags, environment=clean_lab.environment) as exporter:
        for _ in range(3):
            status, page = exporter.get(headers={"X-Prometheus-Scrape-Timeout-Seconds": "10"})
            assert 200 == status
            assert not [name for name in (ALICE, BOB, "physics", "chemistry") if name in page]
        # The numbers of the cluster are served meanwhile.
        until(lambda: exporter.values("slurm_jobs").get(("RUNNING",)) == 2)

        (commands / "broken").unlink()
        until(lambda: {(ALICE,), (BOB,)} <= {key[:1] for key in exporter.values("slurm_user_jobs")})
        until(lambda: len(exporter.values("slurm_job_cpu_alloc")) == 2)
