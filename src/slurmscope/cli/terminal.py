# SPDX-License-Identifier: Apache-2.0
"""Write to whoever reads standard output: a terminal of any width and encoding, a pipe, a reader that left."""

from __future__ import annotations

import shutil
import sys

from slurmscope.config import own_environment

USUAL_WIDTH = 80
MIN_WIDTH = 40
MAX_WIDTH = 120


def write_text(text: str) -> None:
    """Write lines in the reader's own encoding; what it cannot show becomes a question mark."""
    ended = text if text.endswith("\n") else text + "\n"
    write_bytes(ended.encode(sys.stdout.encoding or "utf-8", "replace"))


def write_bytes(content: bytes) -> None:
    """Write everything at once; a reader that left is no fault."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def page_width() -> int:
    """Return how many columns a line may have."""
    if not sys.stdout.isatty():
        return USUAL_WIDTH
    return max(MIN_WIDTH, min(shutil.get_terminal_size((USUAL_WIDTH, 24)).columns, MAX_WIDTH))


def wants_color(choice: str = "auto") -> bool:
    """Tell whether to colour: always, never, or on terminals whose owner did not ask for none."""
    if choice != "auto":
        return choice == "always"
    environment = own_environment()
    return sys.stdout.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
