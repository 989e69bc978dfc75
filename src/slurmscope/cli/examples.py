# SPDX-License-Identifier: Apache-2.0
"""Format the examples at the end of a help text."""

from __future__ import annotations


def format_examples(*commands: str) -> str:
    """Format the end of a help text: example command lines."""
    # \b keeps click from wrapping the paragraph.
    return "\b\nExamples:\n" + "\n".join(f"  {command}" for command in commands)
