# SPDX-License-Identifier: Apache-2.0
"""Check that answers are parsed and errors are classified."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.errors import MalformedAnswer, QueryRejected, ServerBusy, ServerError, SourceError
from slurmscope.http.client.request import HttpAnswer
from slurmscope.prometheus.responses import (
    MAX_SERIES,
    AccessDenied,
    FoundSeries,
    PartialAnswer,
    QueryFailed,
    QueryTimedOut,
    QueryTooLarge,
    parse_answer,
)

FIXTURES = Path(__file__).parents[2] / "fixtures" / "prometheus"
GOOD = {
    "status": "success",
    "data": {"resultType": "matrix", "result": [{"metric": {"slurm_job": "7"}, "values": [[15, "1.5"], [30.25, "2"]]}]},
}
TOO_MANY = "query processing would load too many samples into memory in query execution"
RESOLUTION = (
    "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)"
)
TIMED_OUT = "query timed out in expression evaluation"
# As the sources of these servers word them.
MESSAGES = json.loads((FIXTURES / "messages.json").read_text(encoding="utf-8"))
VICTORIA = (
    'error when executing query="jobs_memory_limit_bytes" on the time range (start=1, end=2, step=1): too many points '
    "for the given step=1, start=1 and end=2: 2; cannot exceed -search.maxPointsPerTimeseries=1"
)


def answer(body: object, status: int = 200) -> HttpAnswer:
    return HttpAnswer(status=status, body=body if isinstance(body, bytes) else json.dumps(body).encode())


def refusal(words: str, status: int, kind: str = "execution") -> HttpAnswer:
    return answer({"status": "error", "errorType": kind, "error": words}, status)


def matrix(values: object) -> HttpAnswer:
    return answer({"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "values": values}]}})


def test_matrix_is_parsed() -> None:
    reply = parse_answer(answer(GOOD))

    assert (FoundSeries({"slurm_job": "7"}, (15.0, 30.25), (1.5, 2.0)),) == reply.series
    assert 2 == reply.points


def test_answer_with_too_many_series_is_a_query_too_large() -> None:
    series = b'{"metric":{"slurm_job":"7"},"value":[1,"1"]}'
    body = b'{"status":"success","data":{"resultType":"vector","result":[%s]}}'

    assert MAX_SERIES == len(parse_answer(answer(body % b",".join([series] * MAX_SERIES))).series)
    with pytest.raises(QueryTooLarge, match="100,000 series"):
        parse_answer(answer(body % b",".join([series] * (MAX_SERIES + 1))))


def test_vector_is_parsed() -> None:
    entry = {"metric": {"a": "b"}, "value": [15.5, "-3e2"]}
    reply = parse_answer(answer({"status": "success", "data": {"resultType": "vector", "result": [entry]}}))

    assert (FoundSeries({"a": "b"}, (15.5,), (-300.0,)),) == reply.series


def test_empty_answer_is_valid() -> None:
    assert () == parse_answer(answer({"status": "success", "data": {"resultType": "vector", "result": []}})).series


def test_values_that_are_not_finite_are_skipped() -> None:
    reply = parse_answer(matrix([[1, "NaN"], [2, "+Inf"], [3, "4"], [5, "-Inf"], [6, "0"]]))

    assert (FoundSeries({}, (3.0, 6.0), (4.0, 0.0)),) == reply.series


def test_huge_values_are_kept() -> None:
    assert (1e308, 1e308) == parse_answer(matrix([[1, "1e308"], [2, "1e308"]])).series[0].values


def test_points_that_go_back_in_time_are_skipped() -> None:
    assert (1.0, 5.0) == parse_answer(matrix([[1, "1"], [5, "2"], [5, "9"], [3, "3"]])).series[0].times


@pytest.mark.parametrize("more", MESSAGES["partial"].values(), ids=MESSAGES["partial"])
def test_partial_answer_is_no_measurement(more: dict[str, object]) -> None:
    with pytest.raises(PartialAnswer, match="only a part of the series"):
        parse_answer(answer({**GOOD, **more}))


@pytest.mark.parametrize(
    "more", [{"isPartial": False}, {"warnings": None}, {"warnings": []}, {"warnings": MESSAGES["remarks"]}]
)
def test_remarks_about_the_expression_leave_an_answer_whole(more: dict[str, object]) -> None:
    assert 2 == parse_answer(answer({**GOOD, **more})).points


def test_invalid_utf8_in_labels_is_replaced() -> None:
    body = json.dumps(GOOD).encode().replace(b'"7"', b'"7\xff"')

    assert {"slurm_job": "7\ufffd"} == parse_answer(answer(body)).series[0].labels


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<!DOCTYPE html><title>Sign in</title>",
        json.dumps(GOOD).encode()[:-20],
        b"[" * 100_000,
        [],
        {"data": GOOD["data"]},
        {"status": "success"},
        {"status": "success", "data": {"resultType": "scalar", "result": [15, "1"]}},
        {"status": "success", "data": {"resultType": "streams", "result": []}},
        {"status": "success", "data": {"resultType": "matrix", "result": [{"values": [[1, "one"]]}]}},
        {"status": "success", "data": {"resultType": "matrix", "result": [{"values": [[1]]}]}},
    ],
)
def test_answer_without_series_is_malformed(body: object) -> None:
    with pytest.raises(MalformedAnswer, match="it answered with"):
        parse_answer(answer(body))


@pytest.mark.parametrize("words", MESSAGES["limits"].values(), ids=MESSAGES["limits"])
def test_limits_of_other_servers_mean_a_query_too_large(words: str) -> None:
    for status in (400, 422, 500, 503):
        with pytest.raises(QueryTooLarge):
            parse_answer(refusal(words, status))


@pytest.mark.parametrize("words", MESSAGES["limits"].values(), ids=MESSAGES["limits"])
def test_limits_of_query_frontends_are_plain_text(words: str) -> None:
    for status in (400, 422, 500):
        with pytest.raises(QueryTooLarge):
            parse_answer(answer(f"{words}\n".encode(), status))


@pytest.mark.parametrize(
    ("given_answer", "expected"),
    [
        (refusal(TOO_MANY, 422), QueryTooLarge),
        (refusal(RESOLUTION, 400, "bad_data"), QueryTooLarge),
        (refusal(TIMED_OUT, 503, "timeout"), QueryTimedOut),
        (refusal("expanding series: context deadline exceeded", 503, "timeout"), QueryTimedOut),
        (refusal(VICTORIA, 422, "422"), QueryTooLarge),
        (refusal(TOO_MANY, 200), QueryTooLarge),
        (answer(b"Request Entity Too Large", 413), QueryTooLarge),
        (refusal('invalid parameter "query": jobs_memory_limit_bytes', 400, "bad_data"), QueryRejected),
        (refusal("something else", 422), ServerError),
        (answer({"status": "error", "data": 7}, 200), ServerError),
        (answer({"status": "odd"}, 200), ServerError),
        (answer(b"<html>Bad Gateway</html>", 502), ServerBusy),
        (answer(b"", 503), ServerBusy),
        (refusal("storage is not ready", 503, "unavailable"), ServerBusy),
        (refusal("some blocks were not queried", 500, "internal"), QueryFailed),
        (answer(b"slow down", 429), ServerBusy),
        (answer(b"context deadline exceeded", 500), QueryTimedOut),
        # Proxies that did not reach the server word it alike.
        (answer(b"upstream connect error, reset reason: Connection timed out", 503), ServerBusy),
        (answer(b"the upstream server took too long to respond", 502), ServerBusy),
        (answer(b"the client exceeds 10 requests per second", 429), ServerBusy),
        (answer(b"<!doctype html><p>The request header is too long", 400), ServerError),
        # Mimir, Cortex and Thanos; Prometheus. The query itself is not too large, and later it succeeds.
        (refusal("too many outstanding requests", 429, "too_many_requests"), ServerBusy),
        (refusal("expanding series: open /data/chunks_head/000001: too many open files", 500, "internal"), QueryFailed),
        (refusal("select more: too many unique time series", 422), QueryTooLarge),
        (answer(b"<html><title>504 Gateway Time-out</title></html>", 504), QueryTimedOut),
        (answer(b"Unauthorized", 401), AccessDenied),
        (answer(b"", 403), AccessDenied),
        (answer(b"404 page not found", 404), ServerError),
        (answer(b"", 302), ServerError),
        (answer(b"\xff\xfe", 418), ServerError),
    ],
)
def test_errors_are_classified(given_answer: HttpAnswer, expected: type[ServerError]) -> None:
    with pytest.raises(ServerError, match=r"it answered \d\d\d") as caught:
        parse_answer(given_answer)

    assert expected is type(caught.value)
    assert "\n" not in str(caught.value)


def test_redirect_is_reported_with_a_hint() -> None:
    with pytest.raises(ServerError, match="redirect"):
        parse_answer(answer(b'<a href="/graph">Found</a>', 302))


@given(st.sampled_from([200, 200, 302, 401, 422, 503]), st.binary(max_size=200))
def test_any_bytes_are_a_source_error(status: int, body: bytes) -> None:
    with pytest.raises(SourceError) as caught:
        parse_answer(HttpAnswer(status=status, body=body))

    assert str(caught.value).isprintable()


def test_missing_package_names_the_extra() -> None:
    program = "import sys; sys.modules['msgspec'] = None; import slurmscope.prometheus.responses"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)

    assert "MissingExtraError: --prometheus.url needs the extra 'reports'" in done.stderr
