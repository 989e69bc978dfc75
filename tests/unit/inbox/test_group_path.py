# SPDX-License-Identifier: Apache-2.0
"""Check how paths become the labels of a group; the results for the original are in e2e/test_push_inbox.py."""

from __future__ import annotations

import base64
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.http.server.request import BadRequest
from slurmscope.inbox.group import LABELS_LIMIT, PREFIXES, parse_group_path


@pytest.mark.parametrize(
    ("path", "labels"),
    [
        ("/metrics/job/a", {"job": "a"}),
        ("/metrics/job/a/", {"job": "a"}),
        ("/metrics/job/a/instance/", {"job": "a"}),
        ("/metrics/job/a/job/b", {"job": "a"}),
        ("/metrics/job/a/x/1/x/2", {"job": "a", "x": "2"}),
        ("/metrics/job@base64/YWJj/x@base64/=", {"job": "abc"}),
        ("/metrics/job@base64/YWI=", {"job": "ab"}),
        ("/metrics/job@base64/YWI", {"job": "ab"}),
        ("/metrics/job/a/x@base64/Pz8_", {"job": "a", "x": "???"}),
        ("/metrics/job/../x/.", {"job": "..", "x": "."}),
    ],
)
def test_path_names_a_group(path: str, labels: dict[str, str]) -> None:
    assert labels == parse_group_path(path, 100)


@pytest.mark.parametrize(
    "path",
    [
        "/metrics/job/", "/metrics/job@base64/=", "/metrics/job/a/x", "/metrics/job/a/x/b/c", "/metrics/job/a//b",
        "/metrics/job/a/__x/1", "/metrics/job/a/1x/1",
        "/metrics/job/a/x@base64/Y+I", "/metrics/job/a/x@base64/_-8=", "/metrics/job@base64/Y",
        "/metrics/job/a/x/\ufffd", "/metrics/job/" + "a" * 101, "/metrics/job/a" + "/x/1" * LABELS_LIMIT,
        "/metrics/job/a/x-y/1", "/metrics/job/a/ü/1",
    ],
)  # fmt: skip
def test_path_that_names_no_group_is_refused(path: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_group_path(path, 100)
    assert (400, "path") == (refused.value.status, refused.value.code)
    assert refused.value.message.isascii()


@given(st.sampled_from(PREFIXES), st.text(max_size=60) | st.binary(max_size=60).map(unquote))
def test_no_path_is_more_than_refused(prefix: str, rest: str) -> None:
    try:
        labels = parse_group_path(prefix + rest, 100)
    except BadRequest:
        return
    assert labels["job"]
    assert all(labels.values())


@given(st.text(min_size=1, max_size=50))
def test_every_text_can_be_a_label_in_base64(value: str) -> None:
    try:
        encoded = base64.urlsafe_b64encode(value.encode()).decode()
    except UnicodeEncodeError:
        return
    if "\ufffd" not in value:
        assert {"job": "a", "x": value} == parse_group_path(f"/metrics/job/a/x@base64/{encoded}", 100)
