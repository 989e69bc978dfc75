# SPDX-License-Identifier: Apache-2.0
"""Hold the script of a job as Slurm stored it, with what to check in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFinding:
    """Hold one problem of a job script; ``line`` counts from 1, None for the whole script."""

    title: str
    advice: str
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentVariable:
    """Hold one variable of the submission; ``value`` is None where it is not shown, because it may be a secret."""

    name: str
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobScript:
    """Hold a script and the environment at its submission; ``is_cut`` says that the script was longer."""

    text: str
    is_cut: bool = False
    findings: tuple[ScriptFinding, ...] = ()
    environment: tuple[EnvironmentVariable, ...] = ()
