# SPDX-License-Identifier: Apache-2.0
"""Whatever the driver does, the agent lives, knows why, and tries again after a pause."""

from __future__ import annotations

import logging
import os
import signal
import sys
from contextlib import closing
from pathlib import Path

import pytest

from slurmscope.node.gpu.nvml import CHILD, NvmlProcess, NvmlReader, NvmlUnavailable, child_environment
from slurmscope.node.gpu.records import GpuReason
from tests.fakes.nvml.library import FakeNvml
from tests.processes import until
from tests.unit.node.gpu.conftest import Start

PATIENT = 60.0


class Clock:
    """Be a clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 500.0

    def __call__(self) -> float:
        return self.now


def failure(reader: NvmlReader) -> NvmlUnavailable:
    with pytest.raises(NvmlUnavailable) as raised:
        reader.read()
    return raised.value


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (9, GpuReason.DRIVER_NOT_LOADED),
        (17, GpuReason.NO_PERMISSION),
        (4, GpuReason.NO_PERMISSION),
        (18, GpuReason.VERSION_MISMATCH),
        (15, GpuReason.LOST),
        (999, GpuReason.FAILED),
    ],
)
def test_code_of_a_failed_start_is_a_reason(code: int, expected: GpuReason, driver: FakeNvml, start: Start) -> None:
    driver.say(f"code nvmlInitWithFlags {code}")
    assert expected is failure(start()).why


def test_missing_library_is_a_missing_driver(start: Start, tmp_path: Path) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a real driver")
    reader = start(environment={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)})
    assert GpuReason.DRIVER_NOT_LOADED is failure(reader).why


def test_missing_binding_is_reported(start: Start, tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('no such thing')\n", encoding="ascii")
    reader = start(environment={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"})
    assert GpuReason.NOT_INSTALLED is failure(reader).why


def test_without_a_driver_no_child_is_started(start: Start, tmp_path: Path) -> None:
    reader = start(driver_signs=(tmp_path / "nowhere",), argv=("/bin/false",))
    assert GpuReason.DRIVER_NOT_LOADED is failure(reader).why


def test_hanging_call_is_a_timeout_and_the_child_is_gone(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(1)
    driver.say("hang nvmlDeviceGetUtilizationRates")
    reader = start(start_timeout_seconds=1.0)

    assert GpuReason.TIMEOUT is failure(reader).why
    assert reader.pid is None


def test_crash_is_reported_and_the_next_child_works(driver: FakeNvml, start: Start) -> None:
    clock = Clock()
    driver.add_gpus(1)
    driver.say("crash nvmlDeviceGetName@0")
    reader = start(clock=clock)

    crashed = failure(reader)
    driver.take_back("crash")
    clock.now += PATIENT

    assert GpuReason.CRASHED is crashed.why
    assert f"signal {signal.SIGSEGV.value}" in str(crashed)
    assert 1 == len(reader.read().devices)


def test_killed_child_is_reported_as_crashed(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(1)
    reader = start()
    reader.read()
    assert reader.pid is not None
    os.kill(reader.pid, signal.SIGKILL)

    assert GpuReason.CRASHED is failure(reader).why


def test_driver_that_goes_away_while_running_is_reported(driver: FakeNvml, start: Start) -> None:
    driver.add_gpus(1)
    reader = start()
    reader.read()

    driver.say("code nvmlDeviceGetCount 9")

    assert GpuReason.DRIVER_NOT_LOADED is failure(reader).why


def test_pauses_double_up_to_a_limit_and_shrink_after_success(driver: FakeNvml, start: Start) -> None:
    clock = Clock()
    driver.add_gpus(1)
    driver.say("code nvmlInitWithFlags 9")
    reader = start(clock=clock)
    failure(reader)
    starts = []
    for _ in range(700):  # one reading each second
        clock.now += 1
        before = driver.calls()["nvmlInitWithFlags@-1"]
        failure(reader)
        if driver.calls()["nvmlInitWithFlags@-1"] > before:
            starts.append(clock.now - 500)
    driver.take_back("code")
    clock.now += 300
    reader.read()
    driver.say("crash nvmlDeviceGetName@0", "code nvmlDeviceGetUUID@0 15", "crash nvmlDeviceGetCount")
    failure(reader)
    driver.take_back("crash")
    clock.now += 5

    assert [5, 15, 35, 75, 155, 315, 615] == starts
    assert GpuReason.LOST is reader.read().devices[0].problem


def test_child_is_started_again_for_a_gpu_that_stays_lost(driver: FakeNvml, start: Start) -> None:
    clock = Clock()
    driver.add_gpus(2)
    driver.say("code nvmlDeviceGetUUID@1 15")
    reader = start(clock=clock)
    reader.read()
    first = reader.pid
    clock.now += 301
    reader.read()
    driver.take_back("code")

    devices = reader.read().devices

    assert [None, None] == [gpu.problem for gpu in devices]
    assert first != reader.pid


def test_same_failure_is_logged_once(driver: FakeNvml, start: Start, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    driver.say("code nvmlInitWithFlags 18")
    reader = start(clock=clock)
    with caplog.at_level(logging.INFO, logger="slurmscope.node.gpu.nvml"):
        for _ in range(3):
            failure(reader)
            clock.now += 1000

    assert ["WARNING"] == [record.levelname for record in caplog.records]


class Stuck:
    """Be a child that neither answers nor ends, as one that hangs inside the kernel."""

    is_gone = False
    pid = 1

    def request(self, command: str, timeout_seconds: float) -> bytes:
        raise NvmlUnavailable(GpuReason.TIMEOUT, "no answer")

    def close(self) -> None:
        """Take no notice."""

    def end(self) -> None:
        """Take no notice."""


def test_one_that_cannot_be_killed_gets_no_second_beside_it(start: Start) -> None:
    clock = Clock()
    started: list[Stuck] = []

    def launch() -> Stuck:
        started.append(Stuck())
        return started[-1]

    reader = start(clock=clock, launch=launch)
    for _ in range(3):
        assert GpuReason.TIMEOUT is failure(reader).why
        clock.now += 1000
    assert 1 == len(started)

    started[0].is_gone = True
    failure(reader)
    assert 2 == len(started)


def test_child_ends_when_its_parent_is_gone(driver: FakeNvml) -> None:
    driver.add_gpus(1)
    with closing(NvmlProcess(driver.environment)) as process:
        process.request("sample", PATIENT)
        process._child.stdin.close()  # type: ignore[union-attr]

        until(lambda: process.is_gone)


def test_child_that_hangs_ends_itself_when_its_parent_is_gone(driver: FakeNvml) -> None:
    driver.add_gpus(1)
    with closing(NvmlProcess(driver.environment)) as process:
        process.request("sample", PATIENT)
        driver.say("hang nvmlDeviceGetCount")
        assert process._child.stdin is not None
        os.write(process._child.stdin.fileno(), b"0.2 sample\n")

        until(lambda: process.is_gone)

        assert -signal.SIGALRM == process._child.returncode


def test_child_has_no_capabilities_and_leaves_no_core(driver: FakeNvml) -> None:
    driver.add_gpus(1)
    with closing(NvmlProcess(driver.environment)) as process:
        process.request("sample", PATIENT)

        assert (0, 0, 0) == capabilities(process.pid)
        assert "Max core file size        0 " in Path(f"/proc/{process.pid}/limits").read_text(encoding="ascii")


def capabilities(pid: int) -> tuple[int, ...]:
    """Return what a process may do now, could take, and would hand on."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    lines = dict(line.split(":", 1) for line in status.splitlines())
    return tuple(int(lines[name], 16) for name in ("CapEff", "CapPrm", "CapAmb"))


# Forbid a process the call capset (126) as systemd's SystemCallFilter does, then become another program.
FORBID = """
import ctypes, os, struct, sys
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 126), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
text = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
program = struct.pack("=H6xQ", len(steps), ctypes.addressof(text))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.create_string_buffer(program)) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.skipif(os.geteuid() != 0 or os.uname().machine != "x86_64", reason="needs root on x86_64")
def test_child_gives_up_capabilities_where_the_usual_way_is_forbidden(driver: FakeNvml) -> None:
    # Root without its privileges, but for one: like the agent's user, who may not reach this Python.
    privileges = ("--securebits=+noroot", "--inh-caps=+sys_ptrace", "--ambient-caps=+sys_ptrace")
    agent = ("/usr/bin/setpriv", *privileges, sys.executable, "-c", FORBID)
    driver.add_gpus(1)
    with closing(NvmlProcess(driver.environment, (*agent, "/bin/sleep", "60"))) as process:
        until(lambda: "sleep" in Path(f"/proc/{process.pid}/cmdline").read_text(encoding="ascii").split("\0")[0])
        before = capabilities(process.pid)
        process.end()
    with closing(NvmlProcess(driver.environment, (*agent, *CHILD))) as process:
        process.request("sample", PATIENT)
        after = capabilities(process.pid)

    assert (1 << 19, 1 << 19, 1 << 19) == before
    assert (0, 0, 0) == after


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("print('{')", GpuReason.MALFORMED),
        ("print('{\"devices\": []}')", GpuReason.MALFORMED),
        ("import sys; sys.stdout.write('x' * 9_000_000)", GpuReason.MALFORMED),
        ("print('half', end='')", GpuReason.CRASHED),
    ],
)
def test_answer_that_is_none_is_rejected(script: str, expected: GpuReason, start: Start) -> None:
    reader = start(argv=(sys.executable, "-c", f"input()\n{script}"))
    assert expected is failure(reader).why


def test_program_that_is_not_there_is_a_failure(start: Start) -> None:
    assert GpuReason.FAILED is failure(start(argv=("/nonexistent/python",))).why


def test_child_gets_no_settings_of_the_agent() -> None:
    inherited = {"PATH": "/bin", "LD_LIBRARY_PATH": "/lib", "SLURMSCOPE_TOKEN": "secret", "LD_PRELOAD": "x"}
    assert {"PATH": "/bin", "LD_LIBRARY_PATH": "/lib"} == child_environment(inherited)
