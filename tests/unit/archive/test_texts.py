# SPDX-License-Identifier: Apache-2.0
"""Texts become fit for every database, and different names stay different."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slurmscope.archive.texts import short_name, short_text

EVERY_TEXT = st.text(alphabet=st.characters(exclude_categories=()), max_size=60)


@given(EVERY_TEXT)
def test_text_is_valid_and_short(text: str) -> None:
    short = short_text(text, 20)

    short.encode("utf-8")
    assert "\0" not in short
    assert len(short) <= 20


@given(EVERY_TEXT, EVERY_TEXT)
def test_different_names_stay_different(one: str, other: str) -> None:
    names = {short_name(one, 32), short_name(other, 32)}

    assert len({one, other}) == len(names)
    for name in names:
        name.encode("utf-8")
        assert "\0" not in name
        assert len(name) <= 32


@given(st.text(alphabet="abcäß漢🚀 -_", max_size=32))
def test_usual_name_stays_as_it_is(name: str) -> None:
    assert name == short_name(name, 32) == short_text(name, 32)
