# SPDX-License-Identifier: Apache-2.0
"""Read the files of a cgroup in one go, with nothing between two calls into the kernel."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from slurmscope.sources.cgroup.kept import DescriptorBudget, KeptFile

# Enough for all but the longest; those are read one by one.
SIZE = 16384
BatchValue = TypeVar("BatchValue")


class Batch:
    """Hold files that are always read together.

    While all of them are open, only their descriptors are touched: on a node with many jobs, going from object to
    object costs as much as the kernel does. Anything unusual, such as a descriptor that was closed anywhere, makes the
    next reading go through the files one by one.
    """

    __slots__ = ("_budget", "_closings", "_files", "_nothing", "_open")

    def __init__(self, budget: DescriptorBudget, files: Sequence[KeptFile | None] = ()) -> None:
        """Take the budget that the files share; None stands for a file of which the folder is not there."""
        self._budget = budget
        self._files = files
        self._nothing = [b""] * len(files)
        self._open: list[tuple[int, int]] | None = None
        self._closings = -1

    def reset(self) -> None:
        """Go through the files one by one next time, because some that were missing may be there."""
        self._open = None

    def read(self) -> list[bytes]:
        """Return the texts in the order of the files; empty ones stand for what could not be read."""
        if self._open is not None and self._closings != self._budget.closings:
            self._remember()
        if self._open is None:
            return self._read_each()
        texts = self._nothing.copy()
        pread = os.pread
        try:
            for index, descriptor in self._open:
                texts[index] = text = pread(descriptor, SIZE, 0)
                if len(text) == SIZE:
                    return self._read_each()
        except OSError:
            return self._read_each()
        return texts

    def _read_each(self) -> list[bytes]:
        texts = [b"" if file is None else file.read() for file in self._files]
        self._remember()
        return texts

    def _remember(self) -> None:
        """Remember the descriptors, unless a file has to be opened for each reading."""
        files = [(index, file) for index, file in enumerate(self._files) if file is not None and not file.is_skipped]
        has_all = all(file.descriptor >= 0 for _, file in files)
        self._open = [(index, file.descriptor) for index, file in files] if has_all else None
        self._closings = self._budget.closings


class Memo(Generic[BatchValue]):
    """Parse a text only when it has changed: most files of an idle job say the same again and again."""

    __slots__ = ("_parse", "_text", "_value")

    def __init__(self, parse: Callable[[bytes], BatchValue]) -> None:
        """Take a pure function; its value is handed out several times and must not be changed by anybody."""
        self._parse = parse
        self._text = b""
        self._value = parse(b"")

    def __call__(self, text: bytes) -> BatchValue:
        """Return what the text says."""
        if text != self._text:
            self._text = text
            self._value = self._parse(text)
        return self._value
