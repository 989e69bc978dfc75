# SPDX-License-Identifier: Apache-2.0
"""Errors in the kernel's log count for their GPU, and those that the library reports too count once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.node.gpu.faults import KernelLog
from slurmscope.node.gpu.records import Gpu, XidEvent

GPUS = (
    Gpu(index=0, uuid="GPU-a", bus_id="00000000:1A:00.0"),
    Gpu(index=1, uuid="GPU-b", bus_id="00000000:C1:00.0"),
    Gpu(index=1, uuid="MIG-b", bus_id="00000000:C1:00.0", parent_uuid="GPU-b"),
)
# As the driver writes them.
LOST = "NVRM: Xid (PCI:0000:1a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
PAGE_FAULT = "NVRM: Xid (PCI:0000:c1:00): 31, pid=2417, name=python, Ch 00000008, intr 00000000. MMU Fault"
OF_INSTANCE = "NVRM: Xid (PCI:0000:c1:00 GPU-I:02): 94, pid=2417, name=a, Contained: SM (0x1). RST: No, D-RST: No"


class Log:
    """Be the kernel's log: a pipe returns one write after the other."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.log = KernelLog(path, clock=lambda: 2_000_000.0, uptime=lambda: 1000.0)
        self._writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK)

    def say(self, *messages: str) -> list[XidEvent]:
        """Write messages of second 900 since boot, and return what only the log has."""
        for message in messages:
            os.write(self._writer, f"3,7,900500000,-;{message}\n SUBSYSTEM=pci\n".encode())
            found = self.log.read()
        return list(self.log.add(found if messages else [], GPUS, ()))

    def close(self) -> None:
        self.log.close()
        os.close(self._writer)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with closing(Log(tmp_path / "kmsg")) as opened:
        yield opened


@pytest.mark.parametrize(
    ("message", "uuid", "xid"), [(LOST, "GPU-a", 79), (PAGE_FAULT, "GPU-b", 31), (OF_INSTANCE, "GPU-b", 94)]
)
def test_error_is_that_of_the_gpu_at_its_address(message: str, uuid: str, xid: int, log: Log) -> None:
    # It happened 99.5 seconds before now.
    assert [XidEvent(uuid=uuid, xid=xid, at_seconds=1_999_900.5)] == log.say(message)


def test_error_of_a_gpu_that_is_gone_since_is_still_its_own(log: Log) -> None:
    log.log.add([], GPUS, ())

    assert "GPU-a" == log.log.add([((0, 0x1A, 0), 79, 5.0)], [], ())[0].uuid
    assert () == log.log.add([((0, 0x1B, 0), 79, 5.0)], [], ())


@pytest.mark.parametrize(
    "message",
    [
        "python[2417]: NVRM: Xid (PCI:0000:1a:00): 79, forged",
        "NVRM: Xid (PCI:0000:1a:00): 123456, too long",
        "NVRM: GPU 0000:1a:00.0: GPU has fallen off the bus.",
        " NVRM: Xid (PCI:0000:1a:00): 79, of a second line",
    ],
)
def test_other_messages_are_no_errors(message: str, log: Log) -> None:
    assert [] == log.say(message)


@given(st.binary(max_size=200))
def test_any_record_is_read(record: bytes) -> None:
    reader, writer = os.pipe()
    try:
        os.write(writer, record or b"\n")
        with closing(KernelLog(Path(f"/proc/self/fd/{reader}"))) as log:
            assert isinstance(log.read(), list)
    finally:
        os.close(reader)
        os.close(writer)


def test_error_that_the_library_reports_counts_once() -> None:
    log = KernelLog(Path("/nonexistent"))
    event = XidEvent(uuid="GPU-a", xid=79, at_seconds=7.0)
    logged = ((0, 0x1A, 0), 79, 6.0)

    assert (event,) == log.add([logged], GPUS, [event])
    # It was logged a moment after the log was read.
    assert (event,) == log.add([], GPUS, [event])
    assert () == log.add([logged], GPUS, [])
    # The next one is another, and so is a second one of the same kind.
    assert [79] == [one.xid for one in log.add([logged], GPUS, [])]
    assert [7.0, 6.0] == [one.at_seconds for one in log.add([logged, logged], GPUS, [event])]


def test_log_that_may_not_be_read_has_no_errors(tmp_path: Path) -> None:
    with closing(KernelLog(tmp_path)) as log:  # a folder
        assert [] == log.read()
        assert () == log.add(log.read(), GPUS, ())


def test_errors_of_before_are_not_those_of_now() -> None:
    """The real log of this machine has thousands of records."""
    with closing(KernelLog()) as log:
        assert [] == log.read()
