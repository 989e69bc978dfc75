# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope compare``: two stored reports side by side."""

from __future__ import annotations

import json
from pathlib import Path

import click

from slurmscope.cli.output import format_examples, page_width, write_bytes, write_text
from slurmscope.core.errors import ConfigError
from slurmscope.core.log import escape
from slurmscope.run.comparison import compare, is_report, render_comparison_json, render_comparison_text

FILE_LIMIT_BYTES = 64 << 20
HINT = "make one with slurmscope run --format json --output FILE"


def make_compare_command() -> click.Command:
    shape = click.Option(
        ["--format", "-f"],
        type=click.Choice(["text", "json"]),
        default="text",
        metavar="FORMAT",
        help="text or json. [default: text]",
    )
    files = [click.Argument([name], type=click.Path(path_type=Path), metavar=name.upper()) for name in ("a", "b")]
    return click.Command(
        "compare",
        callback=_run,
        params=[*files, shape],
        help="Compare two reports side by side. A and B are files that slurmscope run or slurmscope report wrote with "
        "--format json.",
        epilog=format_examples(
            "slurmscope compare laptop.json cluster.json", "slurmscope compare before.json after.json -f json"
        ),
    )


def _run(*, a: Path, b: Path, format: str) -> int:
    comparison = compare(read_report_file(a), read_report_file(b))
    if format == "json":
        write_bytes(render_comparison_json(comparison) + b"\n")
    else:
        write_text(render_comparison_text(comparison, width=page_width()))
    return 0


def read_report_file(path: Path) -> object:
    """Read a stored report; raise ConfigError with the name of a file that is none."""
    name = escape(str(path))
    try:
        with path.open("rb") as stream:
            data = stream.read(FILE_LIMIT_BYTES + 1)
        report: object = json.loads(data) if len(data) <= FILE_LIMIT_BYTES else None
    except OSError as error:
        raise ConfigError(f"cannot read {name}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is not JSON; {HINT}") from error
    if not is_report(report):
        raise ConfigError(f"{name} is not a report; {HINT}")
    return report
