# SPDX-License-Identifier: Apache-2.0
"""Prove that the guest runs commands faithfully, and that we read of a job in cgroup v2 what the kernel says of it."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from lab.errors import GuestUnavailable, LabError
from lab.guest import run_in_guest
from lab.guest_kernel import cache_folder, provide_kernel
from lab.guest_qemu import find_qemu
from lab.guest_slurm import run_module_in_guest
from tests.e2e.guest_job import BUSY_SECONDS, LIMIT_BYTES, MEBIBYTE, MEMORY_BYTES
from tests.e2e.guest_short_jobs import JOBS

pytestmark = pytest.mark.lab
RUN_SECONDS = 180.0
LEAST_SHARE = 0.6
"""Of the time of short jobs: a busy machine may wake the tracker late."""
STEP = "step_batch"
USER = f"{STEP}/user"
TASK = f"{USER}/task_0"


@dataclass(frozen=True, slots=True)
class Number:
    """Say what we call a number, and where the kernel has it."""

    kind: str
    name: str
    file: str
    key: str = ""
    unit: float = 1

    def __str__(self) -> str:
        return self.name

    def read_from(self, group: dict[str, Any]) -> float:
        """Give what we read."""
        value: float = group[self.kind][self.name]
        return value

    def short_by(self, files: dict[str, str]) -> float:
        """Give what the kernel says."""
        return number_of(files[self.file], self.key) / self.unit


COUNTERS = (
    Number("cpu", "total_seconds", "cpu.stat", "usage_usec", 1e6),
    Number("cpu", "user_seconds", "cpu.stat", "user_usec", 1e6),
    Number("cpu", "system_seconds", "cpu.stat", "system_usec", 1e6),
    Number("memory", "peak_bytes", "memory.peak"),
)
# These also fall, and those of the whole job do so with every look that slurmstepd takes at it.
LEVELS = (
    Number("memory", "current_bytes", "memory.current"),
    Number("memory", "anon_bytes", "memory.stat", "anon"),
    Number("memory", "file_bytes", "memory.stat", "file"),
    Number("memory", "shmem_bytes", "memory.stat", "shmem"),
    Number("memory", "kernel_bytes", "memory.stat", "kernel"),
    Number("memory", "mapped_file_bytes", "memory.stat", "file_mapped"),
)


@pytest.fixture
def _able_machine() -> None:
    """Raise GuestUnavailable, which skips the test, before the test waits for another error."""
    find_qemu()
    provide_kernel(cache_folder())


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """Give what was to be seen of the jobs in the guest."""
    done = run_module_in_guest("tests.e2e.guest_job", timeout=2 * RUN_SECONDS)
    assert (0, "") == (done.returncode, done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_output_errors_and_status_come_back_apart(tmp_path: Path) -> None:
    word = 'it\'s $HOME, "quoted" and\ntwo lines'
    (tmp_path / "share").mkdir()
    done = run_in_guest(
        ["sh", "-c", 'echo "$WORD"; echo wrong >&2; echo kept >share/kept; echo lost >lost; exit 7'],
        timeout=RUN_SECONDS,
        cwd=tmp_path,
        shared_folders=[tmp_path / "share"],
        environment={"WORD": word},
    )
    assert (7, f"{word}\n", "wrong\n") == (done.returncode, done.stdout, done.stderr)
    assert "kept\n" == (tmp_path / "share" / "kept").read_text()
    assert not (tmp_path / "lost").exists()


@pytest.mark.usefixtures("_able_machine")
def test_guest_that_is_not_done_in_time_is_ended() -> None:
    with pytest.raises(LabError, match=r"^the guest was not done after 2 s"):
        run_in_guest(["sleep", "600"], timeout=2)
    assert [] == [child for child in psutil.Process().children(recursive=True) if child.name().startswith("qemu")]


def test_missing_kernel_is_short_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(GuestUnavailable, match=r"^The guest's kernel .*\.$"):
        provide_kernel(tmp_path / "file" / "cache")


def test_guest_has_nothing_but_version_two(seen: dict[str, Any]) -> None:
    mounts = [line.split()[1:3] for line in seen["mounts"].splitlines()]
    assert [["/sys/fs/cgroup", "cgroup2"]] == [mount for mount in mounts if "cgroup" in mount[1]]
    assert "v2" == seen["ours"]["layout"]


def test_slurm_gives_the_job_the_folders_of_version_two(seen: dict[str, Any]) -> None:
    assert {".", STEP, f"{STEP}/slurm", USER, TASK} == set(seen["before"])
    path = f"0::/system.slice/{seen['node']}_slurmstepd.scope/job_{seen['job']}/{TASK}\n"
    assert path == seen["cgroup"]


def test_job_is_found_with_its_node_and_its_user(seen: dict[str, Any]) -> None:
    expected = (seen["job"], seen["node"], number_of(seen["status"], "Uid:"))
    assert expected == (seen["ours"]["job"], seen["ours"]["node"], seen["ours"]["uid"])


def test_processes_of_user_and_slurm_are_short_apart(seen: dict[str, Any]) -> None:
    members = {name: [int(pid) for pid in files["cgroup.procs"].split()] for name, files in seen["before"].items()}
    assert [seen["pid"]] == members[TASK] == seen["ours"]["user_pids"]
    assert members[f"{STEP}/slurm"] == seen["ours"]["stepd_pids"]
    assert [[], [], []] == [members[name] for name in (".", STEP, USER)]


def test_controllers_that_slurm_leaves_off_are_not_measured(seen: dict[str, Any]) -> None:
    files = {"cpu": "cpu.stat", "cpuset": "cpuset.cpus", "memory": "memory.stat", "io": "io.stat", "pids": "pids.max"}
    expected = {controller: name in seen["names"] for controller, name in files.items()}
    assert expected == {controller: seen["ours"]["measures"][controller] for controller in files}
    assert {"io": False, "memory": True} == {controller: expected[controller] for controller in ("io", "memory")}


def test_limit_is_inherited_by_the_task(seen: dict[str, Any]) -> None:
    limits = {name: files["memory.max"].strip() for name, files in seen["before"].items()}
    limited = {".": str(LIMIT_BYTES), USER: str(LIMIT_BYTES)}
    assert {name: limited.get(name, "max") for name in limits} == limits
    assert (
        LIMIT_BYTES == seen["ours"]["task"]["memory"]["limit_bytes"] == seen["ours"]["whole"]["memory"]["limit_bytes"]
    )


def test_processor_time_is_what_the_job_measured_itself(seen: dict[str, Any]) -> None:
    assert BUSY_SECONDS <= seen["busy_seconds"]
    # The process was slurmstepd's before it was moved into the task: of its first moments the task knows nothing.
    assert seen["busy_seconds"] <= seen["ours"]["task"]["cpu"]["total_seconds"] < seen["whole_seconds"] + 1


def test_memory_is_what_the_job_filled(seen: dict[str, Any]) -> None:
    assert MEMORY_BYTES <= seen["ours"]["task"]["memory"]["anon_bytes"] < LIMIT_BYTES
    # The kernel counts per processor and adds up now and then.
    resident_bytes = number_of(seen["status"], "RssAnon:") * 1024
    assert pytest.approx(resident_bytes, abs=2 * MEBIBYTE) == seen["ours"]["task"]["memory"]["anon_bytes"]


@pytest.mark.parametrize("number", COUNTERS, ids=str)
def test_counter_of_the_job_lies_between_two_answers_of_the_kernel(seen: dict[str, Any], number: Number) -> None:
    first, last = (number.short_by(seen[moment]["."]) for moment in ("before", "after"))
    assert first <= number.read_from(seen["ours"]["whole"]) <= last


@pytest.mark.parametrize("number", [*COUNTERS, *LEVELS], ids=str)
def test_number_of_the_sleeping_task_is_the_kernels(seen: dict[str, Any], number: Number) -> None:
    short = [number.short_by(seen[moment][TASK]) for moment in ("before", "after")]
    assert min(short) <= number.read_from(seen["ours"]["task"]) <= max(short)


def test_ended_lab_leaves_no_cgroup(seen: dict[str, Any]) -> None:
    assert ["guest.service"] == seen["left"]


def number_of(text: str, key: str) -> int:
    """Give the number that follows a key at the start of a line, or that starts a line where there is no key."""
    found = re.search(rf"^{re.escape(key)}\s*(\d+)", text, re.MULTILINE)
    assert found is not None, f"no {key} in {text}"
    return int(found[1])


def test_short_jobs_are_accounted(seen: dict[str, Any]) -> None:
    short = seen["short_jobs"]
    assert (0, "v2", True) == (short["before"], short["layout"], short["available"]["inotify"])
    assert JOBS == len(short["jobs"])
    assert all(job["has_ended"] and job["peak_bytes"] > 1024 * 1024 for job in short["jobs"].values())
    # Here slurmstepd belongs to the job, and emulated it uses as much as the job itself: there is no upper bound.
    used = sum(job["used_seconds"] for job in short["jobs"].values())
    assert LEAST_SHARE * used <= sum(job["cpu_seconds"] for job in short["jobs"].values())
