# SPDX-License-Identifier: Apache-2.0
"""Check the parser of mountstats with the formats of several kernels and with hostile text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.node.mounts import ClientUse, Mount, MountedFilesystem, parse_mountstats

FIXTURES = Path(__file__).parents[2] / "fixtures" / "procfs" / "mountstats"
HEAD = b"device s:/e mounted on /m with fstype nfs4 statvers=1.1\n"


def parse_fixture(name: str) -> list[Mount]:
    return list(parse_mountstats((FIXTURES / name).read_bytes()))


def parse_one(body: bytes) -> Mount:
    (mount,) = parse_mountstats(HEAD + body)
    return mount


def test_nfs_3_counts_what_the_server_transferred() -> None:
    home = Mount(
        filesystem=MountedFilesystem("nfs1:/export/home", "nfs"),
        age_seconds=86400,
        use=ClientUse(read_bytes=9438232576, write_bytes=734003200, metadata_operations=2007),
    )

    assert [home] == parse_fixture("nfs3-linux-3.10")


def test_nfs_4_mounted_in_two_places_is_listed_twice() -> None:
    scratch = Mount(
        filesystem=MountedFilesystem("nfs2:/scratch", "nfs4"),
        age_seconds=3600,
        use=ClientUse(read_bytes=52428800, write_bytes=10485760, metadata_operations=695),
    )

    assert [scratch, scratch] == parse_fixture("nfs4-linux-6.1")


def test_without_operations_only_bytes_are_known_and_names_stay_escaped() -> None:
    mount = Mount(
        filesystem=MountedFilesystem(r"nfs2:/my\040dir", "nfs4"),
        age_seconds=5,
        use=ClientUse(read_bytes=2**64 - 1, write_bytes=7),
    )

    assert [mount] == parse_fixture("nfs4-without-operations")


def test_this_machine_can_be_parsed() -> None:
    text = Path("/proc/self/mountstats").read_bytes()

    assert sum(b" with fstype nfs" in line for line in text.splitlines() if b" nfsd" not in line) == len(
        list(parse_mountstats(text))
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\tage:\tsoon\n\tbytes:\tmany\n",
        b"\tbytes:\t1 2 3 4\n",
        b"\tbytes:\t1 2 3 4 18446744073709551616 " + b"9" * 400 + b" 7 8\n",
        b"\tper-op statistics\n\tGETATTR: lots\n",
        b"\tper-op statistics\n\tGETATTR: 1 1\n\tLOOKUP: 18446744073709551616 1\n",
        b"\tper-op statistics\n" + b"\tGETATTR: 1 1\n" * 1000,
        b" age:\t5\n",
    ],
)
def test_what_cannot_be_parsed_is_not_counted(body: bytes) -> None:
    assert Mount(filesystem=MountedFilesystem("s:/e", "nfs4")) == parse_one(body)


def test_operations_end_with_the_mount() -> None:
    body = b"\tper-op statistics\n\t     GETATTR: 3 3\nno device mounted on /x with fstype y\n\t     GETATTR: 4 4\n"

    assert 3 == parse_one(body).use.metadata_operations


@pytest.mark.parametrize(
    "line",
    [
        b"device fuse:/e mounted on /m with fstype fuse.nfs4",
        b"device s:/e mounted on /m with fstype nfsd",
        b"device s:/e mounted on /m\\040with\\040fstype\\040nfs4 with fstype fuse",
        b"device a b mounted on /m with fstype nfs4 statvers=1.1",
        b"no device mounted on /m with fstype nfs4",
        b"\tdevice s:/e mounted on /m with fstype nfs4 statvers=1.1",
    ],
)
def test_other_lines_are_no_mount(line: bytes) -> None:
    assert [] == list(parse_mountstats(line + b"\n\tbytes:\t1 2 3 4 5 6 7 8\n"))


def test_name_that_is_not_utf_8_is_replaced() -> None:
    (mount,) = parse_mountstats(b"device s:/\xff\x1b mounted on /m with fstype nfs")

    assert "s:/\ufffd\x1b" == mount.filesystem.name


PIECES = st.sampled_from(
    [
        HEAD, b"\n", b"\t", b"device ", b"no device ", b"\tage:\t", b"\tbytes:\t", b"\tper-op statistics\n",
        b"GETATTR: ", b"1 2 3 4 5 6 7 8 \n", b"-1", b"9" * 30, b"\xff", b"\x00", b" mounted on ", b" with fstype nfs4",
    ]
)  # fmt: skip


@given(st.lists(st.one_of(PIECES, st.binary(max_size=8)), max_size=40).map(b"".join))
def test_hostile_text_gives_valid_mounts(text: bytes) -> None:
    for mount in parse_mountstats(text):
        assert not {" ", "\n"} & set(mount.filesystem.name)
        assert mount.filesystem.fstype in {"nfs", "nfs4"}
        assert all(amount is None or 0 <= amount for amount in (*mount.use, mount.age_seconds))


@given(*[st.integers(0, 2**64 - 1)] * 3, st.integers(0, 10**11))
def test_numbers_are_those_of_the_text(read: int, write: int, operations: int, age: int) -> None:
    body = (
        f"\tage:\t{age}\n\tbytes:\t1 2 3 4 {read} {write} 5 6 \n\tper-op statistics\n\t      LOOKUP: {operations} 1 0\n"
    )

    assert (read, write, operations, age) == (*(mount := parse_one(body.encode())).use, mount.age_seconds)
