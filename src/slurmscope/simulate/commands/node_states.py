# SPDX-License-Identifier: Apache-2.0
"""Write the state of a node in sinfo's three forms: long, compact, complete.

The long form is one word and at most one suffix, so it hides most of what the flags say. The rules below give the same
text as the state functions of Slurm 22.05.8 for every state that the simulation uses.
"""

from __future__ import annotations

from collections.abc import Collection

BUSY = frozenset({"allocated", "mixed"})

_SHORT_WORDS = {
    "allocated": "alloc", "completing": "comp", "down": "down", "drained": "drain", "draining": "drng", "fail": "fail",
    "failing": "failg", "future": "futr", "idle": "idle", "inval": "inval", "maint": "maint", "mixed": "mix",
    "perfctrs": "npc", "planned": "plnd", "reboot": "boot", "reserved": "resv", "unknown": "unk", "error": "?",
}  # fmt: skip

# The first flag that is set gives the suffix.
_SUFFIXES = (
    ("maintenance", "$"), ("reboot_issued", "^"), ("reboot_requested", "@"), ("powering_up", "#"),
    ("powering_down", "%"), ("powered_down", "~"), ("power_down", "!"), ("not_responding", "*"),
)  # fmt: skip

# The order in which the complete form names the flags.
FLAG_ORDER = (
    "cloud", "completing", "drain", "dynamic_future", "dynamic_norm", "invalid_reg", "fail", "maintenance",
    "power_down", "power_up", "perfctrs", "powered_down", "reboot_requested", "reboot_issued", "reserved", "resume",
    "not_responding", "planned", "powering_up", "powering_down",
)  # fmt: skip


def complete_state(base: str, flags: Collection[str]) -> str:
    """Write the base state and every flag: mixed+cloud+not_responding+powering_up."""
    return "+".join((base, *sorted(flags, key=FLAG_ORDER.index)))


def long_state(base: str, flags: Collection[str]) -> str:
    """Write the extended form: draining, idle~, mixed-."""
    word, suffix = _word_and_suffix(base, frozenset(flags))
    return ("?" if word == "error" else word) + suffix


def compact_state(base: str, flags: Collection[str]) -> str:
    """Write the short form: drng, idle~, mix-."""
    word, suffix = _word_and_suffix(base, frozenset(flags))
    return _SHORT_WORDS[word] + suffix


def _word_and_suffix(base: str, flags: frozenset[str]) -> tuple[str, str]:
    word = _word(base, flags)
    suffix = _suffix(word, flags)
    if word == "idle" and not suffix:
        # A reservation or a plan gives an idle node its own word, but only where no suffix speaks first.
        word = next((flag for flag in ("perfctrs", "reserved", "planned") if flag in flags), word)
    return word, suffix


def _word(base: str, flags: frozenset[str]) -> str:
    is_busy, is_completing = base in BUSY, "completing" in flags
    rules = (
        ("invalid_reg" in flags, "inval"),
        ("maintenance" in flags and "drain" not in flags and not is_busy and base != "down", "maint"),
        (bool(flags & {"reboot_requested", "reboot_issued"}) and not is_busy, "reboot"),
        ("drain" in flags, "draining" if is_busy or is_completing else "drained"),
        ("fail" in flags, "failing" if base == "allocated" or is_completing else "fail"),
        (is_completing and base not in {"allocated", "down"}, "completing"),
    )
    return next((word for holds, word in rules if holds), base)


def _suffix(word: str, flags: frozenset[str]) -> str:
    if word in {"inval", "error"}:
        return ""
    if word == "reboot" and "reboot_issued" in flags:
        return "^"
    if word in {"fail", "failing", "maint", "reboot", "unknown"}:
        return "*" if "not_responding" in flags else ""
    found = next((suffix for flag, suffix in _SUFFIXES if flag in flags), "")
    if not found and word == "allocated" and "completing" in flags:
        return "+"
    return "-" if not found and word == "mixed" and "planned" in flags else found
