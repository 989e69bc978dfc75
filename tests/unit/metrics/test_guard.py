# SPDX-License-Identifier: Apache-2.0
"""Check one by one what the guard lets through, mends, drops and counts."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurmscope.metrics.family import (
    Family,
    Histogram,
    Labels,
    Metric,
    MetricKind,
    Samples,
    Value,
    compat_counter,
    compat_gauge,
    counter,
    gauge,
    histogram,
    info,
)
from slurmscope.metrics.guard import Guard, Reason

CPUS = gauge("cpus", "Cpus.", "user")
JOBS = counter("jobs_total", "Jobs.", "user")
JOB = info("job_info", "Job.", "name")
WAIT = histogram("wait_seconds", "Wait.", "user", buckets=(1, 10))


def admit(metric: Metric, samples: object, guard: Guard | None = None) -> dict[Labels, Value]:
    """Return the samples of one metric that a guard lets through."""
    families = list((guard or Guard()).admit([Family(metric, cast("Samples", samples))]))
    return {
        labels: value for family in families for labels, value in cast("dict[Labels, Value]", family.samples).items()
    }


def drops(metric: Metric, samples: object) -> Mapping[tuple[str, str], int]:
    """Return what a guard drops of one metric that holds nothing good."""
    guard = Guard()
    assert {} == admit(metric, samples, guard)
    return guard.dropped


def test_good_samples_pass_untouched() -> None:
    samples: dict[Labels, Value] = {("ada",): 1, ("zoë",): 2.5}
    guard = Guard()
    (family,) = guard.admit([Family(CPUS, samples)])
    assert samples is family.samples
    assert {} == guard.dropped


@pytest.mark.parametrize("value", ["", "a\x00b", "\x1b[31m", "\r\n", "\u2028", '"\\', "日本", "😀"])
def test_odd_but_valid_text_is_kept(value: str) -> None:
    assert {(value,): 1} == admit(CPUS, {(value,): 1})


@pytest.mark.parametrize("value", [b"caf\xe9".decode("utf-8", "surrogateescape"), "caf\ud800"])
def test_text_that_is_not_unicode_is_mended(value: str) -> None:
    assert {("caf\ufffd",): 1} == admit(CPUS, {(value,): 1})


def test_long_value_is_cut_with_an_ellipsis() -> None:
    guard = Guard(label_length_limit=10)
    assert {("a" * 10,): 1, ("b" * 9 + "…",): 2} == admit(CPUS, {("a" * 10,): 1, ("b" * 11,): 2}, guard)


@pytest.mark.parametrize("letter", ["a", "é"])
def test_length_limit_holds_per_value_not_per_row(letter: str) -> None:
    metric = gauge("x", "X.", "a", "b")
    samples = {(letter * 10, letter * 10): 1}
    assert samples == admit(metric, samples, Guard(label_length_limit=10))
    assert samples == admit(metric, iter(samples.items()), Guard(label_length_limit=10))


@pytest.mark.parametrize(
    "labels", [(), ("a", "b"), (None,), (1,), (b"a",), None, "a", 7, (["unhashable"],), ["a"], frozenset("a")], ids=repr
)
def test_wrong_label_set_is_dropped(labels: object) -> None:
    assert {("cpus", "labels"): 1} == drops(CPUS, [(labels, 1)])


@pytest.mark.parametrize("labels", [(), ("a", "b"), (None,), None, "a"], ids=repr)
def test_wrong_label_set_in_a_mapping_costs_only_itself(labels: object) -> None:
    assert {("ada",): 1} == admit(CPUS, {labels: 2, ("ada",): 1})


@pytest.mark.parametrize("item", [None, 5, (), (("a",),), (("a",), 1, 2), "ab"], ids=repr)
def test_what_is_no_pair_is_dropped(item: object) -> None:
    assert {("cpus", "labels"): 1} == drops(CPUS, [item])


@pytest.mark.parametrize(
    "value", [None, "5", b"5", Decimal(5), 5j, [], Histogram((1, 2, 3), 1), 10**400, -(10**5000)], ids=type
)
def test_value_that_is_no_number_is_dropped(value: object) -> None:
    assert {("cpus", "value"): 1} == drops(CPUS, {("a",): value})


class _Level(enum.IntEnum):
    HIGH = 3


class _Watts(float):
    """Behave like the floats of array packages."""

    def __repr__(self) -> str:
        return "watts"


@pytest.mark.parametrize(("value", "text"), [(True, "1"), (False, "0"), (_Level.HIGH, "3"), (_Watts(2.5), "2.5")])
def test_number_in_disguise_becomes_plain(value: float, text: str) -> None:
    assert {("a",): text} == {labels: repr(number) for labels, number in admit(CPUS, {("a",): value}).items()}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), -1, 0])
def test_gauge_may_have_any_number(value: float) -> None:
    assert [repr(value)] == [repr(number) for number in admit(CPUS, {("a",): value}).values()]


@pytest.mark.parametrize("value", [-1, -0.5, float("nan"), float("-inf")])
def test_counter_below_zero_is_dropped(value: float) -> None:
    assert {("jobs_total", "value"): 1} == drops(JOBS, {("a",): value})


@pytest.mark.parametrize("value", [0, 2.5, float("inf")])
def test_counter_from_zero_up_is_kept(value: float) -> None:
    assert {("a",): value} == admit(JOBS, {("a",): value})


@pytest.mark.parametrize("value", [1, 1.0, True])
def test_info_of_one_is_kept(value: float) -> None:
    assert {("a",): 1} == admit(JOB, {("a",): value})


@pytest.mark.parametrize("value", [0, 2, float("nan")])
def test_info_of_another_value_is_dropped(value: float) -> None:
    assert {("job_info", "value"): 1} == drops(JOB, {("a",): value})


def test_good_histogram_is_kept() -> None:
    samples = {("a",): Histogram((1, 2, 3), 9.5)}
    assert samples == admit(WAIT, samples)


@pytest.mark.parametrize(
    "value",
    [
        5,
        None,
        Histogram((1, 2), 1),
        Histogram((1, 2, 3, 4), 1),
        Histogram((1, -2, 3), 1),
        Histogram(cast("tuple[int, ...]", (1, 2.5, 3)), 1),
        Histogram(cast("tuple[int, ...]", [1, 2, 3]), 1),
        Histogram(cast("tuple[int, ...]", None), 1),
        Histogram((1, 2, 10**400), 1),
        Histogram((int(1.7e308),) * 3, 1),
        Histogram((1, 2, 3), float("nan")),
        Histogram((1, 2, 3), -1),
        Histogram((1, 2, 3), cast("float", None)),
    ],
    ids=lambda value: str(value)[:40],
)
def test_broken_histogram_is_dropped(value: object) -> None:
    assert {("wait_seconds", "value"): 1} == drops(WAIT, {("a",): value})


def test_first_of_two_equal_series_wins() -> None:
    guard = Guard()
    assert {("a",): 1, ("b",): 3} == admit(CPUS, [(("a",), 1), (("a",), 2), (("b",), 3)], guard)
    assert {("cpus", "duplicate"): 1} == guard.dropped


def test_series_that_become_equal_by_cleaning_are_duplicates() -> None:
    guard = Guard(label_length_limit=4)
    samples = {(value,): number for number, value in enumerate(["abcdX", "abcdY", "\ud800", "\udfff"], 1)}
    assert {("abc…",): 1, ("\ufffd",): 3} == admit(CPUS, samples, guard)
    assert {("cpus", "duplicate"): 2} == guard.dropped


def names(guard: Guard, *families: Family) -> list[str]:
    """Return the names of the metrics that pass."""
    return [family.metric.name for family in guard.admit(families)]


def test_metric_that_comes_twice_is_served_once() -> None:
    guard = Guard()
    again = Family(gauge("cpus", "Another help.", "user"), iter([(("b",), 1), (("c",), 1)]))
    assert ["cpus"] == names(guard, Family(CPUS, {("a",): 1}), again)
    assert {("cpus", "duplicate"): 2} == guard.dropped


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (gauge("x", "X."), gauge("x", "X.", "label")),
        (gauge("x", "X."), histogram("x", "X.", buckets=(1,))),
        (histogram("x", "X.", buckets=(1,)), histogram("x", "X.", buckets=(2,))),
        (histogram("x", "X.", buckets=(1,)), gauge("x_sum", "X.")),
        (gauge("x_count", "X."), histogram("x", "X.", buckets=(1,))),
        (histogram("x", "X.", buckets=(1,)), compat_gauge("x_bucket", "X.")),
        (counter("x_total", "X."), gauge("x", "X.")),
        (counter("x_total", "X."), compat_gauge("x_total", "X.")),
        (counter("x_total", "X."), gauge("x_created", "X.")),
        (info("x_info", "X."), gauge("x", "X.")),
        (info("x_info", "X."), counter("x_total", "X.")),
    ],
    ids=lambda metric: f"{metric.kind.value} {metric.name}",
)
def test_clash_of_types_drops_the_second(first: Metric, second: Metric) -> None:
    guard = Guard()
    value: Value = Histogram((1, 2), 3) if first.kind is MetricKind.HISTOGRAM else 1
    assert [first.name] == names(guard, Family(first, {(): value}), Family(second, {(): 1}))
    assert {(second.name, "type_clash"): 1} == guard.dropped


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (gauge("x", "X."), compat_gauge("x_total", "X.")),
        (gauge("x", "X."), gauge("x_info", "X.")),
        (gauge("x", "X."), gauge("x_sum", "X.")),
        (compat_counter("x", "X."), gauge("x_created", "X.")),
        (Metric(name="x", kind=MetricKind.INFO, help="X."), gauge("x_info", "X.")),
    ],
    ids=lambda metric: f"{metric.kind.value} {metric.name}",
)
def test_names_that_only_look_alike_do_not_clash(first: Metric, second: Metric) -> None:
    assert [first.name, second.name] == names(Guard(), Family(first, {(): 1}), Family(second, {(): 1}))


def test_family_left_empty_is_left_out_and_claims_no_name() -> None:
    guard = Guard()
    broken = Family(CPUS, cast("Samples", {("a",): None}))
    assert ["cpus"] == names(guard, Family(CPUS), broken, Family(gauge("cpus", "X."), {(): 1}))
    assert {("cpus", "value"): 1} == guard.dropped


def test_clash_without_samples_counts_nothing() -> None:
    guard = Guard()
    assert ["cpus"] == names(guard, Family(CPUS, {("a",): 1}), Family(CPUS))
    assert {} == guard.dropped


def test_next_page_starts_with_free_names() -> None:
    guard = Guard()
    family = Family(CPUS, {("a",): 1})
    assert [["cpus"], ["cpus"]] == [names(guard, family), names(guard, family)]


def users(*numbers: int) -> dict[Labels, Value]:
    """Return one sample per number."""
    return {(f"user{number}",): number for number in numbers}


def test_new_series_over_the_limit_are_dropped_and_old_ones_kept() -> None:
    guard = Guard(series_limit=3)
    assert users(7, 8) == admit(CPUS, users(7, 8), guard)
    served = admit(CPUS, users(1, 2, 7, 3, 8, 4), guard)
    assert list(users(1, 7, 8).items()) == list(served.items())
    assert {("cpus", "limit"): 3} == guard.dropped
    assert users(8, 1, 7) == admit(CPUS, users(2, 8, 3, 1, 7, 4, 5), guard)
    assert {("cpus", "limit"): 7} == guard.dropped


def test_limit_holds_from_the_first_scrape() -> None:
    assert users(5, 4) == admit(CPUS, users(5, 4, 3, 2), Guard(series_limit=2))


def test_room_of_series_that_ended_goes_to_new_ones() -> None:
    guard = Guard(series_limit=2)
    admit(CPUS, users(1, 2), guard)
    assert users(3, 2) == admit(CPUS, users(3, 4, 2), guard)


def test_page_without_a_metric_does_not_reset_its_series() -> None:
    guard = Guard(series_limit=2)
    admit(CPUS, users(8, 9), guard)
    admit(JOBS, users(1), guard)
    assert users(8, 9) == admit(CPUS, users(1, 2, 8, 9), guard)


def test_limit_holds_for_each_metric_alone() -> None:
    guard = Guard(series_limit=2)
    other = gauge("other", "Other.", "user")
    families = list(guard.admit([Family(CPUS, users(1, 2)), Family(other, users(1, 2)), Family(JOBS, users(3, 4))]))
    assert [users(1, 2), users(1, 2), users(3, 4)] == [family.samples for family in families]
    assert users(1, 2) == admit(other, users(5, 1, 2), guard)
    assert users(3, 4) == admit(JOBS, users(5, 3, 4), guard)


class _Colliding(str):
    __slots__ = ()

    def __hash__(self) -> int:
        return 1


def test_limit_holds_even_if_hashes_collide() -> None:
    guard = Guard(series_limit=2)
    samples = {(_Colliding(letter),): 1 for letter in "abcd"}
    admit(CPUS, dict(list(samples.items())[:2]), guard)
    assert dict(list(samples.items())[:2]) == admit(CPUS, samples, guard)


def test_families_are_read_one_at_a_time() -> None:
    read: list[str] = []

    def families() -> Iterator[Family]:
        for metric in (CPUS, JOBS):
            read.append(metric.name)
            yield Family(metric, users(1))

    next(Guard().admit(families()))
    assert ["cpus"] == read


def test_failure_of_the_collector_itself_passes_through() -> None:
    def samples() -> Iterator[tuple[Labels, Value]]:
        yield ("a",), 1
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        admit(CPUS, samples())


def test_reasons_are_a_closed_set_of_plain_words() -> None:
    assert ["duplicate", "type_clash", "labels", "value", "limit"] == [str(reason) for reason in Reason]


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.just(Histogram((1, 2, 3), 1)),
    lambda inner: st.lists(inner, max_size=2) | st.tuples(inner) | st.tuples(inner, inner),
    max_leaves=4,
)
ITEMS = st.lists(ANYTHING | st.tuples(st.tuples(ANYTHING), ANYTHING), max_size=5)
METRICS = st.sampled_from([CPUS, JOBS, JOB, WAIT, gauge("bare", "Bare.")])


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(METRICS, ITEMS), max_size=4))
def test_nothing_that_comes_in_makes_the_guard_raise(pages: list[tuple[Metric, list[object]]]) -> None:
    guard = Guard(series_limit=3, label_length_limit=3)
    families = [Family(metric, cast("Samples", samples)) for metric, samples in pages]
    admitted = list(guard.admit(families))
    served = sum(len(cast("dict[Labels, Value]", family.samples)) for family in admitted)
    assert sum(len(samples) for _, samples in pages) == served + sum(guard.dropped.values())


def test_values_of_up_to_1024_characters_are_kept_by_default() -> None:
    assert {("a" * 1024,): 1, ("b" * 1023 + "…",): 2} == admit(CPUS, {("a" * 1024,): 1, ("b" * 1025,): 2})
