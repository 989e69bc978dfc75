# SPDX-License-Identifier: Apache-2.0
"""Files of procfs are read whatever a process calls itself."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.errors import MalformedAnswer
from slurmscope.node.procfs.stat import (
    IoCounts,
    clean_command,
    parse_environment,
    parse_file_limit,
    parse_io,
    parse_memory_bytes,
    parse_queue_ns,
    parse_stat,
    parse_switches,
    parse_thread_stat,
    parse_uptime_seconds,
)
from tests.unit.node.proc_tree import FIXTURES

PIDS = sorted(int(folder.name) for folder in (FIXTURES / "first").iterdir() if folder.is_dir())
REST = b" S 12 34 56 0 -1 0 7 8 9 0 10 11 12 13 20 0 3 0 99 4096 42 " + b"0 " * 13 + b"17 5 0"


def status_of(pid: int) -> dict[str, str]:
    text = (FIXTURES / "first" / str(pid) / "status").read_text(encoding="utf-8")
    return dict(re.findall(r"^(\w+):\s*(.*)$", text, re.MULTILINE))


@pytest.mark.parametrize("pid", PIDS)
def test_stat_agrees_with_the_status_of_the_same_process(pid: int) -> None:
    status = status_of(pid)

    sample = parse_stat((FIXTURES / "first" / str(pid) / "stat").read_bytes(), 4242)

    assert int(status["Pid"]) == sample.pid
    assert int(status["PPid"]) == sample.parent_id
    assert int(status["NSpgid"]) == sample.group_id
    assert int(status["NSsid"]) == sample.session_id
    assert status["Name"] == sample.command
    assert status["State"][0] == sample.state
    assert int(status["Threads"]) == sample.threads
    assert int(status["VmRSS"].split()[0]) * 1024 == sample.resident_pages * 4096
    assert 4242 == sample.uid


def test_every_field_comes_from_its_own_place() -> None:
    sample = parse_stat(b"4 (x)" + REST, 0)

    assert (4, 12, 34, 56, 99, "S", "x", 3) == sample[:8]
    assert (10, 11) == (sample.user_ticks, sample.system_ticks)
    assert (7, 8, 9) == (sample.minor_faults, sample.child_minor_faults, sample.major_faults)
    assert 42 == sample.resident_pages


def test_last_core_is_field_39() -> None:
    fields = [str(number) for number in range(3, 53)]
    fields[0] = "R"

    thread = parse_thread_stat(f"77 (x) {' '.join(fields)}".encode())

    assert (77, 22, "R", 39) == thread


@given(st.binary(max_size=64))
def test_no_command_moves_the_numbers(command: bytes) -> None:
    sample = parse_stat(b"4 (" + command + b")" + REST, 7)

    assert (4, 12, 34, 56, 99) == sample[:5]
    assert sample.command.isprintable()


@given(st.binary(max_size=400))
def test_any_text_is_read_or_rejected(text: bytes) -> None:
    try:
        sample = parse_stat(text, 0)
    except MalformedAnswer:
        return
    assert b"(" in text
    assert isinstance(sample.pid, int)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"bash", "bash"),
        (b"a) (b", "a) (b"),
        ('grüß"'.encode(), 'grüß"'),
        (b"a\nb\tc\x1b", "a?b?c?"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("\u2028x".encode(), "?x"),
        (b"k" * 80, "k" * 64),
    ],
)
def test_command_is_one_line_of_text(name: bytes, shown: str) -> None:
    assert shown == clean_command(name)


@pytest.mark.parametrize("pid", PIDS)
def test_io_of_real_processes_is_read_by_name(pid: int) -> None:
    text = (FIXTURES / "first" / str(pid) / "io").read_text(encoding="utf-8")
    named = {name: int(value) for name, value in re.findall(r"(\w+): (\d+)", text)}

    counts = parse_io(text.encode())

    assert counts == IoCounts(
        read_chars=named["rchar"],
        write_chars=named["wchar"],
        reads=named["syscr"],
        writes=named["syscw"],
        read_bytes=named["read_bytes"],
        write_bytes=named["write_bytes"],
    )


@pytest.mark.parametrize(
    "text", [b"", b"rchar: 1\n", b"rchar: x wchar: 1 syscr: 1 syscw: 1 read_bytes: 1 write_bytes: 1"]
)
def test_io_of_another_shape_is_no_measurement(text: bytes) -> None:
    assert parse_io(text) is None


@given(st.binary(max_size=300))
def test_io_switches_and_limits_never_raise(text: bytes) -> None:
    parse_io(text)
    parse_switches(text)
    parse_queue_ns(text)
    parse_file_limit(text)
    parse_environment(text, {"A"})


@pytest.mark.parametrize("pid", PIDS)
def test_switches_are_the_last_lines_of_status(pid: int) -> None:
    status = status_of(pid)
    expected = int(status["voluntary_ctxt_switches"]), int(status["nonvoluntary_ctxt_switches"])

    assert expected == parse_switches((FIXTURES / "first" / str(pid) / "status").read_bytes())


def test_name_cannot_forge_switches() -> None:
    status = b"Name:\tvoluntary_ctxt_switches:\t9\nvoluntary_ctxt_switches:\t1\nnonvoluntary_ctxt_switches:\t2\n"

    assert (1, 2) == parse_switches(status)
    assert parse_switches(b"Name:\tx\n") is None
    assert parse_switches(b"\nvoluntary_ctxt_switches:\nnonvoluntary_ctxt_switches:") is None


def test_time_that_a_thread_ran_and_waited_is_read() -> None:
    assert (174731644, 14244599) == parse_queue_ns(b"174731644 14244599 429\n")
    assert (0, 0) == parse_queue_ns(b"0 0 0\n")
    assert [None] * 3 == [parse_queue_ns(text) for text in (b"1 2\n", b"1 -2 3\n", b"9" * 20 + b" 1 1\n")]


def test_soft_limit_of_open_files_is_read() -> None:
    assert 524288 == parse_file_limit((FIXTURES / "first" / "248" / "limits").read_bytes())
    assert 1024 == parse_file_limit(b"Max open files            1024                 4096                 files     \n")
    assert parse_file_limit(b"Max open files            unlimited            unlimited            files     \n") is None
    assert parse_file_limit(b"") is None


def test_first_value_of_a_variable_counts() -> None:
    text = b"A=1\0AB=2\0A=3\0NOTHING\0B=x=y\0C=\xff\0"

    assert {"A": "1", "B": "x=y", "C": "\ufffd"} == parse_environment(text, {"A", "B", "C", "NOTHING"})


def test_machine_is_read() -> None:
    assert 35.65 == parse_uptime_seconds((FIXTURES / "first" / "uptime").read_bytes())
    assert 2014140 * 1024 == parse_memory_bytes((FIXTURES / "first" / "meminfo").read_bytes())


def test_machine_of_another_shape_is_rejected() -> None:
    with pytest.raises(MalformedAnswer, match="uptime"):
        parse_uptime_seconds(b"")
    with pytest.raises(MalformedAnswer, match="meminfo"):
        parse_memory_bytes(b"MemFree: 1 kB\n")
