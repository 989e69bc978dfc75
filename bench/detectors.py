# SPDX-License-Identifier: Apache-2.0
"""Count how many slow and stuck jobs the detectors name, and how many healthy ones.

``python -m bench.detectors [N [RULE...]]`` makes N rounds on a real Slurm on this machine, as root; each has two halves
of three minutes, so that its jobs alone do not overload two cores. With rules, only jobs that these have to name.
Without, the table in ``docs/rules.md`` is written anew after each round.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from lab import temporary_lab
from lab.config import LabSettings
from tests.e2e.detector_trial import CROWDED, DETECTORS, FAULTS, HEALTHY, Tally, run_round, watched

ROUNDS = 3
NODES = 8
PAGE = Path(__file__).parent.parent / "docs/rules.md"
BEGIN, END = "<!-- measured: detectors -->", "<!-- end of measured -->"


def main(rounds: int, rules: Sequence[str]) -> int:
    """Print the tables; return 1 when a detector named a healthy job."""
    tally, loads = Tally(), []
    kinds = [kind for kind in (*FAULTS, *HEALTHY) if not rules or kind.expected in rules]
    with (
        temporary_lab(LabSettings(node_count=NODES)) as lab,
        tempfile.TemporaryDirectory() as folder,
        watched(Path(folder) / "prometheus") as server,
    ):
        for number in range(rounds):
            loads += [run_round(lab, half, server, tally) for half in (kinds[::2], kinds[1::2])]
            text = "\n".join(_tables(tally, loads, number + 1))
            print("\n".join((text, "", *tally.alarms)), flush=True)
            if not rules:
                PAGE.write_text(replace_table(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    return 1 if tally.false else 0


def replace_table(page: str, table: str) -> str:
    """Return a page with another table between the marks."""
    before, rest = page.split(f"{BEGIN}\n", 1)
    return f"{before}{BEGIN}\n{table}\n{END}{rest.split(END, 1)[1]}"


def _tables(tally: Tally, loads: Sequence[float], rounds: int) -> Iterator[str]:
    healthy = sum(tally.jobs[kind.name] for kind in HEALTHY)
    others = sum(tally.jobs[kind.name] for kind in (*FAULTS, *HEALTHY) if kind.expected != CROWDED)
    yield (
        f"{rounds} rounds at a load of {min(loads):.0f} to {max(loads):.0f} on {os.cpu_count()} cores:\n\n"
        "| what was done | detector | jobs | named rightly |\n|---|---|---|---|"
    )
    for kind in FAULTS:
        yield f"| {kind.name} | `{kind.expected}` | {tally.jobs[kind.name]} | {tally.named[kind.name]} |"
    yield "\n| detector | right | missed | false alarms | recall | precision |\n|---|---|---|---|---|---|"
    for rule in DETECTORS:
        right, false = tally.right[rule], tally.false[rule]
        expected = sum(tally.jobs[kind.name] for kind in FAULTS if kind.expected == rule)
        if expected == 0:
            continue
        precision = f"{right} of {right + false}" if right + false else "–"
        yield f"| `{rule}` | {right} | {expected - right} | {false} | {right} of {expected} | {precision} |"
    yield (
        f"\nFalse alarms are findings about these jobs that do not belong there, and about {healthy} healthy jobs of "
        f"{len(HEALTHY)} kinds: {'; '.join(kind.name for kind in HEALTHY)}.\n\n"
        f"`{CROWDED}` also named {tally.crowded} of the other {others} jobs: all share the cores of one machine."
    )


if __name__ == "__main__":
    sys.exit(main(int((sys.argv[1:] or [str(ROUNDS)])[0]), sys.argv[2:]))
