# SPDX-License-Identifier: Apache-2.0
"""Ask the lab as the exporter does, and hold what a collector makes of the answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from lab import SlurmLab
from slurmscope.metrics.family import Family
from slurmscope.slurm.command import SlurmCommands, SlurmSettings


def ask(lab: SlurmLab, command: str, arguments: Sequence[str]) -> bytes:
    """Run a command of Slurm with the exporter's own environment."""
    settings = SlurmSettings(bin_path=lab.bin_path, timeout=30.0)
    return SlurmCommands(settings, lab.environment).run(command, arguments)


def count_questions(lab: SlurmLab) -> Counter[str]:
    """Return how many questions of each type the controller has answered; those of its own daemons are left out."""
    rows = lab.run("sdiag").partition("by message type")[2].partition("by user")[0]
    return Counter({name: int(count) for name, count in re.findall(r"(\w+_INFO)\s*\(\s*\d+\)\s*count:(\d+)", rows)})


def samples_of(families: Iterable[Family]) -> dict[str, Mapping[tuple[str, ...], object]]:
    """Return the samples by the name of their metric."""
    return {family.metric.name: dict(family.samples) for family in families}
