# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope config``: check a configuration file, or show the resolved settings and their origin."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from json import dumps as to_json
from pathlib import Path

import click

from slurmscope.accounting.settings import AccountingSettings
from slurmscope.cli.options import SettingsCommand, load_config, options_for
from slurmscope.cli.output import flag, format_examples
from slurmscope.cli.roles import SECTION_NAMES, find_sections
from slurmscope.core.config import Config
from slurmscope.core.errors import MissingExtraError, SlurmscopeError
from slurmscope.core.settings import Setting
from slurmscope.exporter.settings import WebSettings
from slurmscope.http.server.gate import open_gate
from slurmscope.portal.settings import PortalSettings, check_settings
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.remote_write.feature import RemoteWriteSettings, check_certificates
from slurmscope.reporter.retention import ReporterSettings, check_retention
from slurmscope.reports.sources import require_cluster_label, require_one_cluster
from slurmscope.trace.settings import NodeTraceSettings, TraceSettings, check_forwarding
from slurmscope.trace.tokens import read_keys
from slurmscope.up.settings import UpSettings


def make_config_command() -> click.Command:
    """Build the group; every role takes the same flags as the role itself."""
    examples = format_examples(*_examples("check", "portal"), *_examples("show", "cluster"))
    group = click.Group("config", help="Check and show the configuration.", epilog=examples)
    as_json = flag("--json", "Print the result as JSON: valid, files, error.")
    check = "Check the configuration; exit with 2 if it is not valid."
    group.add_command(_for_each_role("check", _check_and_print, check, as_json))
    group.add_command(_for_each_role("show", _show, "Show all settings with their values and origins, as TOML."))
    return group


def _examples(name: str, role: str) -> tuple[str, ...]:
    command = f"slurmscope config {name} {role}"
    return command, f"{command} --config.file /etc/slurmscope/{role}.toml"


def _for_each_role(name: str, action: Callable[..., object], help: str, *options: click.Option) -> click.Group:
    group = click.Group(
        name, help=help, epilog=format_examples(*_examples(name, "cluster"), *_examples(name, "portal"))
    )
    for role in SECTION_NAMES:
        group.add_command(_role_command(name, role, action, options))
    return group


def _role_command(
    name: str, role: str, action: Callable[..., object], options: tuple[click.Option, ...]
) -> click.Command:
    return SettingsCommand(
        role,
        callback=partial(action, role),
        params=[*options, *options_for(find_sections(role))],
        help=f"{name.capitalize()} the settings of slurmscope {role}. Takes the same flags.",
        examples=_examples(name, role),
    )


def _check_and_print(role: str, *, json: bool, **given: object) -> int:
    """Print one line, or the same as JSON; scripts get the error there, people on standard error."""
    try:
        config = load_config(role, given)
        _check(config)
    except SlurmscopeError as error:
        if not json:
            raise
        click.echo(to_json({"valid": False, "files": [], "error": str(error)}))
        return 2
    files = " and ".join(map(str, config.files))
    if json:
        click.echo(to_json({"valid": True, "files": [str(file) for file in config.files], "error": None}))
    else:
        click.echo(f"{files} {'are' if len(config.files) > 1 else 'is'} valid" if files else "the settings are valid")
    return 0


def check_file(role: str, file: Path) -> None:
    """Raise an error unless the service could start with this configuration file."""
    _check(load_config(role, {"config_file": file}))


def _check(config: Config) -> None:
    kinds = {section.type for section in config.sections}
    if PortalSettings in kinds:
        check_settings(config.of(PortalSettings))
    if PrometheusSettings in kinds and config.of(PrometheusSettings).url is not None:
        _check_prometheus(config.of(PrometheusSettings))
    if {AccountingSettings, PrometheusSettings} <= kinds:
        require_cluster_label(config.of(PrometheusSettings), config.of(AccountingSettings))
    if UpSettings in kinds:
        require_one_cluster(config.of(AccountingSettings))
    if ReporterSettings in kinds:
        check_retention(config.of(ReporterSettings))
    if RemoteWriteSettings in kinds:
        check_certificates(config.of(RemoteWriteSettings))
    if WebSettings in kinds:
        open_gate(config.of(WebSettings).config_file)
    if NodeTraceSettings in kinds:
        check_forwarding(config.of(NodeTraceSettings))
        _check_keys(config.of(NodeTraceSettings).key_file)
    if TraceSettings in kinds:
        _check_keys(config.of(TraceSettings).key_file)


def _check_prometheus(settings: PrometheusSettings) -> None:
    """Check these settings where they can be used: the client needs a package that not every host has."""
    with suppress(MissingExtraError):
        from slurmscope.prometheus.client import Prometheus

        Prometheus(settings)


def _check_keys(key_file: Path | None) -> None:
    if key_file is not None:
        read_keys(key_file)


def _show(role: str, **given: object) -> None:
    config = load_config(role, given)
    click.echo(f"# configuration file: {' and '.join(map(str, config.files)) or 'none'}")
    for declared in config.settings():
        resolved = config.values[declared.key]
        value = "<hidden>" if declared.is_secret and resolved.value else _format_toml(declared, resolved.value)
        # A setting without a value is commented out: not every parser accepts an empty string.
        mark = "#" if resolved.value in (None, "") and config.is_default(declared.key) else ""
        click.echo(f"{mark}{declared.key} = {value}  # {resolved.origin}")


def _format_toml(declared: Setting, value: object) -> str:
    if value is None:
        return '""'
    if declared.is_repeatable and isinstance(value, tuple):
        return "[" + ", ".join(_quote(declared.format(item)) for item in value) + "]"
    is_bare = isinstance(value, bool) or (isinstance(value, int | float) and not declared.has_unit)
    return declared.format(value) if is_bare else _quote(declared.format(value))


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
