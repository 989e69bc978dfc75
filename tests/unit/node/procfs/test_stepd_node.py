# SPDX-License-Identifier: Apache-2.0
"""Two slurmd on one machine without cgroups have their own jobs, named by the sockets of slurmstepd."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.node.job_use import JobKey
from slurmscope.node.kernel_files import Missing
from slurmscope.node.procfs.reader import ProcessReader
from slurmscope.node.procfs.stepd_jobs import NAME_TRIES, StepdTree, parse_node_name, read_node_name
from tests.unit.node.procfs.test_stepd_jobs import Machine

# Captured from Slurm 22.05 with four slurmd on one machine.
TABLE = b"""Num       RefCount Protocol Flags    Type St Inode Path
00000000bb774737: 00000002 00000000 00010000 0001 01 3657364 /var/lab/munge/socket
000000007cc270bc: 00000003 00000000 00000000 0001 03 3658109
00000000c4de2236: 00000002 00000000 00010000 0001 01 3658480 /var/lab/spool/lab0n1/lab0n1_1.4294967291
00000000e9d80141: 00000002 00000000 00010000 0001 01 3659446 /var/lab/spool of n1/lab0n1_1.0
00000000c2e565bc: 00000002 00000000 00010000 0001 01 3658552 /var/lab/spool/lab0n2/lab0n2_1.0
00000000c2e565bd: 00000002 00000000 00010000 0001 01 3658553 /var/lab/spool/gpu_node-7.a/gpu_node-7.a_41.0.1
"""


@pytest.mark.parametrize(
    ("inodes", "job_id", "expected"),
    [
        ({b"3658480"}, 1, "lab0n1"),
        ({b"3659446"}, 1, "lab0n1"),
        ({b"3658552"}, 1, "lab0n2"),
        ({b"3657364", b"3658109", b"3658553"}, 41, "gpu_node-7.a"),
        ({b"3658480"}, 2, None),
        ({b"365848"}, 1, None),
        (set(), 1, None),
    ],
)
def test_node_name_is_that_of_the_socket_of_the_step(inodes: set[bytes], job_id: int, expected: str | None) -> None:
    assert expected == parse_node_name(TABLE, inodes, job_id)


@given(table=st.binary(max_size=300))
def test_any_table_is_parsed(table: bytes) -> None:
    parse_node_name(b"x: 2 0 1 1 1 77 " + table, {b"77"}, 1)


def test_node_name_of_a_real_process(tmp_path: Path, reader: ProcessReader) -> None:
    with socket.socket(socket.AF_UNIX) as listening, reader.process(reader.process_ids()[0]) as other:
        listening.bind(str(tmp_path / "n1_4711.0"))
        listening.listen()
        with reader.process(int(Path("/proc/self").readlink().name)) as own:
            assert not isinstance(own, Missing)
            assert "n1" == read_node_name(own, 4711)
            assert read_node_name(own, 4712) is None
        # It is in the table that both share, but not open there.
        assert not isinstance(other, Missing)
        assert read_node_name(other, 4711) in (None, Missing.DENIED)


class TwoDaemons(Machine):
    """Have two slurmd, whose steps listen on sockets."""

    def listen(self, pid: int, name: str) -> None:
        """Let a slurmstepd listen on its socket."""
        (self.root / str(pid) / "fd").mkdir()
        (self.root / str(pid) / "fd" / "5").symlink_to(f"socket:[{pid}]")
        (self.root / str(pid) / "net").mkdir()
        (self.root / str(pid) / "net" / "unix").write_text(f"0: 2 0 10000 1 01 {pid} /spool/{name}\n")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[TwoDaemons]:
    """Return a machine on which two slurmd run."""
    (tmp_path / "1").mkdir()
    reader = ProcessReader(tmp_path)
    made = TwoDaemons(tmp_path, StepdTree(reader))
    for pid in (20, 30):
        made.add(pid, command="slurmd")
    yield made
    made.tree.close()
    reader.close()


def test_job_on_two_nodes_of_one_machine_is_two(machine: TwoDaemons) -> None:
    for pid, node in ((40, "n1"), (50, "n2")):
        machine.add_stepd(pid)
        machine.add(pid + 1, pid)
        machine.listen(pid, f"{node}_7.4294967291")
    assert [((40,), (41,)), ((50,), (51,))] == [machine.pids(JobKey(7, node)) for node in ("n1", "n2")]


def test_job_waits_for_its_name(machine: TwoDaemons) -> None:
    machine.add_stepd(40)
    machine.add(41, 40)
    (machine.root / "40" / "fd").mkdir()
    assert {} == machine.tree.scan()
    (machine.root / "40" / "fd").rmdir()
    machine.listen(40, "n1_7.0")
    assert ((40,), (41,)) == machine.pids(JobKey(7, "n1"))


def test_job_without_a_name_is_not_lost(machine: TwoDaemons) -> None:
    machine.add_stepd(40)
    machine.add(41, 40)
    (machine.root / "40" / "fd").mkdir()
    found = [machine.tree.scan() for _ in range(NAME_TRIES + 1)]
    assert [{}] * NAME_TRIES == found[:-1]
    assert [JobKey(7)] == list(found[-1])


@pytest.mark.parametrize("second", ["child of the first", "of a user", "another program"])
def test_one_slurmd_needs_no_name(machine: TwoDaemons, second: str) -> None:
    machine.remove(30)
    match second:
        case "child of the first":
            machine.add(30, 20, command="slurmd")
        case "of a user":
            machine.add(30, command="slurmd", real_uid=4242)
        case "another program":
            machine.add(30, command="slurmd", program="/home/user/other")
    machine.add_stepd(40)
    machine.listen(40, "n1_7.0")
    assert [JobKey(7)] == list(machine.tree.scan())
