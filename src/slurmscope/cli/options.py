# SPDX-License-Identifier: Apache-2.0
"""Make command-line options from declared settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from slurmscope.cli.roles import find_sections, keys_of_others
from slurmscope.cli.seed_flags import translate
from slurmscope.config import Config, load, own_environment
from slurmscope.settings import Section, Setting

CONFIG_FILE_VARIABLE = "SLURMSCOPE_CONFIG_FILE"


class SettingsCommand(click.Command):
    """Take every setting as a flag, in our spelling or in that of older tools."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Translate older spellings, then parse as usual."""
        flags = (option.opts[0] for option in self.params if isinstance(option, click.Option) and option.is_flag)
        return super().parse_args(ctx, translate(args, {flag.removeprefix("--") for flag in flags}))


def options_for(sections: Iterable[Section]) -> list[click.Parameter]:
    """Return one option per setting, and the one that names the configuration file."""
    config_file = click.Option(
        ["--config.file", "config_file"],
        metavar="FILE",
        type=click.Path(path_type=Path),
        envvar=CONFIG_FILE_VARIABLE,
        help="TOML file with settings; flags and environment variables go before it.",
    )
    return [config_file, *(_option(declared) for section in sections for declared in section.settings())]


def load_config(name: str, given: Mapping[str, object]) -> Config:
    """Resolve the settings of a role or service from what click gave, the environment and the file."""
    sections = tuple(find_sections(name))
    by_name = {parameter_name(s): s for section in sections for s in section.settings()}
    file = given.get("config_file")
    return load(
        sections,
        flags={by_name[name].key: value for name, value in given.items() if name in by_name and _is_given(value)},
        environment=own_environment(),
        file=file if isinstance(file, Path) else None,
        other_keys=lambda: keys_of_others(name),
    )


def parameter_name(declared: Setting) -> str:
    """Return the Python name under which click hands a value over."""
    return declared.flag.replace(".", "_").replace("-", "_")


def written_number(value: float) -> str:
    """Write a number in full, so that it can be copied into a file: a gibibyte is not 1.07374e+09."""
    return repr(int(value) if float(value).is_integer() else value)


def _option(declared: Setting) -> click.Option:
    name = parameter_name(declared)
    if declared.is_boolean:
        flags = f"--{declared.flag}/--no-{declared.flag}"
        return click.Option([flags, name], default=None, help=_help(declared))
    return click.Option(
        [f"--{declared.flag}", name],
        default=None,
        metavar=declared.metavar or "TEXT",
        multiple=declared.is_repeatable,
        help=_help(declared),
    )


def _help(declared: Setting) -> str:
    default = declared.default
    if declared.is_boolean:
        return f"{declared.help} [default: {'on' if default else 'off'}]"
    if default in (None, "", ()):
        return declared.help
    shown = ", ".join(default) if isinstance(default, tuple) else default
    if isinstance(shown, float):
        shown = written_number(shown)
    return f"{declared.help} [default: {shown}]"


def _is_given(value: object) -> bool:
    return value is not None and value != ()
