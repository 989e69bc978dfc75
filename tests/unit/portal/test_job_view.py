# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from slurmscope.jobs.what_if import OtherRequest
from slurmscope.portal.job_view import fill_form, parse_request
from slurmscope.portal.queries import BadQuery

GIB = 1 << 30


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"cores": " ", "memory": "", "other": "x"}, None),
        ({"cores": "4"}, OtherRequest(cpus=4)),
        ({"memory": " 12G "}, OtherRequest(memory_bytes=12 * GIB)),
        ({"memory": "512"}, OtherRequest(memory_bytes=GIB // 2)),
        ({"time": "1-12:00:00"}, OtherRequest(limit_seconds=129_600)),
        (
            {"cores": "1000000", "memory": "1024T", "time": "365-0"},
            OtherRequest(cpus=10**6, memory_bytes=1 << 50, limit_seconds=365 * 86400),
        ),
    ],
)  # fmt: skip
def test_fields_are_parsed_as_sbatch_does(given: dict[str, str], expected: OtherRequest | None) -> None:
    assert expected == parse_request(given)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("cores", "0"), ("cores", "-1"), ("cores", "4.5"), ("cores", "many"), ("cores", "1000001"), ("cores", "٣"),
        ("memory", "0"), ("memory", "12X"), ("memory", "-1G"), ("memory", "1025T"), ("memory", "nan"),
        ("time", "0"), ("time", "soon"), ("time", "366-00"), ("time", "1:2:3:4"), ("time", "9" * 30),
        ("cores", "0" * 30 + "4"), ("memory", "<script>"),
    ],
)  # fmt: skip
def test_wrong_input_is_refused_with_one_sentence(field: str, text: str) -> None:
    with pytest.raises(BadQuery, match=r"\A(Cores|Memory|Time limit) must be [^.]*\.\Z"):
        parse_request({field: text})


def test_form_keeps_what_was_given() -> None:
    view = fill_form({"cores": "x" * 100, "time": "1:00:00"})
    assert ("x" * 20, "", "1:00:00") == (view.cores, view.memory, view.time)
