# SPDX-License-Identifier: Apache-2.0
"""Check the meters of a node on trees of files as the kernel lays them out, with hand-worked numbers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmscope.node.energy import Covers, NodeEnergy
from slurmscope.node.energy_meters import (
    MAX_BYTES,
    EnergyMeter,
    EnergyReader,
    IpmiPower,
    Sensor,
    parse_cpu_time,
    parse_ipmi,
    read_output,
)
from slurmscope.node.gpu.records import Gpus
from slurmscope.node.job_use import NodeJobs
from tests.leftovers import nothing_left
from tests.processes import until

# As ipmitool 1.8 and FreeIPMI 1.6 print them.
IPMITOOL = (
    b"\n    Instantaneous power reading:                   312 Watts\n    Minimum during sampling period: 20 Watts\n"
)
FREEIPMI = b"Current Power                        : 312 Watts\nMinimum Power over sampling duration : 20 watts\n"


def write(root: Path, **files: object) -> None:
    for name, value in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{value}\n")


RANGE_MICROJOULES = 65_532_610_987  # of most servers


def zone(sysfs: Path, number: str, name: str, microjoules: int) -> None:
    folder = sysfs / f"class/powercap/intel-rapl:{number}"
    write(folder, name=name, energy_uj=microjoules, max_energy_range_uj=RANGE_MICROJOULES)


def make_meter(sysfs: Path) -> EnergyMeter:
    return EnergyMeter(sysfs, lambda _: {}, iter(range(0, 10_000, 10)).__next__)


def rapl(sysfs: Path, package: int, core: int, dram: int, psys: int | None = None) -> None:
    zone(sysfs, "0", "package-0", package)
    zone(sysfs, "0:0", "core", core)
    zone(sysfs, "0:1", "dram", dram)
    if psys is not None:
        zone(sysfs, "1", "psys", psys)


def rises(meter: EnergyMeter) -> Iterator[float | None]:
    while (found := meter.read()) is not None:
        yield found.rise_joules


def test_rapl_counts_packages_and_memory_once(tmp_path: Path) -> None:
    meter = make_meter(tmp_path)
    rapl(tmp_path, 0, 0, 0)
    first = meter.read()
    rapl(tmp_path, 50_000_000, 40_000_000, 7_000_000)
    second = meter.read()

    assert first
    assert second
    assert first.rise_joules is None
    assert 57 == pytest.approx(second.rise_joules)
    assert (Covers.PROCESSORS, "rapl") == (second.covers, second.source)
    assert {"package-0": 50, "package-0/core": 40, "package-0/dram": 7} == pytest.approx(dict(second.domains))


def test_rapl_counter_that_wraps_goes_on(tmp_path: Path) -> None:
    readings = rises(make_meter(tmp_path))
    rapl(tmp_path, RANGE_MICROJOULES - 1_000_000, 0, 0)
    assert next(readings) is None
    rapl(tmp_path, 4_000_000, 0, 0)  # 1 J up to its range, and 4 J from 0

    assert 5 == pytest.approx(next(readings))


def test_psys_is_the_meter_unless_it_stands_still(tmp_path: Path) -> None:
    readings = rises(make_meter(tmp_path))
    rapl(tmp_path, 0, 0, 0, 0)
    next(readings)
    rapl(tmp_path, 50_000_000, 0, 0, 80_000_000)
    assert 80 == pytest.approx(next(readings))
    rapl(tmp_path, 60_000_000, 0, 0, 80_000_000)
    assert 10 == pytest.approx(next(readings))


def test_domain_that_cannot_be_read_once_loses_nothing(tmp_path: Path) -> None:
    readings = rises(make_meter(tmp_path))
    rapl(tmp_path, 0, 0, 0)
    next(readings)
    rapl(tmp_path, 50_000_000, 0, 0)
    write(tmp_path / "class/powercap/intel-rapl:0:1", energy_uj="n/a")
    assert next(readings) is None
    rapl(tmp_path, 80_000_000, 0, 9_000_000)
    assert 89 == pytest.approx(next(readings))


def test_domain_that_is_gone_for_long_is_a_gap(tmp_path: Path) -> None:
    meter = EnergyMeter(tmp_path, lambda _: {}, iter((0, 301, 301, 311)).__next__)
    rapl(tmp_path, 0, 0, 0)
    meter.read()
    rapl(tmp_path, 50_000_000, 0, 0)
    (tmp_path / "class/powercap/intel-rapl:0:1/energy_uj").unlink()
    gone = meter.read()
    rapl(tmp_path, 80_000_000, 0, 9_000_000)
    back = meter.read()

    assert gone
    assert back
    assert (None, False) == (gone.rise_joules, gone.is_late)
    assert 30 == pytest.approx(back.rise_joules)  # what the domain has counted in between is not known


def test_rapl_counter_that_may_have_wrapped_twice_is_a_gap(tmp_path: Path) -> None:
    # At 400 W for 300 s it counts 120 kJ: once and 54 kJ more.
    meter = EnergyMeter(tmp_path, lambda _: {}, iter((0, 300, 310)).__next__)
    found = []
    for joules in (0, 120_000, 124_000):
        rapl(tmp_path, joules * 10**6 % RANGE_MICROJOULES, 0, 0)
        reading = meter.read()
        assert reading
        found.append(reading.rise_joules)

    assert [None, None, 4000] == pytest.approx(found)


def test_power_is_not_integrated_over_a_time_in_which_nobody_read_it(tmp_path: Path) -> None:
    meter = EnergyMeter(tmp_path, lambda _: {}, iter((0, 3600, 3610)).__next__)
    write(tmp_path / "class/hwmon/hwmon0", name="power_meter", power1_average=300_000_000)
    found = [reading.rise_joules for _ in range(3) if (reading := meter.read())]

    assert [None, None, 3000] == pytest.approx(found)


def test_power_meter_that_fails_once_is_not_replaced_by_processors(tmp_path: Path) -> None:
    rapl(tmp_path, 0, 0, 0)
    found = []
    meter = make_meter(tmp_path)
    for watts in (300, 300, 0, 500, 500):  # boards report 0 for a power that they do not know
        write(tmp_path / "class/hwmon/hwmon0", name="power_meter", power1_average=watts * 10**6)
        reading = meter.read()
        assert reading
        found.append((reading.source, reading.rise_joules, reading.is_late))

    # At the fourth reading 20 s have passed since the second, at 300 to 500 W.
    assert [
        ("hwmon", None, False), ("hwmon", 3000, False), ("hwmon", None, True), ("hwmon", 8000, False),
        ("hwmon", 5000, False),
    ] == found  # fmt: skip


def test_cray_counter_is_preferred_and_one_set_back_is_a_gap(tmp_path: Path) -> None:
    rapl(tmp_path, 0, 0, 0)
    counters = tmp_path / "cray/pm_counters"
    meter = make_meter(tmp_path)
    found = []
    for joules in (1000, 1600, 20, 50):
        write(counters, energy=f"{joules} J 1700000000 us", cpu_energy="9 J 1 us")
        reading = meter.read()
        assert reading
        found.append((reading.source, reading.covers, reading.rise_joules))

    assert [("cray", Covers.NODE, rise) for rise in (None, 600, None, 30)] == found


def test_power_meters_are_integrated_and_modules_count_once(tmp_path: Path) -> None:
    hwmon = tmp_path / "class/hwmon"
    write(hwmon / "hwmon0", name="power_meter", power1_average=100_000_000, power1_oem_info="Module Power Socket 0")
    write(hwmon / "hwmon1", name="power_meter", power1_average=60_000_000, power1_oem_info="CPU Power Socket 0")
    write(hwmon / "hwmon2", name="amdgpu", power1_average=300_000_000)
    readings = rises(make_meter(tmp_path))
    next(readings)
    write(hwmon / "hwmon0", power1_average=200_000_000)

    assert 1500 == pytest.approx(next(readings))  # 10 s at 100 to 200 W


@pytest.mark.parametrize("answer", [IPMITOOL, FREEIPMI])
def test_power_of_ipmi_is_parsed(answer: bytes) -> None:
    assert 312 == parse_ipmi(answer)


@pytest.mark.parametrize("answer", [b"", b"Instantaneous power reading: 0 Watts", b"Current Power : 999999 Watts"])
def test_power_that_ipmi_does_not_know_is_not_measured(answer: bytes) -> None:
    assert parse_ipmi(answer) is None


def test_ipmi_never_blocks_a_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "class/ipmi/ipmi0", dev="1:1")
    gate, program = tmp_path / "gate", tmp_path / "ipmitool"
    os.mkfifo(gate)
    program.write_text(f"#!/bin/sh\nread line < {gate}\necho 'Instantaneous power reading: 312 Watts'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    power = IpmiPower(tmp_path)

    assert {"node": Sensor()} == power.read(tmp_path)  # returns although the command has not answered
    gate.write_text("go\n")
    until(lambda: power.read(tmp_path)["node"].watts is not None)
    power.close()
    assert 312 == power.read(tmp_path)["node"].watts


def test_meter_waits_for_the_first_answer_of_ipmi_and_takes_another_without_any(tmp_path: Path) -> None:
    rapl(tmp_path, 0, 0, 0)
    answers = [{"node": Sensor()}, {"node": Sensor(watts=100.0)}, {"node": Sensor(watts=200.0)}, {}, {}]
    # At the fourth reading it has been silent for longer than it is waited for.
    meter = EnergyMeter(tmp_path, lambda _: answers.pop(0), iter((0, 10, 20, 321, 321, 331)).__next__)
    found = [meter.read() for _ in answers[:]]

    assert [("ipmi", None), ("ipmi", None), ("ipmi", 1500), ("rapl", None), ("rapl", 0)] == [
        (reading.source, reading.rise_joules) for reading in found if reading
    ]
    assert [Covers.NODE] * 3 == [reading.covers for reading in found[:3] if reading]


def test_power_meter_that_reports_0_does_not_know_it(tmp_path: Path) -> None:
    write(tmp_path / "class/hwmon/hwmon0", name="power_meter", power1_average=0)
    assert make_meter(tmp_path).read() is None


def test_ipmi_without_end_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "class/ipmi/ipmi0", dev="1:1")
    program = tmp_path / "ipmitool"
    program.write_text("#!/bin/sh\nexec yes 'Instantaneous power reading: 312 Watts'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    power = IpmiPower(tmp_path)

    until(lambda: power.read(tmp_path)["node"].watts is not None)

    power.close()
    assert 312 == power.read(tmp_path)["node"].watts


def test_power_of_ipmi_expires() -> None:
    now = 0.0
    power = IpmiPower(Path("/nonexistent"), lambda: now)
    power._last = (0.0, 312.0)  # as its thread does
    assert 312 == power.read(Path("/"))["node"].watts
    now = 121.0
    assert {} == power.read(Path("/"))


def test_cpu_time_leaves_out_idle_and_waiting() -> None:
    stat = b"cpu  100 20 30 4000 500 6 7 8 9 10\ncpu0 1 2\ncpu1 1 2\nintr 5\n"
    assert (2, 1.71) == parse_cpu_time(stat)
    assert (0, None) == parse_cpu_time(b"")
    assert (0, None) == parse_cpu_time(b"cpu x\n")


def test_reader_adds_up_a_node_without_jobs(tmp_path: Path) -> None:
    write(tmp_path / "proc", stat="cpu  100 0 0 0 0 0 0 0\ncpu0 1")
    rapl(tmp_path / "sys", 0, 0, 0)
    clock = iter(range(0, 1000, 5)).__next__
    reader = EnergyReader(tmp_path, tmp_path / "proc", NodeJobs, Gpus, clock)
    reader.read()
    rapl(tmp_path / "sys", 90_000_000, 0, 10_000_000)
    found = reader.read()
    reader.close()

    assert isinstance(found, NodeEnergy)
    assert (100, 100, 0) == pytest.approx((found.total_joules, found.no_job_joules, found.jobs_joules))


def test_node_without_any_meter_has_none(tmp_path: Path) -> None:
    assert EnergyReader(tmp_path, tmp_path, NodeJobs, Gpus).read() is None


def test_command_that_prints_for_ever_is_cut_off_and_ended() -> None:
    with nothing_left():
        text = read_output(["sh", "-c", "yes & exec yes"], 60.0)

    assert b"y\ny\n" == text[:4]
    assert MAX_BYTES >= len(text)


def test_command_that_hangs_is_ended_with_all_that_it_started() -> None:
    with nothing_left():
        text = read_output(["sh", "-c", "echo 'Current Power : 300 Watts'; sleep 600 & exec sleep 600"], 0.5)

    assert 300 == parse_ipmi(text)


def test_command_that_is_missing_prints_nothing() -> None:
    assert b"" == read_output(["/nonexistent/ipmitool"], 1.0)
