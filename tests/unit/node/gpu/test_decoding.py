# SPDX-License-Identifier: Apache-2.0
"""Answers of the child are believed only as far as they make sense."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.node.gpu.nvml import NvmlUnavailable, decode
from slurmscope.node.gpu.records import Gpu, GpuProcess, GpuReason

FIELDS = (
    "index", "uuid", "problem", "model", "minor", "parent_uuid", "processes", "utilization_percent",
    "power_milliwatts", "memory_used_bytes", "temperature_celsius", "has_instances",
)  # fmt: skip
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6),
    max_leaves=12,
)


def answer(**fields: object) -> bytes:
    return json.dumps({"taken_at": 1.5, "devices": [{"index": 0, "uuid": "GPU-1", **fields}]}).encode()


def test_units_are_converted() -> None:
    (gpu,) = decode(
        answer(power_milliwatts=1500, energy_millijoules=2500, throttled_nanoseconds={"power_cap": 3 * 10**8})
    ).devices
    assert (1.5, 2.5, {"power_cap": 0.3}) == (gpu.power_watts, gpu.energy_joules, gpu.throttled_seconds)


@pytest.mark.parametrize("wrong", [-1, True, "7", None, 2**64 - 1, 10**400, float("nan"), float("inf"), [1]])
def test_value_that_cannot_be_is_absent(wrong: object) -> None:
    (gpu,) = decode(answer(power_milliwatts=wrong, memory_used_bytes=wrong, minor=wrong)).devices
    assert (None, None, None) == (gpu.power_watts, gpu.memory_used_bytes, gpu.minor)


def test_device_without_a_name_is_a_problem() -> None:
    assert (Gpu(index=3, problem=GpuReason.MALFORMED),) == decode(answer(index=3, uuid=None)).devices


def test_unknown_problem_is_a_failure() -> None:
    assert (Gpu(index=0, problem=GpuReason.FAILED),) == decode(answer(problem="on fire")).devices


def test_odd_list_of_processes_is_no_list() -> None:
    assert decode(answer(processes=[[1, 2], [3]])).devices[0].processes is None
    assert (GpuProcess(pid=1, memory_bytes=2),) == decode(answer(processes=[[1, 2]])).devices[0].processes


def test_names_are_one_line_and_short() -> None:
    (gpu,) = decode(answer(model='Fake\n"GPU' + "x" * 1000)).devices
    assert gpu.model.startswith('Fake\\n"GPUxxx')
    assert 250 > len(gpu.model)


def test_error_is_raised_with_its_reason() -> None:
    with pytest.raises(NvmlUnavailable, match="no way") as raised:
        decode(b'{"error": "version_mismatch", "detail": "no way"}')
    assert GpuReason.VERSION_MISMATCH is raised.value.why
    assert "version_mismatch" == raised.value.reason


@given(ANYTHING)
def test_any_json_is_decoded_or_rejected(value: object) -> None:
    for whole in (value, {"taken_at": 1.0, "devices": value}, {"taken_at": 1.0, "devices": [value]}):
        try:
            sample = decode(json.dumps(whole).encode())
        except NvmlUnavailable:
            continue
        assert all(gpu.index >= 0 for gpu in sample.devices)


@given(st.binary(max_size=64))
def test_any_bytes_are_decoded_or_rejected(line: bytes) -> None:
    with pytest.raises(NvmlUnavailable):
        decode(line)
