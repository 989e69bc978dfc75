# SPDX-License-Identifier: Apache-2.0
"""Check the choice of format and encoding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.http.server.app import accepts_gzip, choose_format
from slurmscope.metrics.write import Format

# As received from Prometheus 2.42 itself; the others as they are documented for later releases.
PROMETHEUS_2_42 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_2_OLD = "application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROTOBUF = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,"
PROMETHEUS_3_TEXT_FIRST = (
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,"
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.4,*/*;q=0.3"
)


@pytest.mark.parametrize(
    "accept",
    [
        PROMETHEUS_2_42,
        PROMETHEUS_2_OLD,
        PROMETHEUS_3,
        PROTOBUF + PROMETHEUS_3,
        "application/openmetrics-text",
        "APPLICATION/OpenMetrics-Text; Version=1.0.0",
        'application/openmetrics-text;version="1.0.0"',
        "application/openmetrics-text,text/plain",
        "application/openmetrics-text,*/*",
        "text/plain;q=0.5,application/openmetrics-text;q=0.6",
        "text/plain;q=0,*/*",
        "application/*",
    ],
)
def test_openmetrics_is_served_to_who_prefers_it(accept: str) -> None:
    assert choose_format(accept) is Format.OPENMETRICS


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "text/*",
        "text/plain",
        "text/plain,application/openmetrics-text",
        PROMETHEUS_3_TEXT_FIRST,
        "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8",
        "application/openmetrics-text;q=0,*/*;q=0.1",
        "application/openmetrics-text;q=0",
        "application/openmetrics-text;version=abc",
        "application/openmetrics-text;version=2.0.0",
        "application/openmetrics-text;version=1.0.0;q=abc",
        "application/openmetrics-text;version=1.0.0;q=nan",
        "application/openmetrics-text;version=1.0.0;q=1e9",
        "application/json",
        ",;=,;;q",
        "\x00\xff",
    ],
)
def test_other_clients_get_text(accept: str) -> None:
    assert choose_format(accept) is Format.TEXT


@pytest.mark.parametrize(
    ("expected", "accept_encoding"),
    [
        (True, "gzip"),
        (True, "GZIP;q=0.1"),
        (True, "deflate, gzip;q=1.0, *;q=0.5"),
        (True, "gzip, deflate, br, zstd"),
        (True, "*"),
        (True, "x-gzip"),
        (True, "identity;q=0, *;q=0.001"),
        (False, ""),
        (False, "identity"),
        (False, "gzip;q=0"),
        (False, "gzip;q=0.000, *"),
        (False, "*;q=0"),
        (False, "deflate"),
        (False, "gzip;q=x"),
        (False, "notgzip"),
    ],
)
def test_gzip_is_used_only_when_accepted(*, expected: bool, accept_encoding: str) -> None:
    assert expected == accepts_gzip(accept_encoding)


@given(st.text())
def test_no_header_is_an_error(header: str) -> None:
    assert choose_format(header) in Format
    assert accepts_gzip(header) in (True, False)


@given(
    st.tuples(st.integers(0, 1000), st.integers(0, 1000)).filter(lambda pair: pair[0] != pair[1]),
)
def test_higher_quality_wins(qualities: tuple[int, int]) -> None:
    text, openmetrics = qualities
    accept = f"text/plain;q={text / 1000:.3f},application/openmetrics-text;q={openmetrics / 1000:.3f}"
    assert (Format.TEXT if text > openmetrics else Format.OPENMETRICS) is choose_format(accept)
