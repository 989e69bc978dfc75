# SPDX-License-Identifier: Apache-2.0
"""Define the states of jobs and nodes, under the names of squeue and sinfo.

JSON has a state as flags, squeue and sinfo as one word and at most one suffix. The rules are those of
Slurm 26.05, found equal to its library's on 200,000 states. Older releases have two names less: a mixed node that
fails is ``fail`` there, not ``failing``, and one that is unknown and new is ``unknown``, not ``dynamic_norm``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

PENDING = "PENDING"
RUNNING = "RUNNING"
SUSPENDED = "SUSPENDED"
REQUEUED = "REQUEUED"
REVOKED = "REVOKED"

BASE_STATES = (
    PENDING, RUNNING, SUSPENDED, "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED",
    "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY",
)  # fmt: skip
"""The states that Slurm numbers from 0, in that order; all others are flags on one of these."""

ACTIVE_STATES = (RUNNING, SUSPENDED)
"""States in which a job holds its nodes."""

ENDED_STATES = frozenset({*BASE_STATES, REVOKED} - {PENDING, RUNNING, SUSPENDED})
"""States in which a job neither holds nor requests resources."""

WAITING_STATES = frozenset({PENDING, REQUEUED, "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", REVOKED, "SPECIAL_EXIT"})
"""States in which squeue shows a job that has not started, or has to start again."""


# The first of these that is set is what squeue shows in place of the base state; flags that are not here never show.
_SHOWN_JOB_FLAGS = (
    "COMPLETING", "STAGE_OUT", "CONFIGURING", "EXPEDITING", "RESIZING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD",
    "SPECIAL_EXIT", "STOPPED", "REVOKED", "RESV_DEL_HOLD", "SIGNALING",
)  # fmt: skip
_HIDDEN_JOB_FLAGS = frozenset({"LAUNCH_FAILED", "POWER_UP_NODE", "RECONFIG_FAIL"})

_SUFFIXES = (
    ("maintenance", "$"), ("reboot_issued", "^"), ("reboot_requested", "@"), ("powering_up", "#"),
    ("powering_down", "%"), ("powered_down", "~"), ("power_down", "!"), ("not_responding", "*"),
)  # fmt: skip
_SUFFIXED_WORDS = frozenset({"allocated", "completing", "down", "drained", "draining", "future", "idle", "mixed"})
_BUSY = frozenset({"allocated", "mixed"})
_IDLE_WORDS = ("perfctrs", "reserved", "blocked", "planned")
# A node in the unknown state with nothing but one of these flags is called by the flag.
_LONE_FLAGS = (
    "cloud", "dynamic_future", "dynamic_norm", "external", "power_down", "power_up", "powered_down", "powering_down",
    "powering_up", "undrain",
)  # fmt: skip


def job_state(given: str | Sequence[str] | None) -> str:
    """Return the word of squeue for ``RUNNING`` or ``[RUNNING, COMPLETING]``; empty where there is no state."""
    if isinstance(given, str) or given is None:
        return given or ""
    if len(given) == 1:
        return given[0]
    shown = next((flag for flag in _SHOWN_JOB_FLAGS if flag in given), "")
    return shown or next((name for name in given if name not in _HIDDEN_JOB_FLAGS), "")


@lru_cache(maxsize=4096)
def node_state_text(base: str, flags: frozenset[str]) -> str:
    """Return what sinfo shows as the state in its long form: ``idle~``, ``draining``, ``mixed-``."""
    word = _word(base, flags)
    return word + _suffix(word, flags)


def _word(base: str, flags: frozenset[str]) -> str:
    is_busy, is_completing = base in _BUSY, "completing" in flags
    is_rebooting = not flags.isdisjoint(("reboot_requested", "reboot_issued"))
    is_called_by_flag = base == "unknown" and len(flags) == 1 and not flags.isdisjoint(_LONE_FLAGS)
    # The first rule that applies.
    rules = (
        ("invalid_reg" in flags, "inval"),
        ("maintenance" in flags and "drain" not in flags and not is_busy and base != "down", "maint"),
        (is_rebooting and not is_busy, "reboot"),
        ("drain" in flags, "draining" if is_busy or is_completing else "drained"),
        ("fail" in flags, "failing" if is_busy or is_completing else "fail"),
        (is_called_by_flag, "".join(flags)),
        (is_completing and base not in {"allocated", "down"}, "completing"),
        (base == "idle" and not _first_suffix(flags), next((flag for flag in _IDLE_WORDS if flag in flags), "idle")),
        (base in {"allocated", "down", "future", "idle", "mixed"}, base),
        ("resume" in flags, "resume"),
        (base == "unknown", "unknown"),
    )
    return next((word for applies, word in rules if applies), "?")


def _suffix(word: str, flags: frozenset[str]) -> str:
    if word == "reboot" and "reboot_issued" in flags:
        return "^"
    if word in {"fail", "failing", "maint", "reboot", "unknown"}:
        return "*" if "not_responding" in flags else ""
    if word not in _SUFFIXED_WORDS:
        return ""
    last = {"allocated": "+" * ("completing" in flags), "mixed": "-" * ("planned" in flags)}
    return _first_suffix(flags) or last.get(word, "")


def _first_suffix(flags: frozenset[str]) -> str:
    return next((suffix for flag, suffix in _SUFFIXES if flag in flags), "")
