# SPDX-License-Identifier: Apache-2.0
"""Measure that a job costs the same on a node with 5,000 jobs as on one with 500.

The jobs are plain files in the shape of cgroup v2, each with a step and a task. Both nodes are tracked at the same time
and read in turns, as a scrape reads them. Files of about 300 jobs stay open between readings; those of the others are
opened for each reading, which is what the ratio allows for.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.cgroups import V2_FILES
from bench.measure import judge_ratio, least_seconds
from slurmscope.exporter.self_metrics import raise_open_files_limit
from slurmscope.node.changes import EVENTS_FILE
from slurmscope.node.exporter import TrackingOptions, open_job_tracker
from slurmscope.node.tracker import JobTracker

FEW, MANY = 500, 5000
ROUNDS = 4
RATIO_LIMIT = 2.0
DESCRIPTORS = 12_000


def main() -> int:
    """Print the ratios and return 1 when one is broken."""
    former = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_open_files_limit(DESCRIPTORS)
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, former)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        few, first_of_few = stack.enter_context(_tracked(folder, FEW))
        many, first_of_many = stack.enter_context(_tracked(folder, MANY))
        of_few, of_many = least_seconds(few.snapshot, many.snapshot, rounds=ROUNDS)
    verdicts = [_judge("first reading", first_of_few, first_of_many), _judge("each further reading", of_few, of_many)]
    return 0 if all(verdicts) else 1


@contextmanager
def _tracked(folder: Path, jobs: int) -> Iterator[tuple[JobTracker, float]]:
    """Track the jobs of a node, and yield the CPU seconds of the first reading, with all that precedes it."""
    root = _make_jobs(folder / f"node-{jobs}", jobs)
    started = time.process_time()
    with open_job_tracker(TrackingOptions(cgroup_root=root)) as tracker:
        assert len(tracker.snapshot().jobs) == jobs
        yield tracker, time.process_time() - started


def _judge(what: str, of_few: float, of_many: float) -> bool:
    ratio = (of_many / MANY) / (of_few / FEW)
    figure = f"{of_many:.2f} s of CPU, {of_many / MANY * 1e3:.2f} ms a job"
    of = f"one of {FEW} jobs, {of_few / FEW * 1e3:.2f} ms a job"
    return judge_ratio(f"{what} of {MANY} jobs", figure, ratio, RATIO_LIMIT, of)


def _make_jobs(root: Path, jobs: int) -> Path:
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpu memory\n")
    for name, text in V2_FILES.items():
        (root / f"template.{name}").write_text(text)
    for number in range(1, jobs + 1):
        top = root / "system.slice" / "slurmstepd.scope" / f"job_{number}"
        for below in ("", "step_batch", "step_batch/user", "step_batch/user/task_0"):
            group = top / below
            group.mkdir(parents=True)
            for name, text in V2_FILES.items():
                if name == EVENTS_FILE:  # a second name of the same file would share its watch
                    (group / name).write_text(text)
                else:
                    os.link(root / f"template.{name}", group / name)
    return root
