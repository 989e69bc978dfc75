# SPDX-License-Identifier: Apache-2.0
"""Keys are set in commented TOML; tomllib says what the result is."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.errors import ConfigError
from slurmscope.init.toml_edit import Value, format_value, read_keys, set_keys

DEPLOY = Path(__file__).parents[3] / "deploy"
TEXT = """# a site's file
top = 1

[web]
# ports
listen-address = [
  ":1",  # one
  ":2",
]
#config.file = "/etc/web.yml"

[log]
level = "info" # words
"""


def test_value_over_several_lines_is_replaced() -> None:
    after = set_keys(TEXT, {"web.listen-address": [":9"]}, "f")

    assert {"listen-address": [":9"]} == tomllib.loads(after)["web"]
    assert "# ports\n" in after


def test_example_is_uncommented_in_its_place() -> None:
    after = set_keys('[web]\n#config = "a"\n\n[log]\n#config = "b"\n', {"log.config": "c"}, "f")

    assert '[web]\n#config = "a"\n\n[log]\nconfig = "c"\n' == after


def test_key_that_is_not_there_is_added_to_its_table() -> None:
    after = set_keys(TEXT, {"log.format": "logfmt", "web.max": 3}, "f")

    assert {"level": "info", "format": "logfmt"} == tomllib.loads(after)["log"]
    assert 3 == tomllib.loads(after)["web"]["max"]


def test_new_table_is_added_at_the_end() -> None:
    assert "a = 1\n\n[b.c]\nd = true\n" == set_keys("a = 1", {"b.c.d": True}, "f")


def test_key_without_a_table_stands_before_the_first_one() -> None:
    assert "b = 2\n[a]\nc = 1\n" == set_keys("[a]\nc = 1\n", {"b": 2}, "f")
    assert "a = 1\n" == set_keys("", {"a": 1}, "f")
    assert "[a]\nb = 1\n" == set_keys("", {"a.b": 1}, "f")


def test_equal_value_leaves_the_text_as_it_is() -> None:
    assert TEXT == set_keys(TEXT, {"web.listen-address": [":1", ":2"], "log.level": "info"}, "f")


def test_number_is_not_taken_for_a_switch() -> None:
    assert "top = true" in set_keys(TEXT, {"top": True}, "f")


@pytest.mark.parametrize(
    "text",
    [
        'log.level = "info"\n',  # a dotted key of the table above
        '"log" = {level = "info"}\n',
        '[ "log" ]\nlevel = "info"\n',
    ],
)
def test_place_that_is_not_understood_is_left_to_a_person(text: str) -> None:
    with pytest.raises(ConfigError, match=r'log\.level cannot be changed in this place; set it to "debug" by hand'):
        set_keys(text, {"log.level": "debug"}, "f")


def test_file_that_is_not_toml_is_named() -> None:
    with pytest.raises(ConfigError, match=r"node\.toml is not valid TOML"):
        read_keys("a =", "node.toml")


@given(st.one_of(st.booleans(), st.integers(-(2**60), 2**60), st.text(), st.lists(st.text())))
def test_every_value_comes_back_from_every_example(value: Value) -> None:
    for name, key in (("node", "node.grace"), ("portal", "accounting.host"), ("cluster", "new.table.key")):
        text = (DEPLOY / f"{name}.toml").read_text(encoding="utf-8")
        after = set_keys(text, {key: value}, name)
        assert value == tomllib.loads(f"a = {format_value(value)}")["a"]
        assert {**read_keys(text, name), key: value} == read_keys(after, name)
        assert 0 <= after.count("\n") - text.count("\n") <= 3
