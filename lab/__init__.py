# SPDX-License-Identifier: Apache-2.0
"""Run a real Slurm cluster on one machine, for development and end-to-end tests."""

from lab.errors import CommandFailed, LabError, LabUnavailable
from lab.slurm import SlurmLab, temporary_lab
from lab.users import ALICE, BOB, CAROL

__all__ = ["ALICE", "BOB", "CAROL", "CommandFailed", "LabError", "LabUnavailable", "SlurmLab", "temporary_lab"]
