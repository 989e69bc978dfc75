# SPDX-License-Identifier: Apache-2.0
"""Totals of jobs survive a restart of the agent in a file that nobody else can write, and nothing else does."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.node.job_finder import JobMeter, ReadingOptions
from slurmscope.node.job_registry import JobRegistry
from slurmscope.node.job_use import JobKey
from slurmscope.node.kept_totals import (
    MAX_BYTES,
    KeptJob,
    TotalsFile,
    find_totals_file,
    parse_totals,
    read_boot_id,
    write_totals,
)
from slurmscope.node.procfs.process_totals import Kept
from slurmscope.node.procfs.reader import ProcessReader
from tests.fakes.live_jobs import FakeFinder, FakeJob, FakeReader

KEY = JobKey(7, "n1")
JOB = KeptJob(
    key=KEY,
    witnesses=((100, 5000),),
    totals={"cpu_ticks": Kept(12, -3), 'program a"\n\udcff': Kept(5, 5)},
)
numbers = st.integers(-(1 << 62), 1 << 62)
totals = st.dictionaries(st.text(max_size=20), st.builds(Kept, numbers, numbers), max_size=20)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "totals.json"


def test_next_agent_reads_what_the_last_one_wrote(path: Path) -> None:
    TotalsFile(path, "boot").write([JOB])
    assert {KEY: JOB} == TotalsFile(path, "boot").read()
    assert 0o600 == path.stat().st_mode & 0o777
    assert [path.name] == [each.name for each in path.parent.iterdir()]


def test_totals_of_another_boot_are_not_read(path: Path) -> None:
    TotalsFile(path, "boot").write([JOB])
    assert {} == TotalsFile(path, "another boot").read()


def test_agent_without_a_folder_keeps_nothing() -> None:
    file = TotalsFile(None, "boot")
    file.write([JOB])
    assert {} == file.read()


def test_file_is_written_only_when_something_changed(path: Path) -> None:
    file = TotalsFile(path, "boot")
    file.write([JOB])
    path.unlink()
    file.write([JOB])
    assert not path.exists()
    file.write([])
    assert path.exists()


def test_file_that_cannot_be_written_is_reported_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = TotalsFile(path.parent / "none" / path.name, "boot")
    file.write([JOB])
    file.write([])
    assert 1 == len(caplog.records)


@pytest.mark.parametrize("kind", ["link", "writable", "pipe", "folder", "large", "text"])
def test_file_that_others_could_have_written_is_not_read(path: Path, kind: str) -> None:
    made = path.with_name("made")
    TotalsFile(made, "boot").write([JOB])
    if kind == "link":
        path.symlink_to(made)
    elif kind == "pipe":
        os.mkfifo(path, 0o600)
    elif kind == "folder":
        path.mkdir()
    else:
        made.rename(path)
    if kind == "writable":
        path.chmod(0o620)
    elif kind == "large":
        path.write_bytes(path.read_bytes() + b" " * MAX_BYTES)
    elif kind == "text":
        path.write_text("{")
    assert {} == TotalsFile(path, "boot").read()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")
def test_file_of_another_user_is_not_read(path: Path) -> None:
    TotalsFile(path, "boot").write([JOB])
    os.chown(path, 1000, 1000)
    assert {} == TotalsFile(path, "boot").read()


def test_name_beside_the_file_cannot_lead_elsewhere(path: Path) -> None:
    precious = path.with_name("precious")
    precious.write_text("mine")
    path.with_name(f".{path.name}.{os.getpid()}").symlink_to(precious)
    TotalsFile(path, "boot").write([JOB])
    assert ("mine", {KEY: JOB}) == (precious.read_text(), TotalsFile(path, "boot").read())


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "7", '{"version":1,"boot":"b"}', '{"version":1,"boot":"b","jobs":7}',
        '{"version":1,"boot":"b","jobs":[[[7,"",""],[],{"x":[1]}]]}',
        '{"version":1,"boot":"b","jobs":[[[7,"",""],[],{"x":[1,true]}]]}',
        '{"version":1,"boot":"b","jobs":[[[7,"",""],[],{"x":[1,1e9]}]]}',
        '{"version":1,"boot":"b","jobs":[[[7,"",""],[],{"x":[1,99999999999999999999]}]]}',
        '{"version":1,"boot":"b","jobs":[[[7,"",3],[],{}]]}',
        '{"version":1,"boot":"b","jobs":[[["7","",""],[],{}]]}',
        '{"version":1,"boot":"b","jobs":[[[7,"",""],[[1,2],[1,2],[1,2],[1,2],[1,2],[1,2],[1,2],[1,2],[1,2]],{}]]}',
        "[" * 100_000,
    ],
)  # fmt: skip
def test_anything_unexpected_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_totals(text.encode(), "b")


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_or_parsed(text: bytes) -> None:
    try:
        parse_totals(text, "b")
    except ValueError:
        return


@given(st.integers(0, 1 << 32), st.text(max_size=20), totals)
def test_all_that_is_written_can_be_read(job_id: int, name: str, kept: dict[str, Kept]) -> None:
    job = KeptJob(key=JobKey(job_id, name), witnesses=((1, 2),), totals=kept)
    assert [job] == parse_totals(write_totals([job], "b"), "b")


def test_job_that_counted_too_far_costs_no_other(path: Path) -> None:
    # Half an hour of writes of 2 GiB to /dev/null.
    hostile = replace(JOB, key=JobKey(8), totals={"write_chars": Kept(1 << 63, 0)})

    TotalsFile(path, "b").write([hostile, JOB])

    assert {JOB.key: JOB} == TotalsFile(path, "b").read()


def test_size_of_the_file_is_bounded() -> None:
    many = [replace(JOB, key=JobKey(number)) for number in range(100_000)]
    text = write_totals(many, "b")
    assert MAX_BYTES / 2 < len(text) <= MAX_BYTES
    assert parse_totals(text, "b")[0] == many[0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [("/run/x", Path("/run/x/totals.json")), ("/run/x:/run/y", Path("/run/x/totals.json")), ("", None), ("x", None)],
)
def test_folder_is_the_one_that_systemd_makes(value: str, expected: Path | None) -> None:
    assert expected == find_totals_file({"RUNTIME_DIRECTORY": value})
    assert find_totals_file({}) is None


def test_boot_is_that_of_the_kernel(tmp_path: Path) -> None:
    assert Path("/proc/sys/kernel/random/boot_id").read_text().strip() == read_boot_id(Path("/proc"))
    assert "" == read_boot_id(tmp_path)


def test_registry_continues_the_jobs_that_it_finds_first(path: Path) -> None:
    def make() -> tuple[JobRegistry, FakeFinder]:
        finder = FakeFinder()
        finder.add(FakeJob(KEY))
        registry = JobRegistry(finder, FakeReader)
        registry.resume(TotalsFile(path, "boot"))
        registry.scan()
        return registry, finder

    first, _ = make()
    for _ in range(3):
        first.read(first.live[0])
    first.keep_totals()

    # The fake counts its scans as faults.
    second, finder = make()
    second.read(second.live[0])
    assert [4] == [use.processes and use.processes.minor_faults for use in second.uses()]
    # A job that begins later is another run.
    finder.remove(finder.jobs[KEY])
    second.scan()
    finder.add(FakeJob(KEY))
    second.scan()
    second.read(second.live[0])
    assert 1 == max(use.processes.minor_faults for use in second.uses() if use.processes and not use.has_ended)


def test_totals_need_a_process_that_still_runs() -> None:
    """Another run of the same job ID on this node, or another job whose processes have the same numbers."""
    pid = os.getpid()
    reader = ProcessReader(Path("/proc"))
    (sample,) = reader.read([pid])
    job = FakeJob(KEY, pids=[pid])

    def ticks(witness: tuple[int, int]) -> int:
        meter = JobMeter(reader, ReadingOptions())
        meter.resume(job, KeptJob(key=KEY, witnesses=(witness,), totals={"minor_faults": Kept(1 << 60, 1 << 60)}))
        use = meter.read(job)
        assert use is not None
        assert use.processes is not None
        return use.processes.minor_faults

    assert ticks((pid, sample.start_ticks)) > 1 << 60
    assert ticks((pid, sample.start_ticks + 1)) < 1 << 60
    assert ticks((1, sample.start_ticks)) < 1 << 60
    reader.close()
