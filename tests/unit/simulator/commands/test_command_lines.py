# SPDX-License-Identifier: Apache-2.0
"""Every command line that our code sends is answered: all readers run, and no module that sends one is left out."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import slurmscope
from slurmscope.accounting.sacct import SacctAccounting, read_environment, read_script
from slurmscope.cluster import backends
from slurmscope.cluster.backends import TextCommands
from slurmscope.cluster.events import read_events
from slurmscope.cluster.exporter import check_slurm
from slurmscope.cluster.squeue import StartWindow
from slurmscope.core.errors import CommandFailed
from slurmscope.jobs.pending.queue import read_pending
from slurmscope.node.checks import check_node_name
from slurmscope.portal.live import LiveCluster
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.reports.local_jobs import explain_pending_job
from slurmscope.reports.resubmission import NodeSizes
from slurmscope.reports.scripts import ScriptReader
from slurmscope.reports.series_checks import _check_nodes
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape
from slurmscope.simulator.commands import call
from slurmscope.simulator.commands.executables import COMMANDS, write_fake_commands
from slurmscope.slurm.cluster_names import read_all_names, read_own_name, run_in_cluster
from slurmscope.slurm.command import SlurmCommands, random_separator
from slurmscope.slurm.config import SLURMDBD, JobVisibility
from slurmscope.slurm.coordinators import read_coordinated, read_coordinators
from slurmscope.top.jobs import TopJob
from slurmscope.top.sources import KnownJobs
from tests.fakes.exporters import open_role
from tests.processes import until

PACKAGE = Path(slurmscope.__file__).parent
NOW = int(time.time())
ALPHA, BETA = (simulate(Shape(jobs=60, nodes=6), now=NOW, name=name) for name in ("alpha", "beta"))
SENDING = re.compile(r"\brun\((?:\"(?:squeue|sinfo|sacct|scontrol|sshare|sprio|sdiag|sacctmgr)\"|[a-z_.]*COMMAND\b)")


class Slurm:
    """Answer from files, and note which command lines came from which modules."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: set[tuple[str, str]] = set()
        self.senders: set[str] = set()

    def run(self, command: str, arguments: Sequence[str]) -> bytes:
        self.senders.add(next(path for path in _callers() if path))
        argv = [*arguments]
        code, out, complaint = call.answer(str(self.folder), command, argv)
        assert 0 == code, complaint
        self.lines.add((command, call.read_line(argv[2:] if argv[:1] == ["-M"] else argv)[0]))
        return out


def _callers() -> Iterator[str]:
    """Yield the module of each caller, innermost first; nothing for those that are not ours."""
    frame = sys._getframe(1).f_back
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        yield str(path.relative_to(PACKAGE)) if path.is_relative_to(PACKAGE) else ""
        frame = frame.f_back


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    write_fake_commands(ALPHA, tmp_path)
    write_fake_commands(BETA, tmp_path / call.OTHER_CLUSTERS / "beta")
    known = Slurm(tmp_path)
    monkeypatch.setattr(backends, "MANY_NODES", 1)
    return known


def read_exporter(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlurmCommands, "run", lambda _self, command, arguments: slurm.run(command, arguments))
    readings = open_role("cluster")
    try:
        for name, reading in readings.readings.items():
            reading.request()
            assert reading.wait(time.monotonic() + 60).has_value, name
    finally:
        readings.close()


def read_accounting(slurm: Slurm, clusters: tuple[str, ...]) -> None:
    accounting = SacctAccounting(slurm.run, clusters=clusters)
    assert ("alpha",) == accounting.clusters()
    assert list(accounting.read_current())
    ended = list(accounting.read_ended(NOW - 600, NOW))
    assert accounting.read_jobs([ended[0].job_id])
    assert list(accounting.read_user(ended[0].user, NOW - 600, NOW))


def read_live(cluster: LiveCluster) -> None:
    for reading in cluster.readings:
        reading.request()
        snapshot = reading.wait(time.monotonic() + 60)
        assert snapshot.has_value, (reading.name, snapshot.error)


def read_reports(slurm: Slurm) -> None:
    names = [node.name for node in ALPHA.nodes[:1]]
    sizes = NodeSizes(slurm.run)
    assert all(sizes.smallest(cluster, names) for cluster in ("alpha", "beta"))
    assert list(_check_nodes(PrometheusSettings(), slurm.run, 0))
    user = ALPHA.users[0].name
    assert read_script(slurm.run, "alpha", "1", user) is None
    assert () == read_environment(slurm.run, "alpha", "1", user)
    ScriptReader(slurm.run).is_stored()
    until(lambda: "reports/scripts.py" in slurm.senders)
    waiting = read_pending(slurm.run, random_separator(), now_seconds=NOW).jobs
    for job in {job.reason: job for job in waiting}.values():
        assert explain_pending_job(slurm.run, job.shown_id)
    running = next(job for job in ALPHA.jobs if job.state == "RUNNING")
    (completed,) = KnownJobs(slurm.run).complete([TopJob(job_id=str(running.id))])
    assert (running.user.name, running.name) == (completed.user, completed.name)


def read_slurm(slurm: Slurm) -> None:
    def without_controller(command: str, arguments: Sequence[str]) -> bytes:
        if command == "scontrol":
            raise CommandFailed([command], "no controller answers")
        return slurm.run(command, arguments)

    assert ("alpha", "alpha", ("alpha",)) == (
        read_own_name(slurm.run), read_own_name(without_controller), read_all_names(slurm.run)
    )  # fmt: skip
    assert read_coordinated(slurm.run, ALPHA.users[0].name)
    assert read_coordinators(slurm.run)
    for cluster in ("", "beta"):
        read_events(slurm.run, "node1", "2026-01-01", cluster)
    assert list(check_node_name(slurm.run, "node1", "node1"))
    JobVisibility(slurm.run, SLURMDBD, user="nobody").require()
    assert all(check.is_good or check.name == "munge" for check in check_slurm(slurm.run, {}, wall_clock=lambda: NOW))


def find_senders() -> set[str]:
    """Return the modules that run a command of Slurm; neither JSON nor what writes AdminComments is simulated."""
    paths = (path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if SENDING.search(path.read_text()))
    return {str(path) for path in paths} - {"cluster/json/backends.py", "reporter/admin_comments.py"}


def test_every_command_line_that_our_code_sends_is_answered(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = TextCommands(slurm.run)
    for with_owners in (False, True):
        backend.read_jobs(StartWindow(0, 0), NOW, with_owners=with_owners)
    assert backend.read_nodes() == backend.read_nodes()  # from sinfo, then from scontrol
    for clusters in ((), ("alpha",), ("all",)):
        read_accounting(slurm, clusters)
    read_live(LiveCluster(slurm.run, backend))
    other = run_in_cluster(slurm.run, "beta")
    read_live(LiveCluster(other, TextCommands(other), "beta"))
    read_reports(slurm)
    read_slurm(slurm)
    read_exporter(slurm, monkeypatch)
    assert set() == find_senders() - slurm.senders
    # And nothing else is simulated.
    assert {(command, line) for command, lines in COMMANDS.items() for line in lines} == slurm.lines
