# SPDX-License-Identifier: Apache-2.0
"""Run the node agent, and return its numbers of the jobs of one lab: it sees every Slurm of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from lab import SlurmLab
from lab.errors import LabError
from tests.processes import Exporter, Samples, serving


@dataclass(frozen=True, slots=True)
class Agent:
    """Reach an agent that reads all jobs for every scrape."""

    exporter: Exporter
    lab: SlurmLab

    def read(self) -> Samples:
        return self.exporter.samples()

    def values(self, name: str, job: int) -> dict[tuple[str, ...], float]:
        """Return the values of a job by node and further labels."""
        return of_job(self.read(), name, job, self.lab)

    def wait_ended(self, job: int) -> Samples:
        """Return a page with the last numbers of a job: Slurm calls it completed before it has removed its cgroups."""
        pages: list[Samples] = []

        def has_ended() -> bool:
            pages[:] = [self.read()]
            found = of_job(pages[0], "jobs_info", job, self.lab)
            assert found, f"job {job} was missed"
            return {labels[-1] for labels in found} == {"true"}

        try:
            self.lab.wait_for(has_ended, what=f"the end of job {job}")
        except LabError as error:
            daemons = [process.info for process in psutil.process_iter(["pid", "status", "cmdline"])]
            alive = [info for info in daemons if "slurmstepd" in " ".join(info["cmdline"] or ())]
            errors = pages[0]["slurmscope_reading_errors_total"]
            raise LabError(f"{error}; running: {alive}; errors: {errors}; log: {self.exporter.log[-20:]}") from error
        return pages[0]


@contextmanager
def running_agent(lab: SlurmLab, *flags: str) -> Iterator[Agent]:
    """Run an agent that has read once."""
    defaults = ("--node.interval=0s", "--collector.disable-defaults", "--collector.job_use")
    with serving("node", *defaults, *flags) as exporter:
        agent = Agent(exporter, lab)
        agent.read()
        yield agent


def of_job(samples: Samples, name: str, job: int, lab: SlurmLab) -> dict[tuple[str, ...], float]:
    """Return the values of a job of this lab by node and further labels."""
    return {
        labels[1:]: value for labels, value in samples[name].items() if labels[0] == str(job) and labels[1] in lab.nodes
    }
