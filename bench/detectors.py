# SPDX-License-Identifier: Apache-2.0
"""Count how many slow and stuck jobs the detectors name, and how many healthy ones.

``python -m bench.detectors [N [RULE...]]`` makes N rounds, of three minutes each, on a real Slurm on this machine, as
root. With rules, only jobs that these have to name. The result is the table in ``docs/rules.md``.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from lab import SlurmLab
from lab.config import LabSettings
from tests.e2e.detector_trial import DETECTORS, FAULTS, HEALTHY, Tally, run_round, watched

ROUNDS = 3
NODES = 8


def main(rounds: int, rules: Sequence[str]) -> int:
    """Print the tables; return 1 when a detector named a healthy job."""
    tally = Tally()
    kinds = [kind for kind in (*FAULTS, *HEALTHY) if not rules or kind.expected in rules]
    lab = SlurmLab(Path(tempfile.mkdtemp(prefix="slurm-lab-")), LabSettings(node_count=NODES))
    try:
        lab.start()
        with tempfile.TemporaryDirectory() as folder, watched(Path(folder) / "prometheus") as server:
            for _ in range(rounds):
                run_round(lab, kinds, server, tally)
                print("\n".join((*_tables(tally), "", *tally.alarms)), flush=True)
    finally:
        lab.destroy()
    return 1 if tally.false else 0


def _tables(tally: Tally) -> Iterator[str]:
    yield "\n| what was done | jobs | named rightly |\n|---|---|---|"
    for kind in FAULTS:
        yield f"| {kind.name} | {tally.jobs[kind.name]} | {tally.named[kind.name]} |"
    yield "\n| detector | right | missed | false alarms | recall | precision |\n|---|---|---|---|---|---|"
    for rule in DETECTORS:
        right, false = tally.right[rule], tally.false[rule]
        expected = sum(tally.jobs[kind.name] for kind in FAULTS if kind.expected == rule)
        precision = f"{right / (right + false):.0%}" if right + false else "–"
        if expected == 0:
            continue
        yield f"| `{rule}` | {right} | {expected - right} | {false} | {right / expected:.0%} | {precision} |"
    healthy = sum(tally.jobs[kind.name] for kind in HEALTHY)
    yield f"\n{healthy} healthy jobs of {len(HEALTHY)} kinds: {', '.join(kind.name for kind in HEALTHY)}."


if __name__ == "__main__":
    sys.exit(main(int((sys.argv[1:] or [str(ROUNDS)])[0]), sys.argv[2:]))
