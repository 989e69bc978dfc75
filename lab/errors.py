# SPDX-License-Identifier: Apache-2.0
"""Name what can go wrong with the lab.

LabError                 a daemon died, a wait ran out
├── LabUnavailable       this machine cannot run the lab; the message says what to do
│   └── GuestUnavailable this machine cannot run the guest; likewise
└── CommandFailed        a command ended badly: argv, exit status, standard error
"""

from collections.abc import Sequence


class LabError(Exception):
    """Report that the lab is broken."""


class LabUnavailable(LabError):
    """Report in one sentence why this machine cannot run the lab."""


class GuestUnavailable(LabUnavailable):
    """Report in one sentence why this machine cannot run the guest."""


class CommandFailed(LabError):
    """Report a command that ended badly or ran out of time (then its status is None)."""

    def __init__(self, argv: Sequence[str], status: int | None, stderr: str) -> None:
        ending = "ran out of time" if status is None else f"ended with status {status}"
        super().__init__(f"{' '.join(argv)} {ending}: {stderr.strip()[-2000:]}")
        self.argv = tuple(argv)
        self.status = status
        self.stderr = stderr
