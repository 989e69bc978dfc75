# SPDX-License-Identifier: Apache-2.0
"""Command lines of older tools are understood."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.cli.seed_flags import translate

BOOLEANS = {"metrics.compat", "collector.jobs", "collector.scheduler", "collector.limits"}


@pytest.mark.parametrize(
    ("older", "ours"),
    [
        ("-web.listen-address=:9092", "--web.listen-address=:9092"),
        ("-slurm.poll-limit 20", "--slurm.poll-limit 20"),
        ("--web.listen-address=:9092", "--web.listen-address=:9092"),
        ("-web.log-level=debug", "--log.level=debug"),
        ("-trace.enabled=false", ""),
        ("-trace.enabled=true", "--trace.enabled=true"),
        ("-metrics.compat=false", "--no-metrics.compat"),
        ("--collector.jobs=true", "--collector.jobs"),
        ("-web.max-requests=1", "--web.max-requests=1"),
        ("-slurm.collect-diags", "--collector.scheduler"),
        ("-slurm.collect-limits=false", "--no-collector.limits"),
        ("-slurm.cli-fallback=false", "--slurm.backend=json"),
        ("-slurm.cli-fallback", "--slurm.backend=text"),
        ("-slurm.cli-fallback=perhaps", "--slurm.cli-fallback=perhaps"),
        ("-unknown.flag", "--unknown.flag"),
        ("-h", "-h"),
        ("-", "-"),
        ("--once", "--once"),
        ("-- -web.listen-address=:1", "-- -web.listen-address=:1"),
    ],
)
def test_older_spelling_becomes_ours(older: str, ours: str) -> None:
    assert ours.split() == translate(older.split(), BOOLEANS)


@given(st.lists(st.text(max_size=20), max_size=5))
def test_translating_twice_changes_nothing_more(arguments: list[str]) -> None:
    once = translate(arguments, BOOLEANS)
    assert once == translate(once, BOOLEANS)
