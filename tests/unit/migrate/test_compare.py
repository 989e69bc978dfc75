# SPDX-License-Identifier: Apache-2.0
"""Two pages, worked out by hand, differ in what a dashboard would show."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.metrics.parse import ParsedFamily, ParsedSample, Type
from slurmscope.migrate.check import Difference, Kind, compare, describe, find_changes
from slurmscope.migrate.pages import parse_page


def family(text: str, name: str = "m") -> ParsedFamily:
    return parse_page(text.encode())[name]


def differences(old: str, ours: str) -> list[Difference]:
    return compare_whole(family(old), family(ours))


def compare_whole(old: ParsedFamily, ours: ParsedFamily) -> list[Difference]:
    changes = list(find_changes(old, ours, tolerance=0.04))
    return [*compare(old, ours), *describe(changes, ours)]


def test_equal_families_do_not_differ() -> None:
    page = '# TYPE m gauge\nm{a="1"} 2\nm{a="2"} 0\n'

    assert [] == differences(page, page)


@pytest.mark.parametrize("ours", [None, family("# TYPE m gauge\n")])
def test_family_without_series_is_missing(ours: ParsedFamily | None) -> None:
    (found,) = compare(family("m 1\n"), ours)

    assert (Kind.MISSING, "m", "is not served") == (found.kind, found.metric, found.message)


def test_type_differs_unless_one_page_has_none() -> None:
    (found,) = differences("# TYPE m gauge\nm 1\n", "# TYPE m counter\nm 9\n")

    assert (Kind.TYPE, "is a counter; it was a gauge") == (found.kind, found.message)
    assert [] == differences("m 1\n", "# TYPE m gauge\nm 1\n")


def test_renamed_label_is_recognised_by_its_values() -> None:
    old = 'm{user="ada",state="R"} 1\nm{user="bob",state="R"} 2\n'
    ours = 'm{name="ada",state="R",node="n1"} 1\nm{name="bob",state="R",node="n1"} 2\n'

    (found,) = differences(old, ours)

    assert (Kind.LABEL, "user", "name") == (found.kind, found.label, found.renamed_to)


@pytest.mark.parametrize("ours", ["m 3\n", 'm{name="eve"} 1\nm{name="ada"} 2\n'])
def test_label_without_a_successor_is_lost(ours: str) -> None:
    (found,) = differences('m{user="ada"} 1\nm{user="bob"} 2\n', ours)

    assert (Kind.LABEL, "user", "", "has no label user") == (
        found.kind,
        found.label,
        found.renamed_to,
        found.message,
    )


def test_series_are_summed_over_labels_that_only_one_page_has() -> None:
    assert [] == differences('m{user="ada"} 3\n', 'm{user="ada",state="R"} 1\nm{user="ada",state="P"} 2\n')


def test_values_of_a_label_that_only_the_old_page_has_are_listed() -> None:
    (found,) = differences('m{s="mix"} 1\nm{s="idle"} 1\nm{s="alloc"} 1\n', 'm{s="mixed"} 1\nm{s="idle"} 1\n')

    assert (Kind.LABEL_VALUES, "s", ("alloc", "mix")) == (found.kind, found.label, found.values)
    assert "has no series for 2 values of s" == found.message


@pytest.mark.parametrize("label", ["jobid", "slurm_job", "pgid"])
def test_values_that_come_and_go_do_not_count(label: str) -> None:
    assert [] == differences(f'm{{{label}="1"}} 1\n', f'm{{{label}="2"}} 1\n')


def test_labels_that_prometheus_sets_do_not_count() -> None:
    assert [] == differences('m{job="jobs_exporter",instance="n1",a="x"} 1\n', 'm{a="x"} 1\n')


@pytest.mark.parametrize(
    ("old", "ours", "message"),
    [
        ("1000000", "1048576", "is 1.049 times the old value (1 MiB is 1,048,576 bytes, not 1,000,000)"),
        ("1048576", "1000000", "is 0.9537 times the old value (1 MiB is 1,048,576 bytes, not 1,000,000)"),
        ("2e9", "2147483648", "is 1.074 times the old value (1 GiB is 1,073,741,824 bytes, not 1,000,000,000)"),
        ("64", "64e6", "is 1e+06 times the old value (another unit)"),
        ("25", "0.25", "is 0.01 times the old value (another unit)"),
        ("4", "10", "is 2.5 times the old value"),
        ("4", "0", "is 0 here"),
    ],
)
def test_factor_is_named(old: str, ours: str, message: str) -> None:
    (found,) = differences(f"m {old}\n", f"m {ours}\n")

    assert (Kind.VALUE, message) == (found.kind, found.message)


def test_series_that_differ_in_several_ways_are_listed() -> None:
    old = "".join(f'm{{a="{n}"}} 100\n' for n in range(5))
    ours = 'm{a="0"} 100\n' + "".join(f'm{{a="{n}"}} {1000 * n}\n' for n in range(1, 5))

    (found,) = differences(old, ours)

    assert (Kind.VALUE, None, "differs in 4 series") == (found.kind, found.factor, found.message)
    assert "a=1: 100, now 1000" == found.values[0]


def test_two_of_three_series_that_turned_to_zero_are_found() -> None:
    old = "".join(f'm{{a="{n}"}} 100\n' for n in range(3))

    (found,) = differences(old, 'm{a="0"} 100\nm{a="1"} 0\nm{a="2"} 0\n')

    assert "is 0 here in 2 series" == found.message


def test_missing_combination_of_known_values_is_found() -> None:
    old = "".join(f'm{{a="{a}",b="{b}"}} 1\n' for a in "xy" for b in "xy")

    (found,) = differences(old, old.replace('m{a="y",b="x"} 1\n', ""))

    assert (Kind.SERIES, ("a=y,b=x",)) == (found.kind, found.values)


@pytest.mark.parametrize("ours", ["100", "103", "97"])
def test_small_differences_are_ignored(ours: str) -> None:
    assert [] == differences("m 100\n", f"m {ours}\n")


@pytest.mark.parametrize(("old", "ours"), [("0", "5"), ("NaN", "5"), ("+Inf", "5")])
def test_what_has_no_ratio_differs_all_the_same(old: str, ours: str) -> None:
    (found,) = differences(f"m {old}\n", f"m {ours}\n")

    assert not found.factor
    assert [] == differences(f"m {old}\n", f"m {old}\n")


def test_counters_depend_on_the_start_of_their_exporter() -> None:
    assert [] == differences("# TYPE m counter\nm 5\n", "# TYPE m counter\nm 500\n")


_PAIRS = st.dictionaries(st.sampled_from("abc"), st.text(max_size=3), max_size=3)


@given(st.lists(st.tuples(_PAIRS, st.floats()), min_size=1), st.lists(st.tuples(_PAIRS, st.floats()), min_size=1))
def test_any_two_families_can_be_compared(
    old: list[tuple[dict[str, str], float]], ours: list[tuple[dict[str, str], float]]
) -> None:
    for found in compare_whole(_make(old), _make(ours)):
        assert found.message
    assert [] == compare_whole(_make(old), _make(old))


def _make(samples: list[tuple[dict[str, str], float]]) -> ParsedFamily:
    parsed = tuple(ParsedSample("m", labels, value, None) for labels, value in samples)
    return ParsedFamily(name="m", type=Type.GAUGE, help="", unit="", samples=parsed)
