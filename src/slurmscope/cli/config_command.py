# SPDX-License-Identifier: Apache-2.0
"""Offer ``slurmscope config``: check a file, or show what is in force and where it comes from."""

from __future__ import annotations

from collections.abc import Callable

import click

from slurmscope.cli.options import SettingsCommand, load_config, options_for, written_number
from slurmscope.cli.roles import SECTION_NAMES, find_sections
from slurmscope.config import Config
from slurmscope.outputs.http.gate import open_gate
from slurmscope.outputs.settings import WebSettings
from slurmscope.portal.settings import PortalSettings, check_settings


def make_command() -> click.Command:
    """Build the group; every role takes the same flags as the role itself."""
    group = click.Group("config", help="Check and show the configuration.")
    group.add_command(_for_each_role("check", _check, "Say whether the configuration is good; exit code 2 if not."))
    group.add_command(_for_each_role("show", _show, "Show every setting in force and where it comes from."))
    return group


def _for_each_role(name: str, action: Callable[[Config], None], help: str) -> click.Group:
    group = click.Group(name, help=help)
    for role in SECTION_NAMES:
        group.add_command(_role_command(role, action))
    return group


def _role_command(role: str, action: Callable[[Config], None]) -> click.Command:
    return SettingsCommand(
        role,
        callback=lambda **given: action(load_config(role, given)),
        params=options_for(find_sections(role)),
        help=f"Use the settings of slurmscope {role}; its flags may be given too.",
    )


def _check(config: Config) -> None:
    if any(section.type is PortalSettings for section in config.sections):
        check_settings(config.of(PortalSettings))
    if any(section.type is WebSettings for section in config.sections):
        open_gate(config.of(WebSettings).config_file)
    where = f"{config.file} is" if config.file else "the settings are"
    click.echo(f"{where} good")


def _show(config: Config) -> None:
    for declared in config.settings():
        resolved = config.values[declared.key]
        value = "<hidden>" if declared.is_secret and resolved.value else _written(resolved.value)
        # What is not set has no value that a file could give it.
        mark = "#" if resolved.value in (None, "") and config.is_default(declared.key) else ""
        click.echo(f"{mark}{declared.key} = {value}  # {resolved.origin}")


def _written(value: object) -> str:
    if value is None:
        return '""'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(_written(item) for item in value) + "]"
    if isinstance(value, int | float):
        return written_number(value)
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
