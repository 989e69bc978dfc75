# SPDX-License-Identifier: Apache-2.0
"""Write to standard output: a terminal of any width and encoding, or a pipe."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from typing import TextIO

from slurmscope.config import own_environment

USUAL_WIDTH = 80
MIN_WIDTH = 40
MAX_WIDTH = 120


def write_text(text: str) -> None:
    """Write text in the encoding of the terminal; unsupported characters become question marks."""
    ended = text if text.endswith("\n") else text + "\n"
    write_bytes(ended.encode(sys.stdout.encoding or "utf-8", "replace"))


def write_bytes(content: bytes) -> None:
    """Write bytes and flush."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def write_error(text: str) -> None:
    """Write text to standard error; a reader that has gone does not matter."""
    ended = text if text.endswith("\n") else text + "\n"
    # Python has no stream for a descriptor that was closed before it started.
    with contextlib.suppress(ValueError, AttributeError):
        try:
            sys.stderr.buffer.write(ended.encode(sys.stderr.encoding or "utf-8", "replace"))
            sys.stderr.flush()
        except OSError:
            _discard_errors()


def _discard_errors() -> None:
    """Let what is left in the buffer of standard error go nowhere: at exit, Python would fail with code 120."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stderr.fileno())
    os.close(nowhere)


def page_width(stream: TextIO | None = None) -> int:
    """Return the maximum number of columns per line, on standard output or another stream."""
    if not (stream or sys.stdout).isatty():
        return USUAL_WIDTH
    return max(MIN_WIDTH, min(shutil.get_terminal_size((USUAL_WIDTH, 24)).columns, MAX_WIDTH))


def wants_color(choice: str = "auto", stream: TextIO | None = None) -> bool:
    """Return whether to use colors: always, never, or (auto) on terminals unless NO_COLOR is set."""
    if choice != "auto":
        return choice == "always"
    environment = own_environment()
    return (stream or sys.stdout).isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
