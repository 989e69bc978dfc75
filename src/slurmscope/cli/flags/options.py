# SPDX-License-Identifier: Apache-2.0
"""Make command-line options from declared settings.

``--help`` of a command fits on one screen: its own options, the few settings that most people need, and examples.
``--help-all`` lists every setting.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import click

from slurmscope.cli.examples import format_examples
from slurmscope.cli.flags.lustre_flags import translate_lustre_flags
from slurmscope.cli.flags.seed_flags import explain_removed, translate
from slurmscope.cli.roles import ROLE_NAMES, find_sections, keys_of_others
from slurmscope.config import Config, load, own_environment
from slurmscope.metrics.collector import Role
from slurmscope.services.exporter.profiles import resolve_profile
from slurmscope.services.exporter.settings import resolve_collectors
from slurmscope.settings import Section, Setting

CONFIG_FILE_VARIABLE = "SLURMSCOPE_CONFIG_FILE"
_HELP_ALL = "slurmscope.help-all"
_SIMILAR = 0.8
"""Similarity from which on a section, such as metrics for metric, may be meant."""
_GENERAL = ("--config.file", "--help-all", "--help")
"""Options of every command, which the help lists last."""


class SettingOption(click.Option):
    """Offer one setting as a flag."""

    def __init__(self, declared: Setting) -> None:
        """Derive the flag, its Python name and its help from the declaration."""
        self.declared = declared
        flag = f"--{declared.flag}/--no-{declared.flag}" if declared.is_boolean else f"--{declared.flag}"
        super().__init__(
            [flag, parameter_name(declared)],
            default=None,
            metavar=None if declared.is_boolean else declared.metavar or "TEXT",
            multiple=declared.is_repeatable,
            help=_help(declared),
        )

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Write a switch as ``--[no-]flag``, in one line."""
        record = super().get_help_record(ctx)
        if record is None or not self.declared.is_boolean:
            return record
        return f"--[no-]{self.declared.flag}", record[1]


class SettingsCommand(click.Command):
    """Accept every setting as a flag, also in the spelling of older tools.

    ``shown`` names the settings that ``--help`` lists beside the command's own options.
    """

    def __init__(
        self,
        name: str,
        *,
        callback: Callable[..., object],
        params: list[click.Parameter],
        help: str,
        examples: Sequence[str] = (),
        shown: Sequence[str] = (),
    ) -> None:
        super().__init__(name, callback=callback, params=params, help=help, epilog=format_examples(*examples))
        self._shown = shown

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Translate the flags of older tools, then parse as usual."""
        flags = (option.opts[0] for option in self.params if isinstance(option, click.Option) and option.is_flag)
        older = translate_lustre_flags(args) if self.name == "cluster" else args
        given = translate(older, {flag.removeprefix("--") for flag in flags})
        try:
            # click empties the list.
            return super().parse_args(ctx, list(given))
        except click.NoSuchOption as error:
            raise _unknown_flag(error, args, ctx) from error

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options of the first screen, or all settings by section."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        settings = [option for option in options if isinstance(option, SettingOption)]
        own = [option for option in options if not isinstance(option, SettingOption)]
        wants_all = ctx.meta.get(_HELP_ALL)
        shown = [] if wants_all else [option for option in settings if option.declared.flag in self._shown]
        general = [option for option in own if option.opts[-1] in _GENERAL]
        _write_options("Options", [*(o for o in own if o not in general), *shown, *general], ctx, formatter)
        if wants_all:
            for name, group in groupby(settings, key=_section_name):
                _write_options(f"Settings of {name}", group, ctx, formatter)


def options_for(sections: Iterable[Section]) -> list[click.Parameter]:
    """Return one option per setting, ``--config.file`` and ``--help-all``."""
    config_file = click.Option(
        ["--config.file", "config_file"],
        metavar="FILE",
        type=click.Path(path_type=Path),
        envvar=CONFIG_FILE_VARIABLE,
        help="TOML configuration file.",
    )
    help_all = click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_all_help,
        help="List all settings of this command and exit.",
    )
    settings = [SettingOption(declared) for section in sections for declared in section.settings()]
    return [config_file, *settings, help_all]


def load_config(name: str, given: Mapping[str, object]) -> Config:
    """Resolve the settings of a role or service from the parsed options, the environment and the file."""
    sections = tuple(find_sections(name))
    by_name = {parameter_name(s): s for section in sections for s in section.settings()}
    file = given.get("config_file")
    config = load(
        sections,
        flags={by_name[name].key: value for name, value in given.items() if name in by_name and _is_given(value)},
        environment=own_environment(),
        file=file if isinstance(file, Path) else None,
        other_keys=lambda: keys_of_others(name),
    )
    if name not in ROLE_NAMES:
        return config
    role = Role(name)
    return resolve_profile(resolve_collectors(config, role), role)


def parameter_name(declared: Setting) -> str:
    """Return the Python name that click uses for a setting."""
    return declared.flag.replace(".", "_").replace("-", "_")


def format_default(declared: Setting) -> str:
    """Format the default of a setting for help and documentation; empty when there is none."""
    default = declared.default
    if default in (None, "", ()):
        return ""
    if isinstance(default, bool):
        return "on" if default else "off"
    return ", ".join(map(declared.format, default if isinstance(default, tuple) else (default,)))


def _unknown_flag(error: click.NoSuchOption, arguments: Sequence[str], ctx: click.Context) -> click.UsageError:
    """Return what to do instead of a flag of a replaced tool; for other flags the most similar ones of its section."""
    if explanation := explain_removed(arguments):
        return click.UsageError(explanation, ctx)
    section, dot, _ = error.option_name.rpartition(".")
    if not dot:
        return error
    if flags := [option.opts[0] for option in ctx.command.params if _has_key(option, error.option_name)]:
        return click.NoSuchOption(error.option_name, possibilities=flags, ctx=ctx)
    near = [
        flag
        for flag in error.possibilities or ()
        if difflib.SequenceMatcher(a=section, b=flag.rpartition(".")[0]).ratio() > _SIMILAR
    ]
    return click.NoSuchOption(error.option_name, possibilities=near, ctx=ctx)


def _has_key(option: click.Parameter, name: str) -> bool:
    return isinstance(option, SettingOption) and f"--{option.declared.key}" == name


def _help(declared: Setting) -> str:
    default = format_default(declared)
    return f"{declared.help} [default: {default}]" if default else declared.help


def _show_all_help(ctx: click.Context, _param: click.Parameter, is_wanted: object) -> None:
    if is_wanted and not ctx.resilient_parsing:
        ctx.meta[_HELP_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _section_name(option: SettingOption) -> str:
    return option.declared.key.partition(".")[0]


def _write_options(
    title: str, options: Iterable[click.Parameter], ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    records = [record for option in options if (record := option.get_help_record(ctx)) is not None]
    with formatter.section(title):
        formatter.write_dl(records)


def _is_given(value: object) -> bool:
    return value is not None and value != ()
