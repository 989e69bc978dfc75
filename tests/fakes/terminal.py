# SPDX-License-Identifier: Apache-2.0
"""Run a command in a pseudo terminal, and keep the screen that a user would see."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

from tests.processes import PATIENCE_SECONDS

_TOKEN = re.compile(
    r"\x1b\[(?P<arguments>[0-9;?]*)(?P<code>[A-Za-z])|(?P<control>[\r\n])|(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
)


class Screen:
    """Interpret what a program writes; a sequence that it does not know is an error."""

    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.height = columns, lines
        self.cells = [[" "] * columns for _ in range(lines)]
        self.row = self.column = 0
        self.modes: set[str] = set()
        self.styles: set[str] = set()

    def feed(self, text: str) -> None:
        position = 0
        while position < len(text):
            found = _TOKEN.match(text, position)
            assert found, f"the program wrote {text[position : position + 20]!r}"
            position = found.end()
            if found["code"]:
                self._obey(found["code"], found["arguments"])
            elif found["control"]:
                self.row, self.column = (self.row, 0) if found["control"] == "\r" else (self.row + 1, self.column)
                assert self.row < self.height, "the screen scrolled"
            else:
                for char in found["text"]:
                    assert self.column < self.columns, f"a line is too long: {found['text']!r}"
                    self.cells[self.row][self.column] = char
                    self.column += 1

    def _obey(self, code: str, arguments: str) -> None:
        if code == "H" and not arguments:
            self.row = self.column = 0
        elif code == "K" and not arguments:
            self.cells[self.row][self.column :] = [" "] * (self.columns - self.column)
        elif code == "J" and not arguments:
            self.cells[self.row][self.column :] = [" "] * (self.columns - self.column)
            for row in range(self.row + 1, self.height):
                self.cells[row] = [" "] * self.columns
        elif code in "hl" and arguments.startswith("?"):
            (self.modes.add if code == "h" else self.modes.discard)(arguments)
        elif code == "m":
            self.styles.add(arguments)
        else:
            raise AssertionError(f"the program wrote the sequence {arguments}{code}")

    @property
    def lines(self) -> list[str]:
        return ["".join(row).rstrip() for row in self.cells]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


class Terminal:
    """Run a command, type keys, and wait for what is on the screen."""

    def __init__(
        self, argv: Sequence[str], *, columns: int = 80, lines: int = 24, environment: Mapping[str, str] = {}
    ) -> None:
        self.screen = Screen(columns, lines)
        self._ours, theirs = pty.openpty()
        self._bytes = b""
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        unset = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES", "NO_COLOR"}}
        self.settings_before = termios.tcgetattr(theirs)
        self.process = subprocess.Popen(
            argv, stdin=theirs, stdout=theirs, stderr=theirs, env={**unset, "TERM": "xterm", **environment}
        )
        self._theirs = theirs

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_SECONDS)
        os.close(self._ours)
        os.close(self._theirs)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def wait_for(self, text: str) -> str:
        """Read until the text is on the screen; return the whole screen."""
        until = time.monotonic() + PATIENCE_SECONDS
        while text not in self.screen.text:
            assert time.monotonic() < until, f"{text!r} did not appear on:\n{self.screen.text}"
            self._read(0.2)
        return self.screen.text

    def wait_end(self) -> int:
        until = time.monotonic() + PATIENCE_SECONDS
        while self.process.poll() is None and time.monotonic() < until:
            self._read(0.1)
        self._read(0.1)
        return self.process.wait(PATIENCE_SECONDS)

    @property
    def settings(self) -> list[object]:
        """Return the modes of the terminal now."""
        return termios.tcgetattr(self._theirs)

    def _read(self, seconds: float) -> None:
        readable, _, _ = select.select([self._ours], [], [], seconds)
        if not readable:
            return
        self._bytes += os.read(self._ours, 65536)
        # A character, or a sequence, may be cut at the end.
        whole = self._bytes.decode("utf-8", "ignore") if b"\x1b" not in self._bytes[-12:] else ""
        if whole and whole.encode() == self._bytes:
            self.screen.feed(whole)
            self._bytes = b""
        elif b"\x1b" in self._bytes[-12:]:
            cut = self._bytes.rindex(b"\x1b")
            rest = self._bytes[cut:]
            if re.fullmatch(rb"\x1b\[[0-9;?]*[A-Za-z][^\x1b]*", rest):
                cut, rest = len(self._bytes), b""
            self.screen.feed(self._bytes[:cut].decode())
            self._bytes = rest
