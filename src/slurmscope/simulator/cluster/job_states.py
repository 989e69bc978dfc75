# SPDX-License-Identifier: Apache-2.0
"""Say which states of simulated jobs hold resources or have ended, and how squeue abbreviates them."""

from __future__ import annotations

from slurmscope.slurm import states as model

# Jobs in these states hold CPUs of their nodes. A suspended job keeps its memory and GPUs but gives its CPUs back.
CPU_HOLDING_STATES = frozenset({"RUNNING", "COMPLETING", "CONFIGURING", "RESIZING", "SIGNALING", "STOPPED"})


COMPACT_STATES = {
    "PENDING": "PD", "RUNNING": "R", "SUSPENDED": "S", "COMPLETED": "CD", "CANCELLED": "CA", "FAILED": "F",
    "TIMEOUT": "TO", "NODE_FAIL": "NF", "PREEMPTED": "PR", "BOOT_FAIL": "BF", "DEADLINE": "DL", "OUT_OF_MEMORY": "OOM",
    "COMPLETING": "CG", "CONFIGURING": "CF", "RESIZING": "RS", "RESV_DEL_HOLD": "RD", "REQUEUED": "RQ",
    "REQUEUE_FED": "RF", "REQUEUE_HOLD": "RH", "REVOKED": "RV", "SIGNALING": "SI", "SPECIAL_EXIT": "SE",
    "STAGE_OUT": "SO", "STOPPED": "ST",
}  # fmt: skip


ENDED_STATES = model.ENDED_STATES - {model.REVOKED} | {"STAGE_OUT"}
