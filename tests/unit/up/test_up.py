# SPDX-License-Identifier: Apache-2.0
"""One process records its own collectors: under the node's name, and the cluster once a minute."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from slurmscope.cli.options import load_config
from slurmscope.cli.portal_command import make_exporters, make_up_command
from slurmscope.cli.roles import all_collectors
from slurmscope.cluster.sinfo import Nodes
from slurmscope.cluster.squeue import Jobs
from slurmscope.core.config import Config
from slurmscope.exporter.collector import Role
from slurmscope.exporter.exporter import Exporter
from slurmscope.exporter.feature import Feature, Running
from slurmscope.exporter.reading import SharedReading
from slurmscope.jobs.queries import TOTALS
from slurmscope.jobs.series import JobSpan
from slurmscope.node.job_use import NodeJobs
from slurmscope.recorder.recorder import Recorder
from slurmscope.recorder.settings import RecorderSettings
from slurmscope.up.up import open_recording
from tests.fixtures.cgroup.make import unpack
from tests.processes import until


def parse(*flags: str) -> dict[str, object]:
    """Read flags as the command does."""
    return make_up_command().make_context("up", list(flags)).params


def test_node_is_recorded_under_the_name_that_is_given(tmp_path: Path) -> None:
    machine = unpack("v2-slurm-22.05", tmp_path / "machine")
    # A slurmd that is alone on its machine names no node in its cgroups.
    scopes = machine / "sys" / "fs" / "cgroup" / "system.slice"
    (scopes / "n1_slurmstepd.scope").rename(scopes / "slurmstepd.scope")
    file = tmp_path / "slurmscope.toml"
    file.write_text(f'[path]\nrootfs = "{machine}"\n')
    given = parse(
        "--node.name=n17", "--no-up.cluster", f"--config.file={file}", f"--recorder.file={tmp_path}/recorder.db"
    )
    config = load_config("up", given)

    with Recorder(config.of(RecorderSettings)) as recorder:
        with open_recording(config, make_exporters(given), recorder):
            until(lambda: recorder.recorded)
        found = recorder.series().read_totals(TOTALS["cpu"], [JobSpan(1, 0, 1e12)], until=math.inf)
    assert {("n17",), ("n2",)} == set(found.by_job[1])


class Asked:
    """Fake exporters of both roles, and count their readings."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        values = {"jobs": Jobs(groups=(), taken_at_seconds=0.0), "nodes": Nodes(nodes=()), "node_jobs": NodeJobs()}
        part = Running(
            readings=tuple(
                SharedReading(name, self._tell(name, values.get(name)), interval_seconds=0)
                for name in sorted({n for role in Role for each in all_collectors(role) for n in each.reading_names})
            )
        )
        self.exporters = [
            Exporter(
                role=role,
                features=(Feature(name="test", collectors=all_collectors(role), open=lambda _: part),),
                load=self._load(role),
            )
            for role in Role
        ]

    def _tell(self, name: str, value: object) -> Callable[[], object]:
        def read() -> object:
            self.counts[name] += 1
            return value

        return read

    def _load(self, role: Role) -> Callable[[], Config]:
        return lambda: load_config(role.value, {})


def test_controller_is_queried_less_often_than_the_node(tmp_path: Path) -> None:
    asked = Asked()
    config = load_config("up", parse("--recorder.interval=20ms", f"--recorder.file={tmp_path}/recorder.db"))
    with (
        Recorder(config.of(RecorderSettings)) as recorder,
        open_recording(config, asked.exporters, recorder) as recording,
    ):
        until(lambda: asked.counts["node_jobs"] >= 5 and asked.counts["jobs"])
        assert recording.charts is not None
        assert () == recording.charts.get()
    assert (1, 1) == (asked.counts["jobs"], asked.counts["nodes"])
