# SPDX-License-Identifier: Apache-2.0
"""Provide ``slurmscope init`` and ``slurmscope files``: set up this host, and the files that ship with slurmscope."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import click

from slurmscope.cli.config_command import check_file
from slurmscope.cli.output import flag, format_examples, option, write_bytes
from slurmscope.core.config import own_environment
from slurmscope.core.errors import ConfigError, OutputError
from slurmscope.core.log import escape
from slurmscope.core.own_files import Shipped, shipped_files
from slurmscope.core.units import format_count
from slurmscope.init.answers import QUESTIONS, Answers, answer, parse_answers, role_file, suggest
from slurmscope.init.changes import find_changes, show_changes, write_changes
from slurmscope.init.host import MOST_FILE_BYTES, FoundHost, Places, look
from slurmscope.init.plan import Plan, make_plan, touched_paths

NOT_ASKED = "No questions were asked, since this is no terminal; answer them with --answers FILE."
NOTHING_WRITTEN = "Nothing was written, since this is no terminal to ask on; run it again with --yes or --answers FILE."


def make_init_command() -> click.Command:
    path = click.Path(path_type=Path)
    return click.Command(
        "init",
        callback=_init,
        params=[
            option("--answers", "FILE", "Take answers from this TOML file, ask nothing, and write.", path),
            flag("--yes", "Ask nothing, take what was found, and write."),
            flag("--dry-run is_dry_run", "Show the changes and write nothing; exit with 1 if there are any."),
            option("--slurm.bin-path bin_path", "DIR", "Folder of Slurm's commands, if init does not find them.", path),
            option("--root", "DIR", "Write below this folder instead of /.", path, default="/"),
        ],
        help="Set up this host: configuration, systemd units, and scrape jobs and rules for Prometheus. Asks for what "
        "it cannot detect, shows the changes before it writes them, and starts nothing. It can be run again: existing "
        "settings are kept.",
        epilog=format_examples("slurmscope init", "slurmscope init --answers answers.toml --dry-run"),
    )


def _init(*, answers: Path | None, yes: bool, is_dry_run: bool, bin_path: Path | None, root: Path) -> int:
    shipped = {
        name: file.read_bytes().decode() for name, file in shipped_files().items() if name.endswith(_NEEDED_ENDINGS)
    }
    if not shipped:
        raise ConfigError("this installation has no files to deploy: install the wheel, a package or slurmscope.pyz")
    host = look(Places(root, bin_path, _find_program()), own_environment(), touched_paths())
    click.echo("\n".join(_describe(host)))
    asks = answers is None and not (yes or is_dry_run) and sys.stdin.isatty()
    chosen = _choose(host, answers, asks=asks)
    if not chosen.roles:
        raise ConfigError("neither slurmd nor slurmctld runs here, so no role was chosen: name it in a file of answers")
    plan = make_plan(host, chosen, shipped)
    _check(plan, chosen)
    changes = find_changes(plan, host.files)
    click.echo("".join(f"{escape(line, 2000)}\n" for line in ("", *show_changes(changes, plan, host.files))), nl=False)
    for note in plan.notes:
        click.echo(f"note: {escape(note, 1000)}")
    is_told = yes or answers is not None
    if not changes:
        click.echo("Nothing to change." if asks or is_told or is_dry_run else f"Nothing to change. {NOT_ASKED}")
        return 0
    if is_dry_run:
        return 1
    if not (is_told or (asks and click.confirm(f"Write {_files(changes)}?"))):
        click.echo("Nothing was written." if asks else NOTHING_WRITTEN, err=True)
        return 1
    write_changes(changes, root)
    click.echo(f"Wrote {_files(changes)}. Next:")
    click.echo("\n".join(f"  {escape(step, 1000)}" for step in plan.steps))
    return 0


_NEEDED_ENDINGS = (".toml", ".service", "slurmscope.yml", "slurmscope-jobs.yml")


def _files(changes: Mapping[str, str | None]) -> str:
    return "1 file" if len(changes) == 1 else f"{format_count(len(changes))} files"


def _choose(host: FoundHost, file: Path | None, *, asks: bool) -> Answers:
    suggested = suggest(host)
    if file is not None:
        try:
            with file.open("rb") as stream:
                text = stream.read(MOST_FILE_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file} cannot be read: {error}") from error
        return parse_answers(text, str(file), suggested)
    found: dict[str, object] = {}
    for question in QUESTIONS if asks else ():
        now = answer(suggested, found)
        if not question.role or question.role in now.roles:
            default = getattr(now, question.key.replace("-", "_"))
            shown = default if isinstance(default, str) else " ".join(default)
            found[question.key] = click.prompt(question.text, default=shown, value_proc=_parser(question.parse))
    return answer(suggested, found)


def _parser(parse: Callable[[object], object]) -> Callable[[str], object]:
    def run(given: str) -> object:
        try:
            return parse(given)
        except ValueError as error:
            raise click.UsageError(str(error)) from error

    return run


def _check(plan: Plan, answers: Answers) -> None:
    """Refuse to write a configuration that its service would not start with."""
    with tempfile.TemporaryDirectory() as folder:
        for role in answers.roles:
            path = role_file(role)
            file = Path(folder, Path(path).name)
            file.write_text(plan.files[path] or "", encoding="utf-8")
            try:
                check_file(role, file)
            except ConfigError as error:
                raise ConfigError(str(error).replace(str(file), path)) from error


def _find_program() -> str:
    """Return the absolute path of this program, if it is one that a unit can start."""
    program = Path(sys.argv[0]).absolute()
    return str(program) if program.suffix != ".py" and os.access(program, os.X_OK) and program.is_file() else ""


def _describe(host: FoundHost) -> Iterator[str]:
    """Yield what was found, one line for each subject; what is missing is said."""
    slurm, config = host.slurm, host.slurm.config
    daemons = ", ".join(sorted(slurm.daemons)) or "none of its daemons"
    if config is not None:
        names = f"{escape(config.slurm_version)}, cluster {escape(config.cluster_name)}"
        yield f"Slurm: {names}, commands in {slurm.bin_path}"
        yield f"Accounting: {escape(config.accounting_storage or 'not known')}"
        yield f"PrivateData: {escape(', '.join(sorted(config.private_data)) or 'none')}"
    else:
        yield f"Slurm: {escape(slurm.problem)}"
    yield f"Runs here: {daemons}"
    yield f"Cgroups: {host.cgroups.value}"
    yield f"GPUs: {', '.join(host.gpus) or 'none found'}"
    yield f"Prometheus: {host.prometheus_url or 'none on this host'}"
    yield f"Web server: {host.web_server or 'none found'}"
    yield f"Proxies: {', '.join(host.proxies) or 'none in the environment'}"
    yield f"Packages: {', '.join(sorted(host.packaged)) or 'none of a role'}"


def make_files_command() -> click.Command:
    return click.Command(
        "files",
        callback=_list_or_copy,
        params=[
            click.Argument(["names"], metavar="[NAME]...", nargs=-1),
            option("--copy", "DIR", "Copy the files to this folder.", click.Path(path_type=Path)),
            flag("--force", "With --copy: replace files that differ."),
        ],
        help="List the systemd units, example configurations, Prometheus rules, dashboards and scripts that ship with "
        "slurmscope; print those with the given NAMEs, or copy them, or all, to a folder.",
        epilog=format_examples(
            "slurmscope files --copy /root/slurmscope",
            "slurmscope files slurmscope-node.service > unit",
        ),
    )


def _list_or_copy(*, names: tuple[str, ...], copy: Path | None, force: bool) -> int:
    files = shipped_files()
    if not files:
        raise ConfigError("this installation has no files to deploy: install the wheel, a package or slurmscope.pyz")
    if unknown := [name for name in names if name not in files]:
        raise ConfigError(f"there is no file {unknown[0]!a}: slurmscope files lists them")
    chosen = {name: files[name] for name in names or files}
    if copy is not None:
        copy_files(chosen, copy, may_replace=force)
    elif names:
        for file in chosen.values():
            write_bytes(file.read_bytes())
    else:
        click.echo("\n".join(files))
    return 0


def copy_files(files: dict[str, Shipped], folder: Path, *, may_replace: bool) -> None:
    """Write files that are not there yet; nothing is written if one of them is there and differs."""
    contents = {folder / name: file.read_bytes() for name, file in files.items()}
    try:
        differing = [path for path, content in contents.items() if path.exists() and path.read_bytes() != content]
        if differing and not may_replace:
            more = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
            raise OutputError(f"{escape(str(differing[0]))}{more} exists and differs; replace with --force")
        for path, content in contents.items():
            _replace_file(path, content)
    except OSError as error:
        raise OutputError(f"cannot write to {escape(str(folder))}: {error.strerror}") from error


def _replace_file(path: Path, content: bytes) -> None:
    """Write a file in one step; scripts are executable."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.new")
    aside.unlink(missing_ok=True)
    with aside.open("xb") as file:
        file.write(content)
    aside.chmod(0o755 if content.startswith(b"#!") else 0o644)
    aside.replace(path)
