# SPDX-License-Identifier: Apache-2.0
"""Files of NCCL's Inspector, right and hostile; the shape is that which its documentation describes."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.node.job_use import JobKey, JobUse, NodeJobs
from slurmscope.node.nccl import inspector
from slurmscope.node.nccl.inspector import (
    COLLECTOR,
    FileNames,
    Inspected,
    InspectorOptions,
    InspectorReader,
    collect,
    parse_inspector,
)

LABELS = (
    'version="v5.1",slurm_job_id="{job}",node="n17",gpu="GPU0",comm_name="{name}",n_nodes="2",nranks="16",'
    'collective="AllReduce",message_size="4-5GB",algo_proto="RING_SIMPLE"'
)
P2P = (
    'version="v5.1",slurm_job_id="7",node="n17",gpu="GPU1",comm_name="unknown",n_nodes="2",nranks="16",'
    'p2p_operation="Send",message_size="1-2MB"'
)
ALL_REDUCE = ("GPU0", "dp", "AllReduce", "4-5GB", "RING_SIMPLE", "16")
SEND = ("GPU1", "unknown", "Send", "1-2MB", "", "16")


def written(job: int = 7, name: str = "dp") -> str:
    labels = LABELS.format(job=job, name=name)
    return f"nccl_bus_bandwidth_gbs{{{labels}}} 210.5\nnccl_collective_exec_time_microseconds{{{labels}}} 1100\n"


@dataclass
class Folder:
    """The folder of the Inspector, and the jobs of the node."""

    path: Path
    jobs: list[JobUse] = field(default_factory=lambda: [JobUse(key=JobKey(7), uid=os.getuid())])
    age: float = 0.0

    def __post_init__(self) -> None:
        self.reader = InspectorReader(self.path, lambda: self.jobs, self._now, lambda: 0.0)

    def _now(self) -> float:
        newest = max((file.lstat().st_mtime for file in self.path.iterdir()), default=0.0)
        return newest + self.age

    def write(self, text: str, name: str = "nccl_inspector_metrics_GPU-1.prom") -> Path:
        (self.path / name).write_text(text)
        return self.path / name


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_file_that_is_removed_or_made_is_noticed(tmp_path: Path) -> None:
    names = FileNames(tmp_path)
    for name in ("b.prom", "a.prom", "notes"):
        (tmp_path / name).touch()
    names.go_on()
    assert ["a.prom", "b.prom"] == names.of(os.getuid())

    (tmp_path / "a.prom").unlink()
    (tmp_path / "c.prom").touch()
    names.go_on()
    assert ["b.prom", "c.prom"] == names.of(os.getuid())
    assert [] == names.of(os.getuid() + 1)


def test_user_with_any_number_of_files_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspector, "MOST_ENTRIES", 50)
    for number in range(300):
        (tmp_path / f"junk-{number}.prom").touch()
    os.chown(tmp_path / "junk-0.prom", 4711, -1)
    others = tmp_path / "z.prom"
    others.touch()
    os.chown(others, 4712, -1)
    names, seen = FileNames(tmp_path), []
    for _ in range(20):
        names.go_on()
        seen.append((names.of(4711), names.of(4712)))
        assert len(names.of(0)) <= inspector.MOST_FILES

    names.close()
    # 301 entries in turns of 50: all are found in seven readings, and stay known while the folder is listed again.
    assert {(("junk-0.prom",), ("z.prom",))} == {(tuple(first), tuple(second)) for first, second in seen[6:]}


def test_bandwidth_and_time_of_operations_are_in_base_units(folder: Folder) -> None:
    folder.write(f"{written()}nccl_p2p_bus_bandwidth_gbs{{{P2P}}} 12\nnccl_p2p_exec_time_microseconds{{{P2P}}} 80\n")
    found = folder.reader.read()

    assert {JobKey(7): {ALL_REDUCE: 210.5e9, SEND: 12e9}} == found.bandwidth
    assert {ALL_REDUCE: 0.0011, SEND: 80e-6} == pytest.approx(found.seconds[JobKey(7)])
    assert {"ok": 1} == found.files


def test_file_about_the_job_of_another_user_is_not_believed(folder: Folder) -> None:
    folder.jobs.append(JobUse(key=JobKey(8), uid=os.getuid() + 1))
    folder.write(written(job=8), "a.prom")
    folder.write(written(job=9), "b.prom")  # does not run here

    assert Inspected(files={"other_user": 2}) == folder.reader.read()


@pytest.mark.parametrize(
    ("text", "age", "result"),
    [
        (written(), inspector.KEPT_SECONDS + 1, "too_old"),
        (written(), -inspector.KEPT_SECONDS - 1, "too_old"),
        (written() + " " * inspector.MOST_BYTES, 0.0, "too_long"),
        ("nonsense", 0.0, "malformed"),
        ("", 0.0, "malformed"),
        (written().replace("210.5", "-1").replace("1100", "1e999"), 0.0, "malformed"),
        ("".join(written(name=f"c{number}") for number in range(inspector.MOST_SERIES + 1)), 0.0, "too_many"),
    ],
)
def test_file_that_is_not_as_expected_is_counted(folder: Folder, text: str, age: float, result: str) -> None:
    folder.write(text)
    folder.age = age
    found = folder.reader.read()

    assert {result: 1} == found.files
    assert sum(map(len, found.bandwidth.values())) <= inspector.MOST_SERIES


def test_only_regular_files_of_the_folder_are_read(folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "secret.prom"
    elsewhere.write_text(written())
    (folder.path / "link.prom").symlink_to(elsewhere)
    (folder.path / "hard.prom").hardlink_to(elsewhere)
    (folder.path / "folder.prom").mkdir()
    os.mkfifo(folder.path / "pipe.prom")
    folder.write(written(), "other.txt")

    assert Inspected(files={"malformed": 4}) == folder.reader.read()


def test_names_that_change_all_the_time_make_a_bounded_number_of_series(folder: Folder) -> None:
    seen = set()
    for turn in range(20):
        folder.write("".join(written(name=f"c{turn}-{number}") for number in range(200)))
        seen |= {labels for of_job in folder.reader.read().bandwidth.values() for labels in of_job}

    # Each is a series of two metrics, and both are new names.
    assert len(seen) <= inspector.NEW_SERIES_AN_HOUR
    assert folder.reader.read().files["too_many"] > 5


def test_user_who_fills_the_folder_hides_no_other(folder: Folder) -> None:
    for number in range(inspector.MOST_FILES + 9):
        folder.write(written(), f"{number}.prom")
    found = folder.reader.read()
    folder.jobs = [JobUse(key=JobKey(7), uid=os.getuid() + 1)]

    assert {"ok": inspector.MOST_FILES} == found.files
    # Files of users without a job here are not even opened.
    assert found.files == folder.reader.read().files


def test_folder_that_is_missing_has_nothing(tmp_path: Path) -> None:
    assert Inspected() == InspectorReader(tmp_path / "none", list).read()


@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    for line in (text, f"nccl_bus_bandwidth_gbs{{{text}}} 5", f"nccl_bus_bandwidth_gbs{{}} {text}"):
        assert all(len(name) <= 64 for _, _, labels, _ in parse_inspector(line) for name in labels)


def test_operations_are_exported_by_job() -> None:
    inspected = Inspected(
        bandwidth={JobKey(7): {ALL_REDUCE: 2e11}}, seconds={JobKey(7): {ALL_REDUCE: 0.5}}, files={"ok": 2}
    )
    families = collect(InspectorOptions(), nccl_inspector=inspected, node_jobs=NodeJobs(host_name="n1"))

    assert {
        "jobs_nccl_bus_bandwidth_bytes_per_second": {("7", "n1", *ALL_REDUCE): 2e11},
        "jobs_nccl_operation_seconds": {("7", "n1", *ALL_REDUCE): 0.5},
        "slurm_node_nccl_inspector_files_total": {("n1", "ok"): 2},
    } == {family.metric.name: dict(family.samples) for family in families}
    assert "collector.nccl_inspector.directory" == COLLECTOR.enabled_by
