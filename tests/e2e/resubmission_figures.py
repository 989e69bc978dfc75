# SPDX-License-Identifier: Apache-2.0
"""Print how the headers of real jobs fared, as a table for the documentation."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.e2e.resubmission_kinds import GROUPS, KINDS
from tests.e2e.resubmission_trial import Trial, run_bench, try_kinds

TITLES = ("kinds of jobs about", "kinds", "completed as submitted", "headers offered", "completed with the header",
          "memory freed", "cores freed")  # fmt: skip


def main() -> None:
    """Try all kinds, and print one row for each group of them and one for all."""
    with tempfile.TemporaryDirectory() as private, run_bench(Path(private)) as bench:
        trials = {name: tried.result() for name, tried in try_kinds(bench, KINDS).items()}
    print(_row(TITLES), _row(["---"] * len(TITLES)), sep="\n")
    for group, kinds in GROUPS.items():
        print(_row([group, *_figures([trials[kind.name] for kind in kinds])]))
    print(_row(["all", *_figures(trials.values())]))


def _figures(trials: Iterable[Trial]) -> list[str]:
    every = list(trials)
    offered = [trial for trial in every if trial.changes]
    # A program that fails by itself fails with any header.
    able = [trial for trial in offered if trial.kind.can_complete]
    completed = [trial for trial in able if trial.second is not None and trial.second.state == "COMPLETED"]
    return [
        str(len(every)),
        str(sum(trial.first.state == "COMPLETED" for trial in every)),
        str(len(offered)),
        f"{len(completed)} of {len(able)}" if able else "",
        _freed(completed, "mem", "MiB"),
        _freed(completed, "cpus"),
    ]


def _freed(trials: Iterable[Trial], amount: str, unit: str = "") -> str:
    """Return what the second runs did not take, of what the first runs of jobs with a smaller request had."""
    sizes = [
        (trial.first.size.by_option[amount], trial.second.size.by_option[amount]) for trial in trials if trial.second
    ]
    smaller = [(before, after) for before, after in sizes if after < before]
    before, after = sum(each for each, _ in smaller), sum(each for _, each in smaller)
    if not before:
        return ""
    return (
        f"{1 - after / before:.0%} of {before:,.0f} {unit}".replace("%", " %")
        if unit
        else f"{before - after} of {before}"
    )


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
