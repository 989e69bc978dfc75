# SPDX-License-Identifier: Apache-2.0
"""A failure inside an answer is found, whatever else the answer is."""

from __future__ import annotations

import pytest

from slurmscope.cluster.json.records import parse_nodes
from slurmscope.core.errors import MalformedAnswer, SlurmRefused
from slurmscope.slurm.json_response import reported_error

UNNAMED = "an error that it does not name"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b'{"errors": [{"description": "Unable to query jobs", "error": "down"}]}', "Unable to query jobs: down"),
        (b'{"errors": [{"error": "Unspecified error", "errno": -1}]}', "Unspecified error"),
        (b'{"errors": [{}]}', UNNAMED),
        (b'{"errors": [7]}', UNNAMED),
        (b'{"errors": "down"}', UNNAMED),
        (b'{"errors": [{"error": "caf\xe9"}]}', "caf�"),
        (b'{"errors": [{"error": "line one\\nline two"}]}', "line one\\nline two"),
    ],
)
def test_first_error_is_reported_in_one_line(answer: bytes, error: str) -> None:
    assert error == reported_error(answer)


@pytest.mark.parametrize(
    "answer",
    [
        b"{}",
        b'{"errors": []}',
        b'{"errors": [\n  ]}',
        b'{"errors": null}',
        b"Not Found",
        b"",
        b'{"err',
        b"\xff",
        b"[" * 99999,
    ],
)
def test_answer_without_errors_reports_of_none(answer: bytes) -> None:
    assert reported_error(answer) is None


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"{}", "has no nodes"),
        (b'{"nodes": null}', "has no nodes"),
        (b"[]", "no list of nodes"),
        (b'{"nodes": "n1"}', "no list of nodes"),
        (b'{"nodes": {"n1": {}}}', "no list of nodes"),
        (b'{"nodes": [1, 2]}', "none of 2 nodes"),
        (b'{"nodes": [', "cut or not JSON"),
        (b"slurm_load_nodes error", "cut or not JSON"),
        (b'{"a": ' + b"[" * 99999, "cut or not JSON"),
    ],
)
def test_answer_in_another_shape_is_malformed(answer: bytes, message: str) -> None:
    with pytest.raises(MalformedAnswer, match=message):
        parse_nodes(answer)


def test_errors_are_found_beside_odd_records() -> None:
    with pytest.raises(SlurmRefused, match="down"):
        parse_nodes(b'{"nodes": [7], "errors": [{"error": "down"}]}')
