# SPDX-License-Identifier: Apache-2.0
"""Parse the options of the command line that submitted a job; those in its script are unknown."""

from __future__ import annotations

from collections.abc import Mapping

_LONG_NAMES = {"N": "nodes", "c": "cpus-per-task", "n": "ntasks"}

# Every other option takes a value, which may be the next word.
_FLAGS = frozenset(
    {
        "H", "I", "K", "O", "Q", "W", "X", "k", "s", "v",
        "contiguous", "exclusive", "get-user-env", "hold", "ignore-pbs", "nice", "no-kill", "no-requeue", "overcommit",
        "oversubscribe", "parsable", "propagate", "pty", "quiet", "reboot", "requeue", "spread-job", "test-only",
        "use-min-nodes", "verbose", "wait",
    }
)  # fmt: skip


def submit_options(submit_line: str) -> Mapping[str, str]:
    """Return the options before the script or program, by their long names.

    Slurm stores the line without quotes, words separated by blanks.
    """
    options: dict[str, str] = {}
    words = iter(submit_line.split()[1:])
    for word in words:
        if len(word) < 2 or word[0] != "-":
            break
        name, value = _split(word)
        options[name] = next(words, "") if value is None and name not in _FLAGS else value or ""
    return options


def _split(word: str) -> tuple[str, str | None]:
    """Split ``--ntasks=4`` and ``-n4``; the value is None where it is not in the same word."""
    if word.startswith("--"):
        name, sign, value = word[2:].partition("=")
        return name, value if sign else None
    return _LONG_NAMES.get(word[1], word[1]), word[2:] or None
