# SPDX-License-Identifier: Apache-2.0
"""Headers of queries are checked when they are set, and their values are never shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.http.client.credentials import Header, hide_values, parse_headers


@pytest.mark.parametrize(
    ("given_headers", "expected"),
    [
        ("X-Scope-OrgID=hpc", (Header(name="X-Scope-OrgID", value="hpc"),)),
        ("A=b=c, D=@", (Header(name="A", value="b=c"), Header(name="D", value="@"))),
        (
            ["A=@/etc/key", "B=two words"],
            (Header(name="A", file=Path("/etc/key")), Header(name="B", value="two words")),
        ),
        ([], ()),
    ],
)
def test_headers_are_names_with_values_or_files(given_headers: object, expected: object) -> None:
    assert expected == parse_headers(given_headers)


@pytest.mark.parametrize(
    "wrong",
    [7, "hidden", "=hidden", "A B=hidden", "A=", "A= ", "A=hidd\u00e9n", ["A=hidden\r\nB: c"], ["Host=hidden"],
     ["content-length=5"], ["A=hidden", "a=hidden"], [7], ["A:=hidden"]],
)  # fmt: skip
def test_invalid_header_is_rejected_without_its_value(wrong: object) -> None:
    with pytest.raises(ValueError, match="header") as caught:
        parse_headers(wrong)

    assert "hidd" not in str(caught.value)


@given(st.text(min_size=1, max_size=50))
def test_any_text_is_sent_as_it_is_or_rejected(text: str) -> None:
    try:
        (header,) = parse_headers([f"X-Key={text}"])
    except ValueError:
        return
    assert text.strip() in (header.value, f"@{header.file}")
    assert header.value.isascii()
    assert header.value.isprintable()


def test_value_is_not_shown() -> None:
    header, filed = parse_headers(["A=hidden", "B=@/etc/key"])

    assert "hidden" not in repr(header)
    assert ("A=<hidden>", "B=@/etc/key") == (str(header), str(filed))


@pytest.mark.parametrize("text", ["a bad token: Bearer prod-3f9a1c77e2", "a bad token: Bearer prod-3f9a1c…"])
@pytest.mark.parametrize("values", [("prod", "Bearer prod-3f9a1c77e2"), ("Bearer prod-3f9a1c77e2", "prod")])
def test_value_that_begins_as_another_one_is_hidden_whole(text: str, values: tuple[str, str]) -> None:
    assert "a bad token: SECRET" == hide_values(text, values).rstrip("…")
