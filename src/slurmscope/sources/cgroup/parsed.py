# SPDX-License-Identifier: Apache-2.0
"""Parse a file only when its text has changed since the last time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from slurmscope.sources.cgroup.kept import KeptFile

Value = TypeVar("Value")


class ParsedFile(Generic[Value]):
    """Hold what a file said last: most files of an idle job say the same again and again."""

    __slots__ = ("_data", "_file", "_parse", "_value")

    def __init__(self, file: KeptFile, parse: Callable[[bytes], Value]) -> None:
        """Take a pure function; its value is handed out several times and must not be changed by anybody."""
        self._file = file
        self._parse = parse
        self._data = b""
        self._value = parse(b"")

    def read(self) -> Value:
        """Read the file now."""
        data = self._file.read()
        if data != self._data:
            self._data = data
            self._value = self._parse(data)
        return self._value
