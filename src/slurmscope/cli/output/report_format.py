# SPDX-License-Identifier: Apache-2.0
"""Choose the format of a report: the one that was named, or else that of the file's extension."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click


def format_option(formats: Sequence[str], listing: str) -> click.Option:
    """Declare ``--format``; ``listing`` names the formats in the help."""
    return click.Option(
        ["--format", "-f"],
        type=click.Choice(formats),
        metavar="FORMAT",
        help=f"{listing}. [default: extension of --output, or text]",
    )


def choose_format(named: str | None, output: str | Path | None, formats: Sequence[str]) -> str:
    """Return the named format, or that of a file such as report.html, or text."""
    ending = Path(output).suffix[1:].lower() if output else ""
    return named or (ending if ending in formats else "text")
