# SPDX-License-Identifier: Apache-2.0
"""Scripts are read once for several viewers, and checked with the options of the command line."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from slurmscope.core.errors import CommandFailed
from slurmscope.reports.scripts import KNOWN_SECONDS, ScriptReader
from tests.fakes.reports import make_record
from tests.fakes.sign_in import FakeClock
from tests.processes import PATIENCE_SECONDS

HEADING = b"Batch Script for 4711\n" + b"-" * 80 + b"\n"


class FakeSlurm:
    """Store one script and one environment; ``flags`` are those of slurm.conf, of other clusters ``other_flags``."""

    def __init__(self, flags: str = "job_script,job_env") -> None:
        self.flags = flags
        self.other_flags: dict[str, str] = {}
        self.calls: list[str] = []
        self.was_asked = threading.Event()

    def run(self, name: str, arguments: Sequence[str]) -> bytes:
        self.calls.append(arguments[-1])
        if name == "scontrol":
            self.was_asked.set()
            if not self.flags:
                raise CommandFailed([name], "slurmctld is down")
            flags = self.other_flags[arguments[1]] if arguments[0] == "-M" else self.flags
            return f"AccountingStoragePort   = 6819\nAccountingStoreFlags    = {flags}\n".encode()
        return HEADING + (b"#SBATCH -t 60\nexport OMP_NUM_THREADS=4\n" if "script" in arguments[-1] else b"OMP_X=1\n")


def test_script_is_checked_with_its_command_line_and_read_once() -> None:
    slurm = FakeSlurm()
    reader = ScriptReader(slurm.run)
    found = reader.read(make_record(submit_line="sbatch job.sh"))
    with_cores = reader.read(make_record(submit_line="sbatch -c 4 job.sh"))

    assert found is not None
    assert with_cores is not None
    assert ["4 threads without --cpus-per-task"] == [finding.title for finding in found.findings]
    assert () == with_cores.findings
    assert [("OMP_X", "1")] == [(variable.name, variable.value) for variable in found.environment]
    assert ["--batch-script", "--env-vars"] == slurm.calls


def _knows(reader: ScriptReader, slurm: FakeSlurm, cluster: str = "") -> bool:
    """Let the reader look it up in the background, and return what it then knows."""
    slurm.was_asked.clear()
    reader.is_stored(cluster)
    assert slurm.was_asked.wait(PATIENCE_SECONDS)
    for thread in threading.enumerate():
        if thread.name == "script flags":
            thread.join(PATIENCE_SECONDS)
    return reader.is_stored(cluster)


def test_whether_slurm_stores_scripts_is_looked_up_now_and_then() -> None:
    clock, slurm = FakeClock(), FakeSlurm()
    reader = ScriptReader(slurm.run, clock)

    assert _knows(reader, slurm)
    slurm.flags = "job_env"
    assert reader.is_stored()
    clock.seconds += KNOWN_SECONDS
    assert not _knows(reader, slurm)


def test_each_cluster_has_its_own_flags() -> None:
    slurm = FakeSlurm()
    slurm.other_flags["beta"] = "job_env"
    reader = ScriptReader(slurm.run, FakeClock())

    assert (True, False) == (_knows(reader, slurm), _knows(reader, slurm, "beta"))
    slurm.flags, slurm.other_flags["gamma"] = "job_env", "job_script"
    assert (True, True) == (reader.is_stored(), _knows(reader, slurm, "gamma"))


def test_what_was_known_holds_while_slurm_does_not_answer() -> None:
    clock, slurm = FakeClock(), FakeSlurm()
    reader = ScriptReader(slurm.run, clock)
    assert _knows(reader, slurm)

    slurm.flags = ""
    clock.seconds += KNOWN_SECONDS
    assert _knows(reader, slurm)


def test_page_does_not_wait_long_for_a_script_that_it_can_do_without() -> None:
    hangs = threading.Event()

    def run(name: str, arguments: Sequence[str]) -> bytes:
        assert hangs.wait(PATIENCE_SECONDS)
        raise CommandFailed([name], "slurmdbd is down")

    slow, quick = ScriptReader(run), ScriptReader(FakeSlurm().run)
    assert slow.read_soon(make_record()) is None
    found = quick.read_soon(make_record())
    hangs.set()
    assert found is not None
    assert found.text.startswith("#SBATCH -t 60")
    assert ScriptReader(run).read_soon(make_record()) is None
