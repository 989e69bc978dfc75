# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from slurmscope.core.tres import Gres
from slurmscope.jobs.what_if import OtherRequest
from slurmscope.portal.job_view import fill_form, parse_request, show_submitted
from slurmscope.portal.queries import BadQuery, make_range_fields
from tests.fakes.reports import make_record

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
    with pytest.raises(BadQuery, match=r"\A(Cores|Memory|Time limit|GPUs) must be [^.]*\.\Z"):
        parse_request({field: text})


def test_form_keeps_what_was_given() -> None:
    view = fill_form({"cores": "x" * 100, "time": "1:00:00"})
    assert ("x" * 20, "", "1:00:00") == (view.cores, view.memory, view.time)


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ({"cpus": 4, "memory_bytes": 8 * GIB, "time_limit_seconds": 86_400}, ("4", "8G", "1-00:00:00", "")),
        ({"memory_bytes": 3 * GIB, "node_count": 2, "time_limit_seconds": 5400}, ("4", "1536M", "01:30:00", "")),
        ({"cpus": None, "memory_bytes": None, "time_limit_seconds": None}, ("", "", "", "")),
        ({"memory_bytes": 8 * GIB, "gres": (Gres(name="gpu", count=2),)}, ("4", "8G", "1-00:00:00", "2")),
    ],
)
def test_empty_fields_show_what_was_submitted(values: dict[str, object], shown: tuple[str, ...]) -> None:
    view = show_submitted(make_record(4711, **values))
    assert shown == (view.cores, view.memory, view.time, view.gpus)


def test_no_field_repeats_its_label_as_a_hint() -> None:
    assert [] == [field.label for field in make_range_fields(()) if field.hint and field.hint in field.label.lower()]
