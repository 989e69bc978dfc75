# SPDX-License-Identifier: Apache-2.0
"""Datagrams of the plugin are parsed; anything else is refused as a whole."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.errors import MalformedAnswer
from slurmscope.profile.events import (
    MAX_DATAGRAM_BYTES,
    EventKind,
    ProfileEvent,
    ProfileSeries,
    Sample,
    SampledField,
    StepKey,
    parse_event,
)
from tests.fakes.profile_samples import WRONG_PARTS

# Captured from the plugin in slurmstepd 22.05.8, shortened.
SAMPLE = (
    b"slurm-profile/1\tevent=sample\tjob=12\tstep=0\tnode=n1\tuid=1001\tstart=1700000000\tseq=7\tlost=2"
    b"\tseries=Tasks\ttask=1\tfrom=jobacct_gather/cgroup\ttime=1700000012\tgpu=0"
    b"\tCPUTime:d=1.98:11.789999999999999\tRSS:u=20480:18446744073709551615"
)


def test_sample_is_parsed() -> None:
    expected = ProfileEvent(
        kind=EventKind.SAMPLE,
        key=StepKey(12, "0", "n1"),
        uid=1001,
        start_seconds=1700000000,
        number=7,
        lost=2,
        sample=Sample(
            series=ProfileSeries.TASKS,
            task="1",
            time_seconds=1700000012,
            sampler="jobacct_gather/cgroup",
            fields={"CPUTime": SampledField(1.98, 11.789999999999999), "RSS": SampledField(20480.0, 2.0**64)},
        ),
    )

    assert expected == parse_event(SAMPLE)


def test_node_wide_sample_has_no_task() -> None:
    energy = parse_event(SAMPLE.replace(b"series=Tasks", b"series=Energy").replace(b"gpu=0", b"gpu=1"))

    assert energy.sample is not None
    assert (ProfileSeries.ENERGY, "", True) == (energy.sample.series, energy.sample.task, energy.sample.has_gpus)


@pytest.mark.parametrize("kind", ["step_start", "dataset", "task_end", "step_end"])
def test_other_events_have_no_sample_and_may_have_further_keys(kind: str) -> None:
    event = parse_event(SAMPLE.replace(b"event=sample", f"event={kind}\tnovelty=1".encode()))

    assert (EventKind(kind), None) == (event.kind, event.sample)


@pytest.mark.parametrize("step", ["0", "4294967295", "batch", "extern", "interactive", "unknown", "3+1"])
def test_steps_have_slurms_names(step: str) -> None:
    assert step == parse_event(SAMPLE.replace(b"step=0", f"step={step}".encode())).key.step


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *WRONG_PARTS,
        (b"slurm-profile/1", b"slurm-profile/2"),
        (b"event=sample", b"event=other"),
        (b"event=sample\t", b""),
        (b"job=12", b"job=-1"),
        (b"job=12", b"job=12\tjob=13"),
        (b"node=n1", b"node="),
        (b"node=n1", b"node=n%20one"),
        (b"node=n1", b"node=n1%0A"),
        (b"node=n1", b"node=" + b"n" * 256),
        (b"series=Tasks", b"series=Other"),
        (b"time=1700000012", b"time=now"),
        (b"uid=1001", b"uid"),
        (b"uid=1001", b"uid=1001 "),
        (b"CPUTime:d=1.98:11.789999999999999", b"CPUTime:d=1.98"),
        (b"CPUTime:d=1.98:11.789999999999999", b"CPUTime:d=1.98:0x1p3"),
        (b"CPUTime:d=1.98:11.789999999999999", b"CPUTime:d=1_0.5:1"),
        (b"RSS:u=20480", b"RSS:u=-20480"),
        (b"n1", b"n\xc3\xa9"),
    ],
)
def test_datagram_with_any_wrong_part_is_refused(old: bytes, new: bytes) -> None:
    assert old in SAMPLE
    with pytest.raises(MalformedAnswer):
        parse_event(SAMPLE.replace(old, new, 1))


def test_too_long_datagram_is_refused() -> None:
    padding = b"\tpadding=" + b"x" * MAX_DATAGRAM_BYTES
    with pytest.raises(MalformedAnswer, match="too long"):
        parse_event(SAMPLE + padding)


@given(st.binary(max_size=300) | st.binary(max_size=200).map(lambda rest: SAMPLE[:60] + rest))
def test_any_bytes_are_parsed_or_refused(datagram: bytes) -> None:
    try:
        parse_event(datagram)
    except MalformedAnswer:
        return


@given(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255))
def test_one_wrong_byte_never_raises_anything_else(place: int, byte: int) -> None:
    try:
        parse_event(SAMPLE[:place] + bytes([byte]) + SAMPLE[place + 1 :])
    except MalformedAnswer:
        return


@given(st.text(st.characters(exclude_characters="\0"), max_size=30), st.floats(allow_nan=False), st.floats(min_value=0))
def test_any_field_name_and_number_survive(name: str, value: float, total: float) -> None:
    escaped = quote(name.encode("utf-8", "replace"), safe="")
    field = f"\t{escaped}:d={value!r}:{total!r}".replace("~", "%7E").encode()
    event = parse_event(SAMPLE.replace(b"\tCPUTime:d=1.98:11.789999999999999", field))

    assert event.sample is not None
    assert SampledField(value, total) == event.sample.fields[name.encode("utf-8", "replace").decode()]
