# SPDX-License-Identifier: Apache-2.0
"""Offer ``slurmscope doctor``: why is a metric missing?"""

from __future__ import annotations

import json
import logging
import platform
from collections.abc import Mapping, Sequence
from contextlib import closing

import click

from slurmscope import __version__
from slurmscope.cli.options import SettingsCommand, load_config, make_exporter, options_for
from slurmscope.cli.output import format_examples, show_checks
from slurmscope.cli.roles import ROLE_NAMES, find_role, find_sections
from slurmscope.core.check import Check, find_root_cause
from slurmscope.core.config import Config, own_environment
from slurmscope.exporter.doctor import check_certificate, check_disk, check_python, examine, written_folders
from slurmscope.exporter.exporter import configure_log, enabled_collectors
from slurmscope.exporter.settings import WebSettings

_MODULES = {"node": ("ctypes", "ssl"), "cluster": ("ssl",), "portal": ("sqlite3", "ssl", "zlib")}
"""Modules that a Python built from source may lack, by role."""


def make_doctor_command() -> click.Command:
    """Build the group; every role takes the same flags as the role itself."""
    group = click.Group(
        "doctor",
        help="Try everything an exporter or the portal would read, and explain what is missing.",
        epilog=format_examples("slurmscope doctor cluster", "slurmscope doctor node"),
    )
    for name in ROLE_NAMES:
        group.add_command(_role_command(name))
    group.add_command(_portal_command())
    return group


def _role_command(name: str) -> click.Command:
    role = find_role(name)

    def run(*, json: bool, **given: object) -> int:
        exporter = make_exporter(name, given)
        config = _quieten(exporter.load(), given)
        with closing(exporter.open_features(config)) as features:
            checks = examine(features, [e.collector for e in enabled_collectors(exporter.collectors, config)])
        certificate = check_certificate(config.of(WebSettings).config_file)
        own = (*check_python(_MODULES[name]), *check_disk(written_folders(config)))
        return _report(name, (*own, *checks, *certificate), as_json=json)

    params = [_json_option(), *options_for(role.sections())]
    return SettingsCommand(name, callback=run, params=params, help=_help(name), examples=_examples(name))


def _portal_command() -> click.Command:
    def run(*, json: bool, **given: object) -> int:
        from slurmscope.portal.checks import examine_portal

        # Before the rest: an archive in SQLite cannot even be looked at without the module.
        if python := tuple(check_python(_MODULES["portal"])):
            return _report("portal", python, as_json=json)
        config = _quieten(load_config("portal", given), given)
        return _report("portal", examine_portal(config, own_environment()), as_json=json)

    params = [_json_option(), *options_for(find_sections("portal"))]
    return SettingsCommand("portal", callback=run, params=params, help=_help("portal"), examples=_examples("portal"))


def _json_option() -> click.Option:
    return click.Option(["--json"], is_flag=True, help="Print the result as JSON, for scripts and bug reports.")


def _examples(name: str) -> tuple[str, ...]:
    return f"slurmscope doctor {name}", f"slurmscope doctor {name} --config.file /etc/slurmscope/{name}.toml"


def _help(name: str) -> str:
    return f"Check this host for slurmscope {name}; takes the same flags. Exits with 1 if something is missing."


def _quieten(config: Config, given: Mapping[str, object]) -> Config:
    """Return the settings; without a log level nothing is logged, because every failure is in the result."""
    configure_log(config)
    if given.get("log_level") is None:
        logging.disable()
    return config


def _report(name: str, checks: Sequence[Check], *, as_json: bool) -> int:
    if as_json:
        click.echo(json.dumps(_describe(name, checks), indent=2))
    else:
        show_checks(checks)
    return 0 if all(check.is_good for check in checks) else 1


def _describe(name: str, checks: Sequence[Check]) -> dict[str, object]:
    """Return the result with the versions that a bug report needs."""
    described = [
        {
            "name": check.name,
            "ok": check.is_good,
            "status": check.status,
            "message": check.message,
            "advice": check.advice,
        }
        for check in checks
    ]
    root = find_root_cause(checks)
    return {
        "role": name,
        "begin_with": root.name if root is not None else None,
        "healthy": all(check.is_good for check in checks),
        "slurmscope_version": __version__,
        "python_version": platform.python_version(),
        "kernel": platform.release(),
        "checks": described,
    }
