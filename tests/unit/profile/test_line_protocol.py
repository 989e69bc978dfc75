# SPDX-License-Identifier: Apache-2.0
"""Lines of Slurm's influxdb plugin are parsed in the form of each release; a malformed one costs only itself."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.profile.events import ProfileSeries, Sample, SampledField, StepKey
from slurmscope.profile.influxdb import MAX_FIELDS, WrittenSample, parse_write
from tests.fakes.profile_samples import WRONG_PARTS

# Captured from acct_gather_profile/influxdb of 22.05.8, shortened.
TASK = (
    b"CPUFrequency,job=12,step=0,task=1,host=n1 value=2445 1700000012\n"
    b"CPUTime,job=12,step=0,task=1,host=n1 value=1.98 1700000012\n"
    b"RSS,job=12,step=0,task=1,host=n1 value=20480 1700000012\n"
)
LINE = b"CPUTime,job=12,step=0,task=1,host=n1 value=1.98 1700000012"
GROUPED = (
    b"task,cluster=lab,host=n1,job=12,sluid=sABC123,step=0,task=1,uid=1001,user=alice "
    b"CPUFrequency=2445i,CPUTime=1.98,RSS=20480i 1700000012\n"
)
FIELDS = {"CPUFrequency": 2445.0, "CPUTime": 1.98, "RSS": 20480.0}


def fields(**values: float) -> dict[str, SampledField]:
    """Return fields that are not added up."""
    return {name: SampledField(value, value) for name, value in values.items()}


def only(body: bytes) -> WrittenSample:
    """Parse a body that has one sample and nothing else."""
    (written,), malformed = parse_write(body)
    assert 0 == malformed
    return written


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(TASK, id="22.05"),
        pytest.param(TASK.replace(b"job=12,step=0,task=1,host=n1", b"host=n1,job=12,step=0,task=1"), id="26.05"),
        pytest.param(GROUPED, id="26.05 grouped"),
    ],
)
def test_task_sample_of_each_release_is_the_same(body: bytes) -> None:
    sample = Sample(series=ProfileSeries.TASKS, task="1", time_seconds=1700000012, fields=fields(**FIELDS))

    assert WrittenSample(StepKey(12, "0", "n1"), sample) == only(body)


@pytest.mark.parametrize(
    ("name", "tag", "series"),
    [
        ("Power", "Energy", ProfileSeries.ENERGY),
        ("GPU0Power", "Energy", ProfileSeries.ENERGY),
        ("ReadMB", "Filesystem", ProfileSeries.FILESYSTEM),
        ("PacketsIn", "Network", ProfileSeries.NETWORK),
        ("OutMB", "Network", ProfileSeries.NETWORK),
    ],
)
def test_node_wide_samples_have_their_series_in_each_release(name: str, tag: str, series: ProfileSeries) -> None:
    for line in (
        f"{name},job=12,step=0,task={tag},host=n1 value=7 1700000012",
        f"{name},host=n1,job=12,step=0 value=7 1700000012",
        f"{tag.lower()},host=n1,job=12,step=0 {name}=7i 1700000012",
    ):
        sample = only(line.encode()).sample

        assert (series, "", fields(**{name: 7.0})) == (sample.series, sample.task, sample.fields)


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("0", "0"), ("-5", "batch"), ("4294967291", "batch"), ("batch", "batch"), ("-4", "extern"),
        ("4294967292", "extern"), ("-6", "interactive"), ("interactive", "interactive"), ("-3", "unknown"),
        ("TBD", "unknown"), ("3+1", "3+1"),
    ],
)  # fmt: skip
def test_steps_have_the_names_of_the_other_plugin(text: str, step: str) -> None:
    assert step == only(LINE.replace(b"step=0", f"step={text}".encode())).key.step


def test_job_of_a_federation_has_no_sign() -> None:
    """Slurm prints the 32 bits as a signed number."""
    assert 0xFC00000C == only(LINE.replace(b"job=12", b"job=-67108852")).key.job_id


def test_second_sample_of_the_same_second_is_a_sample_of_its_own() -> None:
    """Slurm samples all tasks again when one ends."""
    written, malformed = parse_write(TASK + TASK)

    assert ([FIELDS.keys()] * 2, 0) == ([one.sample.fields.keys() for one in written], malformed)


def test_samples_of_tasks_and_steps_are_apart() -> None:
    other = LINE.replace(b"task=1", b"task=0")
    written, _ = parse_write(b"\n".join((LINE, other, other.replace(b"step=0", b"step=1"))))

    assert [("0", "1"), ("0", "0"), ("1", "0")] == [(one.key.step, one.sample.task) for one in written]


@pytest.mark.parametrize("number", ["inf", "-inf", "nan", "-nan", "-1.50"])
def test_impossible_values_are_left_to_the_units(number: str) -> None:
    value = only(LINE.replace(b"1.98", number.encode())).sample.fields["CPUTime"].value

    assert value < 0 or not math.isfinite(value)


def test_empty_body_has_nothing() -> None:
    """Before 26.05, Slurm sends one at the end of a step that is not profiled."""
    assert ((), 0) == parse_write(b"")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *WRONG_PARTS,
        (b"CPUTime", b""),
        (b"CPUTime", b"CPU Time"),
        (b"CPUTime", b"CPU\\,Time"),
        (b"job=12,", b""),
        (b"job=12", b"job=4294967296"),
        (b"job=12", b"job=-2147483649"),
        (b"job=12", b"job=12,job=13"),
        (b"step=0", b"step=other"),
        (b"host=n1", b"host=n1\r"),
        (b"host=n1", b'host="n1"'),
        (b"host=n1", b"host=" + b"n" * 256),
        (b"host=n1", b"host=n\xc3\xa9"),
        (b"task=1", b"task=Tasks"),
        (b",task=1", b""),
        (b"value=1.98", b"value=0x10"),
        (b"value=1.98", b"value=1_0"),
        (b"value=1.98", b"value=1.5i"),
        (b"value=1.98", b"value=t"),
        (b"value=1.98", b'value="1.98"'),
        (b"value=1.98", b"value=1,value=2"),
        (b"value=1.98", b"other=1"),
        (b" 1700000012", b""),
        (b"1700000012", b"-1"),
        (b"1700000012", b"1700000012 "),
        (b" value", b"  value"),
    ],
)
def test_malformed_line_is_counted_and_the_others_used(old: bytes, new: bytes) -> None:
    assert old in LINE
    written, malformed = parse_write(b"\n".join((LINE.replace(old, new, 1), LINE.replace(b"job=12", b"job=13"))))

    assert ([13], 1) == ([one.key.job_id for one in written], malformed)


def test_number_of_fields_is_limited() -> None:
    many = ",".join(f"F{number}=1" for number in range(MAX_FIELDS + 1))

    assert ((), 1) == parse_write(GROUPED.replace(b"CPUTime=1.98", many.encode()))


@given(st.binary(max_size=300) | st.binary(max_size=200).map(lambda rest: LINE[:30] + rest))
def test_any_bytes_are_parsed_or_counted(body: bytes) -> None:
    written, malformed = parse_write(body)

    assert len(written) + malformed <= body.count(b"\n") + 1


@given(st.sampled_from([LINE, GROUPED]), st.data(), st.integers(0, 255))
def test_one_wrong_byte_never_raises(line: bytes, data: st.DataObject, byte: int) -> None:
    place = data.draw(st.integers(0, len(line) - 1))
    parse_write(line[:place] + bytes([byte]) + line[place + 1 :])


@given(
    st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 7), st.integers(0, 2**32 - 1),
    st.floats(0, allow_infinity=False), st.integers(0, 2**64 - 1),
)  # fmt: skip
def test_any_sample_survives(job: int, step: int, task: int, cpu: float, resident: int) -> None:
    """In the three forms, as Slurm's formats print the numbers."""
    tags = f"host=n1,job={job - 2**32 if job >= 2**31 else job},step={step},task={task}"
    for body, value in (
        (f"CPUTime,{tags} value={cpu:.2f} 7\nRSS,{tags} value={resident} 7\n", float(f"{cpu:.2f}")),
        (f"task,{tags} CPUTime={cpu:.9g},RSS={resident}i 7\n", float(f"{cpu:.9g}")),
    ):
        written = only(body.encode())

        assert (StepKey(job, str(step), "n1"), str(task)) == (written.key, written.sample.task)
        assert fields(CPUTime=value, RSS=float(resident)) == written.sample.fields
