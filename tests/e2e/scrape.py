# SPDX-License-Identifier: Apache-2.0
"""Run the cluster exporter over a lab, and return its page as prometheus_client parses it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from lab import SlurmLab
from tests.processes import Samples, parse_page, run_slurmscope


def scrape(
    lab: SlurmLab,
    *collectors: str,
    flags: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
    is_success: bool = True,
) -> Samples:
    """Return the samples of these collectors, and expect that all of them succeed or fail."""
    done = run_once(lab, *collectors, flags=flags, environment=environment, prefix=prefix)
    samples = parse_page(done.stdout)
    assert int(not is_success) == done.returncode, done.stderr
    assert {(name,): int(is_success) for name in collectors} == samples["slurmscope_collector_success"]
    return samples


def run_once(
    lab: SlurmLab,
    *collectors: str,
    flags: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run ``slurmscope cluster --once`` with these collectors only."""
    flags = (*slurm_flags(lab), *(f"--collector.{name}" for name in ("disable-defaults", *collectors)), *flags)
    return run_slurmscope("cluster", "--once", *flags, environment=environment or lab.environment, prefix=prefix)


def slurm_flags(lab: SlurmLab) -> tuple[str, ...]:
    """Return the flags that let an exporter query a lab, patiently and without a request for PrivateData."""
    return ("--slurm.bin-path", str(lab.bin_path), "--slurm.timeout=25s", "--slurm.private-data=ignore")
