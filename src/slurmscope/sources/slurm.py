# SPDX-License-Identifier: Apache-2.0
"""Run Slurm's commands where they are installed, within the limits that were set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurmscope.config import parse_path
from slurmscope.settings import one_of, setting
from slurmscope.sources.command import SEARCH_PATH, command_environment, find_command, run
from slurmscope.units import parse_positive_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """How Slurm is asked."""

    bin_path: Path | None = setting(
        None,
        help="Folder with Slurm's commands; without it they are looked for on PATH.",
        parse=parse_path,
        metavar="DIR",
    )
    poll_limit: float = setting(
        10.0,
        help="Seconds between two questions of the same kind to Slurm, however many scrapes there are.",
        parse=parse_positive_seconds,
        metavar="DURATION",
        environment=("POLL_LIMIT",),
    )
    timeout: float = setting(
        8.0,
        help="Seconds after which a command of Slurm is killed.",
        parse=parse_positive_seconds,
        metavar="DURATION",
        environment=("CLI_TIMEOUT",),
    )
    private_data: str = setting(
        "respect",
        help="Whether series by user, job or account are left out where Slurm's PrivateData hides those: "
        "respect or ignore.",
        parse=one_of("respect", "ignore"),
        metavar="WORD",
    )


class SlurmCommands:
    """Run Slurm's commands and count the runs."""

    def __init__(self, settings: SlurmSettings, environment: Mapping[str, str]) -> None:
        """Keep what every run needs; ``environment`` is the one this process was started with."""
        self.runs: Counter[str] = Counter()
        self._settings = settings
        self._environment = command_environment(environment)
        self._search_path = f"{environment.get('PATH', '')}:{SEARCH_PATH}"

    def run(self, name: str, arguments: Sequence[str]) -> bytes:
        """Return the standard output of one command, or raise a CommandError that tells why there is none."""
        program = find_command(name, self._settings.bin_path, search_path=self._search_path)
        self.runs[name] += 1
        answer = run([str(program), *arguments], timeout_seconds=self._settings.timeout, environment=self._environment)
        return answer.stdout
