# SPDX-License-Identifier: Apache-2.0
"""Requests have the samples that a scrape of the same page would give, and end series that are gone."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from hypothesis import HealthCheck, given, settings
from prometheus_client.parser import text_string_to_metric_families

from slurmscope.metrics.family import Family, Metric, MetricKind, gauge
from slurmscope.metrics.guard import Guard
from slurmscope.metrics.write import Format, write
from slurmscope.remote_write.encoding import SERIES_PER_REQUEST, RequestEncoder, WriteRequest
from tests.fakes.remote_write import ReceivedSample, decode_request
from tests.unit.metrics.test_round_trip import LIMIT, pages

EXTERNAL = {"instance": "n1", "job": "slurm-nodes"}
JOBS = gauge("jobs", "Jobs.", "slurm_job")


def encode(encoder: RequestEncoder, *families: Family, at_ms: int = 1_700_000_000_123) -> list[ReceivedSample]:
    return [sample for request in encoder.encode(families, at_ms) for sample in decode_request(request.body)]


def scraped(families: list[Family]) -> set[Any]:
    """Return what Prometheus' reference parser finds on the page."""
    page = b"".join(write(families, Format.TEXT)).decode()
    names = {"old_count_total": "old_count"}  # it renames a counter that lacks the suffix
    return {
        (
            names.get(sample.name, sample.name),
            frozenset((label, value) for label, value in sample.labels.items() if value),
            repr(float(sample.value)),
        )
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pages())
def test_samples_are_those_of_a_scrape(families: list[Family]) -> None:
    clean = list(Guard(label_length_limit=LIMIT).admit(families))
    received = encode(RequestEncoder(EXTERNAL), *clean)

    assert scraped(clean) == {
        (
            sample.name,
            frozenset(item for item in sample.labels if item[0] not in ("__name__", *EXTERNAL)),
            repr(sample.value),
        )
        for sample in received
    }
    assert {1_700_000_000_123} == {sample.at_ms for sample in received}
    assert all(set(EXTERNAL.items()) <= set(sample.labels) for sample in received)
    assert not any(sample.is_stale for sample in received)


def test_series_that_are_gone_end_with_one_stale_marker() -> None:
    encoder = RequestEncoder(EXTERNAL)
    encode(encoder, Family(JOBS, {("7",): 1.0, ("8",): 2.0}))

    second = encode(encoder, Family(JOBS, {("8",): 3.0, ("9",): 4.0}), at_ms=2000)
    third = encode(encoder, Family(JOBS, {("8",): 3.0, ("9",): 4.0}), at_ms=3000)

    assert [("8", 3.0), ("9", 4.0)] == [(dict(s.labels)["slurm_job"], s.value) for s in second if not s.is_stale]
    (gone,) = [sample for sample in second if sample.is_stale]
    assert ("7", 2000, True) == (dict(gone.labels)["slurm_job"], gone.at_ms, math.isnan(gone.value))
    assert not any(sample.is_stale for sample in third)


def test_series_that_is_back_has_samples_again() -> None:
    encoder = RequestEncoder({})
    for families in ([Family(JOBS, {("7",): 1.0})], [], [Family(JOBS, {("7",): 5.0})]):
        received = encode(encoder, *families)

    assert [5.0] == [sample.value for sample in received]


def test_end_marks_every_series_as_stale() -> None:
    encoder = RequestEncoder(EXTERNAL)
    encode(encoder, Family(JOBS, {("7",): 1.0, ("8",): 2.0}))
    (request,) = encoder.encode_end(5000)

    assert [True, True] == [sample.is_stale for sample in decode_request(request.body)]
    assert 2 == request.samples
    assert [] == list(encoder.encode_end(6000))


def test_two_rounds_in_one_millisecond_have_different_times() -> None:
    encoder = RequestEncoder({})
    times = [sample.at_ms for value in (1.0, 2.0) for sample in encode(encoder, Family(JOBS, {("7",): value}), at_ms=5)]
    (request,) = encoder.encode_end(6)

    assert [5, 6] == times
    assert [7] == [sample.at_ms for sample in decode_request(request.body)]


def test_labels_that_a_scrape_would_rename_are_renamed() -> None:
    # Prometheus keeps its own label and renames that of the target.
    metric = Metric(name="m", kind=MetricKind.GAUGE, help="M.", labels=("job", "Upper"), is_compat=True)
    (sample,) = encode(RequestEncoder(EXTERNAL), Family(metric, {("7", "x"): 1.0}))

    assert (("Upper", "x"), ("__name__", "m"), ("exported_job", "7"), *EXTERNAL.items()) == sample.labels


def test_large_page_is_split_into_several_requests() -> None:
    encoder = RequestEncoder(EXTERNAL)
    rows = {(str(job),): float(job) for job in range(2 * SERIES_PER_REQUEST + 1)}
    requests = list(encoder.encode([Family(JOBS, rows)], 1000))
    ended = list(encoder.encode_end(2000))

    assert [SERIES_PER_REQUEST, SERIES_PER_REQUEST, 1] == [request.samples for request in requests]
    assert list(rows.values()) == [sample.value for request in requests for sample in decode_request(request.body)]
    assert [SERIES_PER_REQUEST, SERIES_PER_REQUEST, 1] == [request.samples for request in ended]


def test_page_of_many_jobs_compresses_to_less_than_half() -> None:
    metrics = [gauge(f"jobs_number_{number}", "Number.", "slurm_job", "slurm_node") for number in range(20)]
    families = [Family(metric, {(str(job), "n1"): float(job) for job in range(64)}) for metric in metrics]
    (request,) = RequestEncoder(EXTERNAL).encode(families, 1_700_000_000_123)
    size, _ = decode_size(request.body)

    assert len(request.body) < size / 4


def decode_size(body: bytes) -> tuple[int, int]:
    size = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(body[:3]))
    return size, 3


def test_pushed_series_keep_their_own_labels() -> None:
    encoder = RequestEncoder({**EXTERNAL, "cluster": "a"})
    pushed = [
        (encoder.encode_series("done", {"job": "backup", "instance": ""}), 1.0),
        (encoder.encode_series("done", {"job": "backup", "instance": "db1", "cluster": "b", "Z": "1"}), 2.0),
    ]
    (request,) = encoder.encode([], 1000, pushed)

    assert [
        ((("__name__", "done"), ("cluster", "a"), ("job", "backup")), 1.0),
        ((("Z", "1"), ("__name__", "done"), ("cluster", "b"), ("instance", "db1"), ("job", "backup")), 2.0),
    ] == [(sample.labels, sample.value) for sample in decode_request(request.body)]


def test_pushed_series_cannot_replace_ours_or_occur_twice() -> None:
    encoder = RequestEncoder(EXTERNAL)
    same = encoder.encode_series("jobs", {**EXTERNAL, "slurm_job": "7"})
    named = encoder.encode_series("other", {"__name__": "jobs"})
    requests = encoder.encode([Family(JOBS, {("7",): 1.0})], 1000, [(same, 5.0), (named, 6.0), (named, 7.0)])
    found = [[(sample.name, sample.value) for sample in decode_request(request.body)] for request in requests]

    assert [[("jobs", 1.0)], [("other", 6.0)]] == found


def test_pushed_series_that_is_deleted_ends() -> None:
    encoder = RequestEncoder(EXTERNAL)
    pushed = [(encoder.encode_series("done", {"job": "backup"}), 1.0)]
    list(encoder.encode([], 1000, pushed))
    (request,) = encoder.encode([], 2000)

    assert [("done", True)] == [(sample.name, sample.is_stale) for sample in decode_request(request.body)]


def markers(requests: Iterable[WriteRequest]) -> list[list[tuple[str, bool]]]:
    return [[(sample.name, sample.is_stale) for sample in decode_request(request.body)] for request in requests]


def test_pushed_series_and_their_stale_markers_have_requests_of_their_own() -> None:
    encoder = RequestEncoder(EXTERNAL)
    own = [Family(JOBS, {("7",): 1.0})]
    done, late = (encoder.encode_series(name, {"job": "backup"}) for name in ("done", "late"))

    assert [[("jobs", False)], [("done", False), ("late", False)]] == markers(
        encoder.encode(own, 1000, [(done, 1.0), (late, 1.0)])
    )
    assert [[("jobs", True)], [("late", False), ("done", True)]] == markers(encoder.encode([], 2000, [(late, 1.0)]))
    assert [[("jobs", False)], [("late", False)]] == markers(encoder.encode(own, 3000, [(late, 1.0)]))
    assert [[("jobs", True)], [("late", True)]] == markers(encoder.encode_end(4000))


def test_series_that_becomes_a_pushed_one_or_ours_has_one_sample_of_each_time() -> None:
    encoder = RequestEncoder(EXTERNAL)
    own = [Family(JOBS, {("7",): 1.0})]
    same = encoder.encode_series("jobs", {**EXTERNAL, "slurm_job": "7"})

    for families, pushed in ((own, []), ([], [(same, 2.0)]), (own, [(same, 2.0)]), ([], [(same, 2.0)])):
        assert [[("jobs", False)]] == markers(encoder.encode(families, 1000, pushed))
    assert [[("jobs", True)]] == markers(encoder.encode([], 2000))


def test_renamed_label_replaces_no_other_one() -> None:
    external = {"cluster": "a", "exported_exported_cluster": "b"}
    family = Family(
        gauge("jobs", "Jobs.", "cluster", "exported_cluster"), {("q", "r"): 1.0, ("s", "r"): 2.0, ("t", ""): 3.0}
    )
    received = encode(RequestEncoder(external), family)

    renamed = "exported_exported_exported_cluster"
    assert [
        {**external, "exported_cluster": "r", renamed: "q"},
        {**external, "exported_cluster": "r", renamed: "s"},
        {**external, "exported_cluster": "t"},
    ] == [{name: value for name, value in sample.labels if name != "__name__"} for sample in received]


def test_two_renamed_labels_stay_two() -> None:
    external = {"cluster": "a", "exported_cluster": "b"}
    (sample,) = encode(
        RequestEncoder(external), Family(gauge("jobs", "Jobs.", "cluster", "exported_cluster"), {("q", "r"): 1.0})
    )

    assert {"q", "r"} <= {value for _, value in sample.labels}
