# SPDX-License-Identifier: Apache-2.0
"""Check which bodies are accepted, and that every hostile one is refused with a reason."""

from __future__ import annotations

import json
from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.trace.samples import SAMPLES_LIMIT, MalformedSample, TraceSample, parse_samples

SEED_OBJECT = (
    b'{"pid": 812, "cpus": 99.7, "threads": 4, "mem": 52428800, "read_bytes": 4096, "write_bytes": 0, "job_id": 4711,'
    b' "username": "ada", "hostname": "n1"}'
)


def test_object_of_the_older_wrapper_is_understood() -> None:
    expected = TraceSample(
        job_id=4711, pid=812, cpu_percent=99.7, threads=4.0, memory_bytes=52428800.0, read_bytes=4096.0,
        write_bytes=0.0, user="ada", host="n1",
    )  # fmt: skip
    assert (expected,) == parse_samples(SEED_OBJECT)


def test_all_keys_are_understood_in_any_case_and_unknown_ones_ignored() -> None:
    body = (
        b'{"Job_ID": 1, "COMMAND": "python3", "rank": 3, "step_id": "0", "cpu_seconds": 1.5, "interval": 10,'
        b' "time": 1700000000.5, "start_time": 1700000000, "colour": [{"deep": null}]}'
    )
    expected = TraceSample(
        job_id=1, command="python3", rank=3, step="0", cpu_seconds=1.5, interval_seconds=10.0,
        time_seconds=1700000000.5, start_time_seconds=1700000000.0,
    )  # fmt: skip
    assert (expected,) == parse_samples(body)


def test_list_keeps_its_order() -> None:
    assert [3, 1, 2] == [sample.job_id for sample in parse_samples(b'[{"job_id":3},{"job_id":1},{"job_id":2}]')]


def test_what_was_not_sent_or_is_null_is_not_measured() -> None:
    assert (TraceSample(job_id=7),) == parse_samples(b'{"job_id": 7, "mem": null, "command": null}')


def test_control_characters_of_a_command_are_replaced() -> None:
    (sample,) = parse_samples(rb'{"job_id": 7, "command": "a\u001b[31m\n<b>\u202e"}')
    assert "a?[31m?<b>?" == sample.command


HOSTILE = {
    "nothing": b"",
    "not JSON": b"{job_id: 1}",
    "form": b"job_id=1",
    "two objects": b'{"job_id":1}{"job_id":2}',
    "cut": b'{"job_id": 1',
    "number": b"1",
    "text": b'"job_id"',
    "null": b"null",
    "empty list": b"[]",
    "list in list": b'[[{"job_id":1}]]',
    "empty object": b"{}",
    "one bad of two": b'[{"job_id":1},{"job_id":0}]',
    "same key twice": b'{"job_id":1,"job_id":2}',
    "same key in another case": b'{"job_id":1,"JOB_ID":2}',
    "unknown key twice": b'{"job_id":1,"x":1,"x":2}',
    "deep lists": b"[" * 30000,
    "deep objects": b'{"a":' * 10000,
    "deep unknown value": b'{"job_id":1,"x":' + b"[" * 30000 + b"]" * 30000 + b"}",
    "NaN": b'{"job_id":1,"mem":NaN}',
    "Infinity": b'{"job_id":1,"mem":Infinity}',
    "-Infinity": b'{"job_id":1,"mem":-Infinity}',
    "1e400": b'{"job_id":1,"mem":1e400}',
    "negative": b'{"job_id":1,"mem":-1}',
    "negative fraction": b'{"job_id":1,"cpus":-0.5}',
    "boolean as number": b'{"job_id":1,"mem":true}',
    "boolean as job": b'{"job_id":true}',
    "huge whole number": b'{"job_id":1,"mem":' + b"9" * 400 + b"}",
    "endless whole number": b'{"job_id":1,"mem":' + b"9" * 20000 + b"}",
    "huge job": b'{"job_id":4294967296}',
    "job as text": b'{"job_id":"1"}',
    "job as fraction": b'{"job_id":1.0}',
    "job null": b'{"job_id":null}',
    "negative PID": b'{"job_id":1,"pid":-1}',
    "huge PID": b'{"job_id":1,"pid":4194305}',
    "number as text": b'{"job_id":1,"mem":"1"}',
    "list as number": b'{"job_id":1,"mem":[1]}',
    "object as number": b'{"job_id":1,"mem":{"a":1}}',
    "number as name": b'{"job_id":1,"username":1}',
    "list as command": b'{"job_id":1,"command":["a"]}',
    "long command": b'{"job_id":1,"command":"' + b"a" * 65 + b'"}',
    "long command of few characters": b'{"job_id":1,"command":"' + "ü".encode() * 33 + b'"}',
    "long host": b'{"job_id":1,"hostname":"' + b"a" * 256 + b'"}',
    "lone surrogate": rb'{"job_id":1,"command":"\ud800"}',
    "no interval": b'{"job_id":1,"interval":0}',
    "interval of a year": b'{"job_id":1,"interval":31536000}',
    "not UTF-8": b'{"job_id":1,"command":"\xff"}',
    "UTF-16": '{"job_id":1}'.encode("utf-16"),
    "BOM": b'\xef\xbb\xbf{"job_id":1}',
    "NUL": b'{"job_id":1}\x00',
    "too many": b"[" + b",".join([b'{"job_id":1}'] * (SAMPLES_LIMIT + 1)) + b"]",
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_body_is_refused_with_one_sentence(body: bytes) -> None:
    with pytest.raises(MalformedSample, match=r"\A[A-Za-z_-][^\n]{5,120}\.\Z"):
        parse_samples(body)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)
KEYS = st.sampled_from([
    "job_id", "pid", "cpus", "threads", "mem", "read_bytes", "write_bytes", "username", "hostname", "command", "rank",
    "step_id", "cpu_seconds", "interval", "time", "start_time", "JOB_ID", "other",
])  # fmt: skip
OBJECTS = st.dictionaries(KEYS, JSON_VALUES | st.integers(0, 10) | st.floats(0, 10), max_size=8)


def check(body: bytes) -> None:
    """Accept a body whose values are all valid, or refuse it; nothing else may happen."""
    try:
        samples = parse_samples(body)
    except MalformedSample:
        return
    for sample in samples:
        assert sample.job_id >= 1
        for value in sample:
            assert value is None or isinstance(value, int | float | str)
            assert not isinstance(value, bool)
            if isinstance(value, str):
                assert value.isprintable()
                value.encode()  # raises for lone surrogates
            elif value is not None:
                assert isfinite(value)
                assert value >= 0


@given(OBJECTS | st.lists(OBJECTS, max_size=4))
def test_any_json_is_accepted_or_refused(value: object) -> None:
    check(json.dumps(value).encode("utf-8", "surrogatepass"))


@given(st.binary(max_size=200))
def test_any_bytes_are_accepted_or_refused(body: bytes) -> None:
    check(body)


@given(st.data())
def test_any_change_of_a_good_body_is_accepted_or_refused(data: st.DataObject) -> None:
    body = bytearray(SEED_OBJECT)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(body) - 1))
        body[position : position + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    check(bytes(body))
