# SPDX-License-Identifier: Apache-2.0
"""Host lists become names, and a hostile one is refused before it costs anything."""

from __future__ import annotations

import tracemalloc

import hostlist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmscope.core.hostlist import RANGED_LIMIT, expand_hosts, match_hosts


# What scontrol show hostnames of 22.05 prints for the same text.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n[1-3,7],m01", "n1 n2 n3 n7 m01"),
        ("n[009-011]", "n009 n010 n011"),
        ("n[1-010]", "n1 n2 n3 n4 n5 n6 n7 n8 n9 n10"),
        ("n[3,1-2]", "n3 n1 n2"),
        ("n[1-2]x[3-4]", "n1x3 n1x4 n2x3 n2x4"),
        ("a,,b", "a b"),
        ("n1 n2,n[3-4] m", "n1 n2 n3 n4 m"),
        ("login-1.example.org", "login-1.example.org"),
        ("", ""),
    ],
)
def test_names_are_those_of_slurm(text: str, expected: str) -> None:
    assert tuple(expected.split()) == expand_hosts(text)


def test_a_name_that_is_listed_twice_is_given_once() -> None:
    assert ("a", "b", "n2", "n3") == expand_hosts("a,b,a,n[2-3],n2")


@pytest.mark.parametrize(
    "text", ["n[1", "n]", "n[]", "n[2-1]", "n[1,]", "n[0x]", "n[-1]", "n[[1]]", "n[1-2-3]", "n[¹]"]
)
def test_text_that_is_no_host_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"host list|range"):
        expand_hosts(text)


@pytest.mark.parametrize(
    "text",
    [
        "n[0-999999999]",
        "n[0-999999999999999999]",
        "n" + "[0-9]" * 6,
        "n" + "[0-9]" * 5_000,
        "n[1-60000],m[1-60000]",
        "n[" + ",".join(["1-1000"] * 101) + "]",
        "n[" + "9" * 10_000 + "]",
        "n" * 1_000_000 + "[1-99999]",
    ],
)
def test_a_hostile_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"more than|too long|range"):
        expand_hosts(text)


def test_the_limit_is_the_last_number_that_is_taken() -> None:
    assert 100_000 == len(expand_hosts("n[1-100000]"))
    assert ("n1", "n2") == expand_hosts("n[1-2]", limit=2)
    with pytest.raises(ValueError, match="more than 2 hosts"):
        expand_hosts("n[1-3]", limit=2)


_numbers = st.integers(0, 120)


@st.composite
def _brackets(draw: st.DrawFn) -> str:
    pieces = []
    for _ in range(draw(st.integers(1, 2))):
        first, length, digits = draw(_numbers), draw(st.integers(0, 4)), draw(st.integers(1, 4))
        last = f"{first + length:0{digits}}"
        pieces.append(f"{first:0{digits}}-{last}" if length else last)
    return f"[{','.join(pieces)}]"


_literals = st.text("abcn-._0123456789", min_size=1, max_size=6)
_items = st.builds("".join, st.lists(_literals | _brackets(), min_size=1, max_size=3))


@settings(deadline=None)
@given(st.lists(_items, max_size=4))
def test_names_are_those_of_another_implementation(items: list[str]) -> None:
    text = ",".join(items)

    assert tuple(dict.fromkeys(hostlist.expand_hostlist(text, allow_duplicates=True))) == expand_hosts(text)


@settings(deadline=None)
@given(st.lists(_items, max_size=4), st.data())
def test_matching_takes_exactly_the_names_of_the_list(items: list[str], data: st.DataObject) -> None:
    text = ",".join(items)
    names = hostlist.expand_hostlist(text)
    is_listed = match_hosts(text)

    assert all(map(is_listed, names))
    for name in data.draw(st.lists(st.text("abcn-._0123456789", max_size=8), max_size=20)):
        assert (name in names) == is_listed(name)
    for name in names[:20]:
        for other in (name + "0", "0" + name, name[:-1], name.replace("1", "01"), name.replace("0", "")):
            assert (other in names) == is_listed(other)


def test_matching_expands_nothing() -> None:
    lists = ["n[0-999999999999999999]", "n[1-100000]x[1-100000]", "n[" + ",".join(["1-100000"] * 900) + "]"]
    tracemalloc.start()
    try:
        found = [match_hosts(text) for text in lists]
        taken = [[is_listed(name) for name in ("n7", "n007", "n7x99999", "n100001")] for is_listed in found]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert [[True, False, False, True], [False, False, True, False], [True, False, False, False]] == taken
    assert peak < 1_000_000


@pytest.mark.parametrize("text", ["n[1-2]," * (RANGED_LIMIT + 1), "n" + "[0-9]" * 5, "n[1", "n[2-1]"])
def test_list_that_costs_much_or_is_none_is_not_matched(text: str) -> None:
    with pytest.raises(ValueError, match=r"brackets|range"):
        match_hosts(text)


@settings(deadline=None)
@given(st.text(max_size=60) | st.text("n[]-,019", max_size=40))
def test_any_text_is_expanded_within_the_limit_or_refused(text: str) -> None:
    try:
        names = expand_hosts(text, limit=50)
    except ValueError:
        return
    assert len(names) <= 50
    assert all(names)
