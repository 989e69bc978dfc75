# SPDX-License-Identifier: Apache-2.0
"""Fake sacct, slurmdbd and the clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slurmscope.cluster.completions import COLUMNS
from slurmscope.core.errors import CommandError, CommandRefused

START = 1_794_732_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Hold one ended job of ten seconds on two CPUs, and when it is in accounting."""

    job_id: int
    end: int
    known_at: int
    submit: int = START - 5000
    state: str = "COMPLETED"
    partition: str = "debug"

    def row(self, mark: str) -> str:
        """Print it as sacct does."""
        values = {
            "JobID": str(self.job_id), "JobIDRaw": str(self.job_id), "Submit": str(self.submit),
            "Start": str(self.end - 10), "End": str(self.end), "Partition": self.partition, "Account": "physics",
            "State": self.state, "ExitCode": "0:0", "ElapsedRaw": "10", "CPUTimeRAW": "20",
            "AllocTRES": "billing=2,cpu=2,mem=200M,node=1",
        }  # fmt: skip
        return mark.join(values[column] for column in COLUMNS) + "\n"


class Accounting:
    """Print records as sacct does, once they are in accounting; tests set ``now``."""

    def __init__(self) -> None:
        self.now = START
        self.records: list[Record] = []
        self.error: CommandError | None = None
        self.windows: list[tuple[int, int]] = []

    def wall_clock(self) -> float:
        """Return the fake time."""
        return float(self.now)

    def end_job(self, *, ago: int = 0, known_in: int = 0) -> Record:
        """End a job, which is in accounting at once or some seconds later."""
        record = Record(job_id=len(self.records) + 1, end=self.now - ago, known_at=self.now + known_in)
        self.records.append(record)
        return record

    def go_down(self) -> None:
        """Fail every call from now on."""
        self.error = CommandRefused(["sacct"], "Connection refused")

    def run(self, name: str, arguments: Sequence[str]) -> bytes:
        """Return the jobs in the window of the arguments, including both edges."""
        assert "sacct" == name
        values = dict(argument.removeprefix("--").partition("=")[::2] for argument in arguments)
        start, end = int(values["starttime"].removeprefix("uts")), int(values["endtime"].removeprefix("uts"))
        self.windows.append((start, end))
        if self.error:
            raise self.error
        found = (one for one in self.records if start <= one.end <= end and one.known_at <= self.now)
        return "".join(one.row(values["delimiter"]) for one in found).encode()
