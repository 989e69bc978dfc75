# SPDX-License-Identifier: Apache-2.0
"""Read the files of a cgroup together, with minimal work between two system calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from slurmscope.sources.cgroup.kept_files import DescriptorBudget, KeptFile

# Enough for all but the longest; those are read one by one.
SIZE = 16384
BatchValue = TypeVar("BatchValue")


class Batch:
    """Hold files that are always read together.

    While all of them are open, only their descriptors are used: on a node with many jobs, going from object to object
    costs as much as the kernel does. After anything unusual, such as a closed descriptor, the next read goes through
    the files one by one.
    """

    __slots__ = ("_budget", "_closings", "_files", "_nothing", "_open")

    def __init__(self, budget: DescriptorBudget, files: Sequence[KeptFile | None] = ()) -> None:
        """Set the budget that the files share; None stands for a file whose folder does not exist."""
        self._budget = budget
        self._files = files
        self._nothing = [b""] * len(files)
        self._open: list[tuple[int, int]] | None = None
        self._closings = -1

    def reset(self) -> None:
        """Read the files one by one next time, because missing ones may exist now."""
        self._open = None

    def read(self) -> list[bytes]:
        """Return the contents in the order of the files; empty for files that could not be read."""
        if self._open is not None and self._closings != self._budget.closings:
            self._cache_descriptors()
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
        self._cache_descriptors()
        return texts

    def _cache_descriptors(self) -> None:
        """Cache the descriptors, unless a file has to be opened for each read."""
        files = [(index, file) for index, file in enumerate(self._files) if file is not None and not file.is_skipped]
        has_all = all(file.descriptor >= 0 for _, file in files)
        self._open = [(index, file.descriptor) for index, file in files] if has_all else None
        self._closings = self._budget.closings


class Memo(Generic[BatchValue]):
    """Parse a text only when it has changed: most files of an idle job stay the same."""

    __slots__ = ("_parse", "_text", "_value")

    def __init__(self, parse: Callable[[bytes], BatchValue]) -> None:
        """Set a pure function; its value is returned several times and must not be modified."""
        self._parse = parse
        self._text = b""
        self._value = parse(b"")

    def __call__(self, text: bytes) -> BatchValue:
        """Return the parsed text."""
        if text != self._text:
            self._text = text
            self._value = self._parse(text)
        return self._value
