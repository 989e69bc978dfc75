# SPDX-License-Identifier: Apache-2.0
"""Settings that hide something are rejected when they would not hide it."""

from __future__ import annotations

import re

import pytest

from slurmscope.exporter.settings import parse_regex


@pytest.mark.parametrize("text", ["^slurm_user_", "slurm_(user|account)_.*", "[a-z_]+_total", r"\d", "[:a]", ""])
def test_ordinary_patterns_are_accepted(text: str) -> None:
    assert text == parse_regex(text)
    re.compile(text)


@pytest.mark.parametrize("text", ["^slurm_[[:alpha:]]+_jobs", "[[:^digit:]]", "[^[:space:]]", "[a[:upper:]b]"])
def test_posix_classes_are_rejected_because_python_reads_them_differently(text: str) -> None:
    with pytest.raises(ValueError, match=r"has a POSIX class; write \[a-zA-Z\]"):
        parse_regex(text)


@pytest.mark.parametrize("text", ["(", "[[a]]", r"\pN", r"\Qslurm\E", "[a--b]"])
def test_other_dialects_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="not a valid Python regular expression"):
        parse_regex(text)
