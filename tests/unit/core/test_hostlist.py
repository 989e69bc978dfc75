# SPDX-License-Identifier: Apache-2.0
"""Host lists become names, and a hostile one is refused before it costs anything."""

from __future__ import annotations

import hostlist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmscope.core.hostlist import expand_hosts


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
@given(st.text(max_size=60) | st.text("n[]-,019", max_size=40))
def test_any_text_is_expanded_within_the_limit_or_refused(text: str) -> None:
    try:
        names = expand_hosts(text, limit=50)
    except ValueError:
        return
    assert len(names) <= 50
    assert all(names)
