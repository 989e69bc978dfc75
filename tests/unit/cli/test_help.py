# SPDX-License-Identifier: Apache-2.0
"""The help of every command fits on one screen, and ``--help-all`` lists every setting."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from slurmscope.cli import COMMANDS, slurmscope
from slurmscope.cli.options import SettingOption
from tests.fakes.command_line import run_here

SCREEN_LINES = 25


def all_commands(command: click.Command = slurmscope, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from all_commands(child, *path, name)


ALL = dict(all_commands())
WITH_SETTINGS = [path for path, command in ALL.items() if any(isinstance(p, SettingOption) for p in command.params)]


@pytest.mark.parametrize("columns", ["80", "100"])
@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_fits_on_one_screen(path: tuple[str, ...], columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)

    lines = run_here(*path, "--help").stdout.splitlines()

    assert len(lines) <= SCREEN_LINES + (0 if path else len(COMMANDS))
    assert max(map(len, lines)) <= int(columns)


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_ends_with_two_examples_that_are_understood(path: tuple[str, ...]) -> None:
    lines = [line.strip() for line in run_here(*path, "--help").stdout.splitlines()]

    examples = lines[lines.index("Examples:") + 1 :]
    assert len(examples) >= 2
    for example in examples:
        program, *arguments = example.split(" > ")[0].split(" -- ")[0].split()
        assert "slurmscope" == program
        # The help is shown when everything before it was understood.
        done = run_here(*arguments, "--help")
        assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.parametrize("path", WITH_SETTINGS, ids=" ".join)
def test_all_help_lists_every_setting(path: tuple[str, ...]) -> None:
    done = run_here(*path, "--help-all")

    words = set(done.stdout.replace("--[no-]", "--").split())
    declared = [param.declared for param in ALL[path].params if isinstance(param, SettingOption)]
    assert declared
    assert [] == [setting.key for setting in declared if f"--{setting.flag}" not in words]
    assert (0, "") == (done.returncode, done.stderr)


def test_help_shows_defaults_with_units() -> None:
    text = " ".join(run_here("up", "--help-all").stdout.split())

    assert "How long to keep samples. [default: 14d]" in text
    assert "before recorder.retention. [default: 10GiB]" in text


def test_top_level_help_lists_every_command_once() -> None:
    lines = run_here("--help").stdout.splitlines()
    listed = [line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("   ")]

    assert sorted(COMMANDS) == sorted(name for name in listed if name in COMMANDS)
    assert ["Options:", "Exporters:", "Reports:", "Administration:"] == [
        line for line in lines if line.endswith(":") and not line.startswith(" ")
    ]


@pytest.mark.parametrize("path", [("mail",), ("digest",), ("rules", "test")], ids=" ".join)
def test_commands_that_never_read_from_a_portal_list_no_settings_for_it(path: tuple[str, ...]) -> None:
    assert "--portal." not in run_here(*path, "--help-all").stdout
    assert "--portal." in run_here("report", "--help-all").stdout
