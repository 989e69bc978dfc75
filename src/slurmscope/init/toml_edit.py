# SPDX-License-Identifier: Apache-2.0
"""Set keys of a commented TOML text, and leave every other line as it is."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from slurmscope.core.errors import ConfigError

Value = bool | int | float | str | list[str]

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_TABLE = re.compile(r"\s*\[(?P<name>[^\[\]]+)\]\s*(#.*)?\Z")


def read_keys(text: str, name: str) -> dict[str, Any]:
    """Return the values of a text by dotted key; raise a ConfigError if it is not TOML."""
    try:
        return _flatten(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{name} is not valid TOML: {error}") from error


def set_keys(text: str, values: Mapping[str, Value], name: str) -> str:
    """Return the text with these values; raise a ConfigError that names the file if a person has to do it."""
    before = read_keys(text, name)
    for key, value in values.items():
        if before.get(key) == value and type(before.get(key)) is type(value):
            continue
        text = _set(text, key, value)
        if not _has_only_changed(text, before, key, value):
            raise ConfigError(f"{name}: {key} cannot be changed in this place; set it to {format_value(value)} by hand")
        before = _flatten(tomllib.loads(text))
    return text


def format_value(value: Value) -> str:
    """Return a value as TOML has it; strings of JSON and lists of them are valid TOML."""
    # The only character that JSON leaves as it is and TOML does not allow.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _set(text: str, key: str, value: Value) -> str:
    table, _, name = key.rpartition(".")
    # Not splitlines: a string may contain other separators of lines.
    lines = _LINE.findall(text)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    line = f"{name} = {format_value(value)}\n"
    found = _table_lines(lines, table)
    if found is None:
        space = "\n" if lines else ""
        return "".join([*lines, f"{space}[{table}]\n" if table else "", line])
    start, end = found
    if (span := _find_assignment(lines, start, end, name)) is not None:
        first, after = span
        return "".join([*lines[:first], line, *lines[after:]])
    example = re.compile(rf"#{re.escape(name)} *=")
    for number in range(start, end):
        if example.match(lines[number]):
            return "".join([*lines[:number], line, *lines[number + 1 :]])
    last = max((n for n in range(start, end) if lines[n].strip() and not lines[n].startswith("#")), default=start - 1)
    return "".join([*lines[: last + 1], line, *lines[last + 1 :]])


def _table_lines(lines: list[str], table: str) -> tuple[int, int] | None:
    """Return the lines of a table, without its header; those before the first header have no name."""
    current, start, found = "", 0, None
    for number, line in enumerate(lines):
        if match := _TABLE.match(line.rstrip("\n")):
            if current == table:
                found = (start, number)
                break
            current, start = match["name"].strip(), number + 1
    return found or ((start, len(lines)) if current == table and lines else None)


def _find_assignment(lines: list[str], start: int, end: int, name: str) -> tuple[int, int] | None:
    """Return the lines of a value, which may be an array over several lines."""
    assignment = re.compile(rf"\s*{re.escape(name)}\s*=")
    for number in range(start, end):
        if assignment.match(lines[number]):
            ends = (after for after in range(number + 1, end + 1) if _is_toml("".join(lines[number:after])))
            return number, next(ends, end)
    return None


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _has_only_changed(text: str, before: Mapping[str, Any], key: str, value: Value) -> bool:
    try:
        return _flatten(tomllib.loads(text)) == {**before, key: value}
    except tomllib.TOMLDecodeError:
        return False


def _flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
