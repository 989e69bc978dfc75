# SPDX-License-Identifier: Apache-2.0
"""Read the options of the command that submitted a job, as those of Slurm 22.05 to 26.05 read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

SHORT_NAMES: Mapping[str, str] = {
    "A": "account", "B": "extra-node-info", "C": "constraint", "D": "chdir", "E": "preserve-env", "F": "nodefile",
    "G": "gpus", "H": "hold", "I": "immediate", "J": "job-name", "K": "kill-on-bad-exit", "L": "licenses",
    "M": "clusters", "N": "nodes", "O": "overcommit", "Q": "quiet", "S": "core-spec", "T": "threads", "V": "version",
    "W": "wait", "X": "disable-status", "Z": "no-allocate", "a": "array", "b": "begin", "c": "cpus-per-task",
    "d": "dependency", "e": "error", "h": "help", "i": "input", "k": "no-kill", "l": "label", "m": "distribution",
    "n": "ntasks", "o": "output", "p": "partition", "q": "qos", "r": "relative", "s": "oversubscribe", "t": "time",
    "u": "unbuffered", "v": "verbose", "w": "nodelist", "x": "exclude",
}  # fmt: skip
"""Long names of short options."""

FLAGS = frozenset(
    {
        "async", "bcast", "bell", "compress", "consolidate-segments", "contiguous", "debugger-test",
        "disable-status", "exact", "exclusive", "external", "external-launcher", "get-user-env", "help", "hold",
        "ignore-pbs", "immediate", "interactive", "kill-command", "kill-on-bad-exit", "label", "multi-prog",
        "nice", "no-allocate", "no-bell", "no-kill", "no-requeue", "no-shell", "oom-kill-step", "overcommit",
        "overlap", "oversubscribe", "parsable", "preserve-env", "propagate", "pty", "quiet",
        "quit-on-interrupt", "reboot", "requeue", "resv-ports", "send-libs", "share", "spread-job",
        "spread-segments", "stepmgr", "test-only", "unbuffered", "usage", "use-min-nodes", "verbose", "version",
        "wait-for-children", "whole", "x11",
    }
)  # fmt: skip
"""Options that do not take the next word: those without a value, or with one only after an equals sign."""

VALUED = frozenset(
    {
        "accel-bind", "account", "acctg-freq", "array", "autocomplete", "batch", "bb", "bbf", "bcast-exclude",
        "begin", "chdir", "cluster", "cluster-constraint", "clusters", "comment", "constraint", "container",
        "container-id", "container-type", "context", "core-spec", "cores-per-socket", "cpu-bind", "cpu-freq",
        "cpu_bind", "cpus-per-gpu", "cpus-per-task", "deadline", "delay-boot", "dependency", "distribution",
        "epilog", "error", "exclude", "export", "export-file", "extra", "extra-node-info", "gid", "gpu-bind",
        "gpu-freq", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "gres", "gres-flags",
        "het-group", "hint", "ignore-signals", "input", "job-name", "jobid", "kill-on-invalid-dep", "licenses",
        "mail-type", "mail-user", "max-threads", "mcs-label", "mem", "mem-bind", "mem-per-cpu", "mem-per-gpu",
        "mem-update", "mem_bind", "mincpus", "mpi", "msg-timeout", "network", "nodefile", "nodelist", "nodes",
        "ntasks", "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-node", "ntasks-per-socket",
        "ntasks-per-tres", "open-mode", "output", "pack-group", "partition", "power", "prefer", "priority",
        "profile", "prolog", "qos", "relative", "reservation", "resources", "segment", "signal", "slurmd-debug",
        "sockets-per-node", "switches", "task-epilog", "task-prolog", "tasks-per-node", "thread-spec",
        "threads", "threads-per-core", "time", "time-min", "tmp", "treewidth", "tres-bind", "tres-per-task",
        "uid", "wait-all-nodes", "wckey", "wrap",
    }
)  # fmt: skip
"""Options whose value may be the next word."""

ONE_OF = (frozenset({"mem", "mem-per-cpu", "mem-per-gpu"}),)
"""Options of which the last one replaces the others."""

_LONG_NAMES = FLAGS | VALUED | {"wait"}
_SHORT_FLAGS = frozenset("EHIKOQVXZhklsuv")
_ALIASES = {"tasks-per-node": "ntasks-per-node", "cpu_bind": "cpu-bind", "mem_bind": "mem-bind", "cluster": "clusters"}


NEXT_PART = ":"
"""Separates the options of the parts of a heterogeneous job."""


def submit_options(submit_line: str, part: int = 0) -> Mapping[str, str]:
    """Return the options of the command that submitted a job, by their long names; those in its script are unknown.

    Slurm stores the line without quotes, words separated by blanks. All parts of a heterogeneous job have the same
    line, which has options for each.
    """
    left, is_batch = list(reversed(submit_line.split()[1:])), not is_srun(submit_line)
    options = _take_options(left, is_batch=is_batch)
    for _ in range(part):
        if not left or left.pop() != NEXT_PART:
            return {}
        options = _take_options(left, is_batch=is_batch)
    return options


_SIZES = ("nodes", "ntasks", "cpus-per-task", "mem", "mem-per-cpu", "gpus", "gpus-per-node", "gpus-per-task", "gres")


def size_request(submit_line: str) -> str:
    """Return the options by which the srun of a step set its size, without the program and its arguments.

    The step of a batch script has the line of its job.
    """
    options = submit_options(submit_line) if is_srun(submit_line) else {}
    return " ".join(f"--{name}={options[name]}" for name in _SIZES if options.get(name))


def is_srun(submit_line: str) -> bool:
    return command_name(submit_line) == "srun"


def command_name(submit_line: str) -> str:
    """Return the command that submitted a job, without its folder; empty where it is unknown."""
    return next(iter(submit_line.split()), "").rpartition("/")[2]


def parse_options(words: Iterable[str], *, is_batch: bool = True) -> Mapping[str, str]:
    """Return the values of options by long name, up to the first word that is none; of a flag the value is empty."""
    return _take_options(list(reversed([*words])), is_batch=is_batch)


def _take_options(left: list[str], *, is_batch: bool) -> dict[str, str]:
    """Take options from the end of a reversed list."""
    options: dict[str, str] = {}
    while left and len(left[-1]) > 1 and left[-1][0] == "-" and left[-1] != "--":
        name, value = _split(left.pop())
        if value is None:
            value = left.pop() if left and _takes_next(name, left[-1], is_batch=is_batch) else ""
        options[_ALIASES.get(name, name)] = value
    return options


def _complete(name: str) -> str:
    """Return the option that an unambiguous beginning stands for, as in ``--part=gpu``; any other name as it is."""
    if name in _LONG_NAMES:
        return name
    found = {_ALIASES.get(each, each) for each in _LONG_NAMES if each.startswith(name)}
    return found.pop() if name and len(found) == 1 else name


def _takes_next(name: str, following: str, *, is_batch: bool) -> bool:
    """Return whether the next word is the value of an option; an unknown one does not take another option."""
    if name == "wait":
        return not is_batch
    if name in VALUED:
        return True
    return name not in FLAGS and not following.startswith("-")


def _split(word: str) -> tuple[str, str | None]:
    """Split ``--ntasks=4`` and ``-n4``; the value is None where it is not in the same word."""
    if word.startswith("--"):
        name, sign, value = word[2:].partition("=")
        return _complete(name), value if sign else None
    letter, value = word[1], word[2:]
    if letter in _SHORT_FLAGS and value and letter not in "IK":
        return SHORT_NAMES.get(letter, letter), ""
    return SHORT_NAMES.get(letter, letter), value or None
