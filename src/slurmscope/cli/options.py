# SPDX-License-Identifier: Apache-2.0
"""Make command-line options from declared settings.

``--help`` of a command fits on one screen: its own options, the few settings that most people need, and examples.
``--help-all`` lists every setting.

They have one dash or two, and a value after ``=`` or as the next argument: ``-promserver http://host:9090 -port 9846``.

Those take long flags with one dash, and booleans as ``-flag=false``. The arguments are rewritten before click
parses them, so no other code has to know the old spelling.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import click

from slurmscope.cli.output import format_examples, option
from slurmscope.cli.roles import ROLE_NAMES, find_role, find_sections, keys_of_others
from slurmscope.core.config import Config, find_files, find_replacement, load, named_extensions, own_environment
from slurmscope.core.settings import Section, Setting, environment_name
from slurmscope.exporter.collector import Role
from slurmscope.exporter.exporter import Exporter
from slurmscope.exporter.settings import resolve_collectors, resolve_profile

_FLAG = re.compile(r"--?(?P<name>[a-zA-Z]+)(?:=(?P<value>.*))?\Z", re.DOTALL)
_QUERY = re.compile(r"(?P<metric>[a-zA-Z_:][a-zA-Z0-9_:]*)\[(?P<range>[0-9]+[smhd])\]")
_API = "/api/v1/query"


def _from_query_url(text: str) -> list[str]:
    """Translate the address of a whole query: its server, time range, and metric if it has another name than usual."""
    try:
        url = urlsplit(text)
    except ValueError:
        return [f"--prometheus.url={text}"]
    server = f"{url.scheme}://{url.netloc}{url.path.removesuffix(_API)}"
    flags = [f"--prometheus.url={server}", "--collector.lustre"]
    if query := _QUERY.search("".join(parse_qs(url.query).get("query", []))):
        flags.append(f"--collector.lustre.range={query['range']}")
        if not query["metric"].startswith("lustre_job_"):
            # It is refused with the names of the known dialects.
            flags.append(f"--collector.lustre.dialect={query['metric']}")
    return flags


FLAGS: Mapping[str, Callable[[str], list[str]]] = {
    "promserver": lambda text: [f"--prometheus.url={text}", "--collector.lustre"],
    "timerange": lambda text: [f"--collector.lustre.range={text}"],
    "timeout": lambda text: [f"--prometheus.timeout={text}"],
    "port": lambda text: [f"--web.listen-address=:{text}"],
    "log": lambda text: [f"--log.level={'debug' if text.lower() == 'trace' else text}"],
    "urlReads": _from_query_url,
    "urlWrites": _from_query_url,
}
"""Older flags, with what each becomes."""


def translate_lustre_flags(arguments: Sequence[str]) -> list[str]:
    """Return the arguments in the current spelling; arguments after ``--`` are unchanged."""
    translated: list[str] = []
    waiting = list(arguments)
    while waiting and waiting[0] != "--":
        argument = waiting.pop(0)
        match = _FLAG.match(argument)
        if match is None or match["name"] not in FLAGS or (match["value"] is None and not waiting):
            translated.append(argument)
        else:
            value = match["value"] if match["value"] is not None else waiting.pop(0)
            translated += FLAGS[match["name"]](value)
    return translated + waiting


RENAMED = {
    "web.log-level": "log.level",
    "slurm.collect-diags": "collector.scheduler",
    "slurm.collect-licenses": "collector.licenses",
    "slurm.collect-limits": "collector.limits",
}
"""Renamed flags: old name to new name."""

REPLACED = {"slurm.cli-fallback": {"": "--slurm.backend=text", "no-": "--slurm.backend=json"}}
"""Booleans that became one value of a setting."""

_COMMAND = "slurmscope chooses the columns itself; set the directory of Slurm's commands with --slurm.bin-path."
_LUSTRE = "It is a flag of slurmscope cluster."

REMOVED = {
    "slurm.squeue-cli": _COMMAND,
    "slurm.sinfo-cli": _COMMAND,
    "slurm.diag-cli": _COMMAND,
    "slurm.lic-cli": _COMMAND,
    "slurm.sacctmgr-cli": _COMMAND,
    "slurm.scredits-cli": "scredits is not part of Slurm; remove the flag.",
    "slurm.collect-credits": "scredits is not part of Slurm; remove the flag.",
    "promserver": _LUSTRE,
    "timerange": _LUSTRE,
    "urlReads": _LUSTRE,
    "urlWrites": _LUSTRE,
    "port": "Use --web.listen-address=:PORT.",
    "timeout": "Use --slurm.timeout.",
    "log": "Use --log.level.",
    "version": "Use slurmscope --version.",
    "timer": "The agent is scraped; set scrape_interval in prometheus.yml.",
    "t": "The agent is scraped; set scrape_interval in prometheus.yml.",
    "blacklist": "Drop series in prometheus.yml with metric_relabel_configs.",
    "b": "Drop series in prometheus.yml with metric_relabel_configs.",
}
"""Flags of replaced tools that have no counterpart, and what to do instead."""

EMPTY_FLAGS = frozenset(
    {*(name for name in REMOVED if name.endswith("-cli")), "web.listen-address", "web.telemetry-path", "web.log-level",
     "trace.path", "metrics.exclude"}
)  # fmt: skip
"""Flags of the older exporter that are as good as absent when they are empty."""

_ANY = re.compile(r"--?(?P<name>[a-zA-Z][a-zA-Z0-9.-]*)(?:=.*)?\Z", re.DOTALL)
_EMPTY = re.compile(r"--?(?P<name>[a-z.-]+)(?P<sign>=?)\Z")
_LONG = re.compile(r"--?(?P<name>[a-z][a-z0-9-]*(?:\.[a-z0-9-]+)+)(?:=(?P<value>.*))?\Z", re.DOTALL)
_BOOLEANS = {"true": "", "t": "", "1": "", "false": "no-", "f": "no-", "0": "no-"}


def translate(arguments: Sequence[str], booleans: Collection[str]) -> list[str]:
    """Return the arguments in the current spelling; arguments after ``--`` are unchanged.

    ``booleans`` are the flags that take no value.
    """
    arguments = _drop_empty(arguments)
    end = arguments.index("--") if "--" in arguments else len(arguments)
    translated = [new for argument in arguments[:end] for new in _translate_one(argument, booleans)]
    return translated + list(arguments[end:])


def _drop_empty(arguments: Sequence[str]) -> list[str]:
    """Leave out flags that are empty: ``-trace.path=``, or the same with an empty argument after it."""
    kept: list[str] = []
    waiting = list(arguments)
    while waiting and waiting[0] != "--":
        argument = waiting.pop(0)
        match = _EMPTY.match(argument)
        if match is None or match["name"] not in EMPTY_FLAGS or not (match["sign"] or waiting[:1] == [""]):
            kept.append(argument)
        elif not match["sign"]:
            waiting.pop(0)
    return kept + waiting


def explain_removed(arguments: Iterable[str]) -> str:
    """Return what to do instead of the first flag that a replaced tool had and slurmscope does not; or nothing."""
    for argument in arguments:
        match = _ANY.match(argument)
        if match and match["name"] in REMOVED:
            return f"{argument.partition('=')[0]} is not available. {REMOVED[match['name']]}"
    return ""


def _translate_one(argument: str, booleans: Collection[str]) -> Iterator[str]:
    match = _LONG.match(argument)
    if not match:
        yield argument
        return
    name, value = RENAMED.get(match["name"], match["name"]), match["value"]
    prefix = _BOOLEANS.get((value or "").lower())
    if name in REPLACED and (value is None or prefix is not None):
        yield REPLACED[name][prefix or ""]
        return
    if prefix is not None and name in booleans:
        yield f"--{prefix}{name}"
    else:
        yield f"--{name}" if value is None else f"--{name}={value}"


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
    """Accept settings as flags, also in the spelling of older tools.

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
    """Return one option per setting that has a flag, ``--config.file`` and ``--help-all``."""
    help_all = click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_all_help,
        help="List all settings of this command and exit.",
    )
    settings = [SettingOption(declared) for section in sections for declared in section.settings() if declared.has_flag]
    return [
        config_file_option("TOML configuration file."),
        *settings,
        help_all,
    ]


def config_file_option(help: str) -> click.Option:
    path = click.Path(path_type=Path)
    return option("--config.file config_file", "FILE", help, path, envvar=CONFIG_FILE_VARIABLE)


def archive_options() -> list[click.Parameter]:
    """Return the options for the archive; the configuration file may contain more settings."""
    return options_for(section for section in find_sections("report") if section.name == "archive")


FILE_NAMES = {"report": ("report", "portal"), "database": ("portal",)}
"""Configuration files in /etc/slurmscope of services that have not one of their own name, or more than that."""


def find_config_files(name: str, given: Mapping[str, object]) -> tuple[Path, ...]:
    """Return the files of a role or service, or that of ``--config.file``."""
    file = given.get("config_file")
    names = FILE_NAMES.get(name, (name,))
    return (file,) if isinstance(file, Path) else find_files(*names, home=own_environment().get("HOME", ""))


def make_exporter(name: str, given: Mapping[str, object], *, file_of: str = "") -> Exporter:
    """Make the exporter of a role, with the extensions that its configuration names now."""
    names = named_extensions(find_config_files(file_of or name, given), own_environment())
    return find_role(name, names).make_exporter(lambda: load_config(name, given, file_of=file_of, extensions=names))


def load_config(
    name: str, given: Mapping[str, object], *, file_of: str = "", extensions: Sequence[str] | None = None
) -> Config:
    """Resolve the settings of a role or service from the parsed options, the environment and the files.

    Without ``--config.file``, the files are those of the service, or of another one, ``file_of``. ``extensions`` are
    those that were loaded already; by default those that the configuration names.
    """
    files, environment = find_config_files(file_of or name, given), own_environment()
    loaded = named_extensions(files, environment) if extensions is None else extensions
    sections = tuple(find_sections(name, loaded))
    by_name = {parameter_name(s): s for section in sections for s in section.settings()}
    config = load(
        sections,
        flags={by_name[name].key: value for name, value in given.items() if name in by_name and _is_given(value)},
        environment=environment,
        files=files,
        other_keys=lambda: keys_of_others(name, loaded),
    )
    if name not in ROLE_NAMES:
        return config
    role = Role(name)
    return resolve_profile(resolve_collectors(config, find_role(name, loaded).collectors), role)


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
    """Return what to do instead of a flag that is gone; for other flags the most similar ones of its section."""
    if explanation := explain_removed(arguments):
        return click.UsageError(explanation, ctx)
    name = error.option_name.removeprefix("--").removeprefix("no-")
    if use := find_replacement(name):
        return click.UsageError(f"{error.option_name} was removed: {use}.", ctx)
    if name.startswith("rules."):
        where = f"set {name} in the configuration file, or {environment_name(name)} in the environment"
        return click.UsageError(f"{error.option_name} is not a flag: {where}.", ctx)
    section, dot, _ = error.option_name.rpartition(".")
    if not dot:
        return error
    if flags := [option.opts[0] for option in ctx.command.params if _has_key(option, error.option_name)]:
        return click.NoSuchOption(error.option_name, possibilities=flags, ctx=ctx)
    import difflib

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
