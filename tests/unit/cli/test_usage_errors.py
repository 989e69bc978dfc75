# SPDX-License-Identifier: Apache-2.0
"""A wrong command line gives one line that says where to find help."""

from __future__ import annotations

import pytest

from tests.fakes.command_line import run_here


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["clutser"], "slurmscope"),
        (["cluster", "--nope"], "slurmscope cluster"),
        (["report", "--limit", "0"], "slurmscope report"),
        (["token", "revoke", "x"], "slurmscope token revoke"),
    ],
)
def test_wrong_command_line_names_the_help(arguments: list[str], command: str) -> None:
    done = run_here(*arguments)

    assert (2, "") == (done.returncode, done.stdout)
    (line,) = done.stderr.splitlines()
    assert line.startswith("slurmscope: ")
    assert line.endswith(f" See '{command} --help'.")


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [(["node", "--output.interval", "5s"], "--interval"), (["portal", "--reporter.enabled"], "--reporter")],
)
def test_key_that_is_no_flag_leads_to_its_flag(arguments: list[str], flag: str) -> None:
    assert f"No such option '{arguments[1]}'. Did you mean '{flag}'?" in run_here(*arguments).stderr


def test_threshold_of_a_rule_is_no_flag() -> None:
    done = run_here("report", "--rules.cpu-idle.min-busy-ratio", "0.5")

    assert (2, "") == (done.returncode, done.stdout)
    assert (
        "--rules.cpu-idle.min-busy-ratio is not a flag: set rules.cpu-idle.min-busy-ratio in the configuration file, "
        "or SLURMSCOPE_RULES_CPU_IDLE_MIN_BUSY_RATIO in the environment."
    ) in done.stderr


def test_removed_flag_leads_to_what_replaces_it() -> None:
    done = run_here("portal", "--slurm.interval.jobs=5s")

    assert (2, "") == (done.returncode, done.stdout)
    assert "--slurm.interval.jobs was removed: use slurm.poll-limit, or slurm.slow-interval" in done.stderr


@pytest.mark.parametrize(("name", "hint"), [("reprot", " Did you mean 'report'?"), ("xyzzy", "")])
def test_mistyped_command_leads_to_the_one_that_was_meant(name: str, hint: str) -> None:
    assert f"slurmscope: No such command '{name}'.{hint} See 'slurmscope --help'.\n" == run_here(name).stderr
