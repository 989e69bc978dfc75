# SPDX-License-Identifier: Apache-2.0
"""Command lines of older tools are understood."""

from __future__ import annotations

import re

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.cli import slurmscope
from slurmscope.cli.options import REMOVED, translate
from tests.fakes.command_line import run_here

BOOLEANS = {"metrics.compat", "trace.enabled", "collector.jobs", "collector.scheduler", "collector.limits"}


@pytest.mark.parametrize(
    ("older", "ours"),
    [
        ("-web.listen-address=:9092", "--web.listen-address=:9092"),
        ("-slurm.poll-limit 20", "--slurm.poll-limit 20"),
        ("--web.listen-address=:9092", "--web.listen-address=:9092"),
        ("-web.log-level=debug", "--log.level=debug"),
        ("-trace.enabled=false", "--no-trace.enabled"),
        ("-trace.enabled=true", "--trace.enabled"),
        ("-trace.enabled", "--trace.enabled"),
        ("-trace.path=/traces", "--trace.path=/traces"),
        ("-trace.rate=30", "--trace.rate=30"),
        ("-metrics.compat=false", "--no-metrics.compat"),
        ("--collector.jobs=true", "--collector.jobs"),
        ("-metrics.series-limit=1", "--metrics.series-limit=1"),
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


@pytest.mark.parametrize(
    "flags",
    [
        ["-web.listen-address="], ["-web.telemetry-path", ""], ["--web.log-level="], ["-metrics.exclude", ""],
        ["-slurm.squeue-cli="], ["-slurm.lic-cli", ""], ["-trace.path="],
    ],
)  # fmt: skip
def test_empty_flag_of_the_older_exporter_means_its_default(flags: list[str]) -> None:
    assert ["--once"] == translate([*flags, "--once"], BOOLEANS)
    assert ["--", *flags] == translate(["--", *flags], BOOLEANS)


@pytest.mark.parametrize(
    ("command", "flags", "remedy"),
    [
        ("cluster", ["-slurm.squeue-cli=squeue -h"], "--slurm.bin-path"),
        ("cluster", ["--slurm.sacctmgr-cli", "sacctmgr"], "--slurm.bin-path"),
        ("cluster", ["-slurm.collect-credits"], "remove the flag"),
        ("node", ["-promserver=http://p:9090"], "slurmscope cluster"),
        ("node", ["-port=9166"], "--web.listen-address=:PORT"),
        ("node", ["-log", "DEBUG"], "--log.level"),
        ("cluster", ["-timeout"], "--slurm.timeout"),
        ("node", ["-t", "15"], "scrape_interval"),
        ("node", ["--blacklist=/etc/uids"], "metric_relabel_configs"),
    ],
)
def test_flag_without_a_counterpart_says_what_to_do(command: str, flags: list[str], remedy: str) -> None:
    done = run_here(command, *flags)

    (line,) = done.stderr.splitlines()
    assert 2 == done.returncode
    assert line.startswith(f"slurmscope: {flags[0].partition('=')[0]} is not available. ")
    assert remedy in line


@pytest.mark.parametrize(
    ("flag", "named"),
    [("--slurm.compat", []), ("--metric.compat", ["metrics.compat"]), ("--nonce", ["once"]), ("--foo.bar", [])],
)
def test_similar_flags_are_those_of_the_same_section(flag: str, named: list[str]) -> None:
    done = run_here("cluster", flag)

    # Releases of click differ in the quotes around the name.
    assert named == [name for name in ("metrics.compat", "once", "bar") if re.search(rf"--{name}['?,)]", done.stderr)]


def test_every_flag_without_a_counterpart_is_unknown_to_the_exporters() -> None:
    known = {option.opts[0] for role in ("cluster", "node") for option in find_command(role).params}

    assert set() == {f"--{name}" for name in REMOVED} & known


def find_command(name: str) -> click.Command:
    command = slurmscope.get_command(click.Context(slurmscope), name)
    assert command is not None
    return command


@given(st.lists(st.text(max_size=20), max_size=5))
def test_translating_twice_changes_nothing_more(arguments: list[str]) -> None:
    once = translate(arguments, BOOLEANS)
    assert once == translate(once, BOOLEANS)


def test_removed_flag_is_answered_with_what_to_use() -> None:
    done = run_here("cluster", "--once", "--slurm.interval.jobs=1m")

    assert 2 == done.returncode
    assert "--slurm.interval.jobs was removed: use slurm.poll-limit, or slurm.slow-interval" in done.stderr
