# SPDX-License-Identifier: Apache-2.0
"""Print the results of checks, a line for each, with advice below those that failed."""

from __future__ import annotations

from collections.abc import Iterable

import click

from slurmscope.model.check import Check


def show_checks(checks: Iterable[Check]) -> bool:
    """Print checks as they arrive, and a summary; return whether all of them passed."""
    count = failed = 0
    for check in checks:
        count += 1
        failed += not check.is_good
        mark = click.style("ok    ", fg="green") if check.is_good else click.style("failed", fg="red")
        click.echo(f"{mark}  {check.name}: {check.message}")
        if check.advice:
            click.echo(f"        {check.advice}")
    click.echo(f"{failed} of {count} checks failed; see above." if failed else "All checks passed.")
    return not failed
