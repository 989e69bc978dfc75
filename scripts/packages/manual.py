# SPDX-License-Identifier: Apache-2.0
"""Make manual pages and completion from the commands, as their help has it."""

from __future__ import annotations

from collections.abc import Iterator

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from slurmscope.cli import COMMANDS, slurmscope

_EXIT = (
    ("0", "success"),
    ("1", "partial failure: a collector, a check or a digest failed"),
    ("2", "wrong arguments or settings, or an error that is explained in one line"),
    ("70", "unexpected error"),
)
_SHELLS: dict[str, type[ShellComplete]] = {
    "bash-completion/completions/slurmscope": BashComplete,
    "zsh/vendor-completions/_slurmscope": ZshComplete,
    "fish/vendor_completions.d/slurmscope.fish": FishComplete,
}


def manual_pages(version: str) -> dict[str, str]:
    """Return pages by file name: one for slurmscope, and one for each command."""
    context = click.Context(slurmscope, info_name="slurmscope", **slurmscope.context_settings)
    pages = {"slurmscope.1": _page(slurmscope, context, version)}
    for name in COMMANDS:
        command = slurmscope.get_command(context, name)
        assert command is not None
        pages[f"slurmscope-{name}.1"] = _page(command, click.Context(command, context, info_name=name), version)
    return pages


def completions() -> dict[str, str]:
    """Return completion scripts by path in ``share``."""
    # The check of bash's release is for users; this is the bash of the machine that builds.
    variable = "_SLURMSCOPE_COMPLETE"
    sources = {place: shell(slurmscope, {}, "slurmscope", variable) for place, shell in _SHELLS.items()}
    return {place: shell.source_template % shell.source_vars() for place, shell in sources.items()}


def _page(command: click.Command, context: click.Context, version: str) -> str:
    title = context.command_path.replace(" ", "-")
    summary = command.get_short_help_str(120).rstrip(".")
    lines = [
        f'.TH "{_text(title).upper()}" "1" "" "slurmscope {_text(version)}" "slurmscope"',
        ".SH NAME",
        f"{_text(title)} \\- {_text(summary)}",
        *_command(command, context, ".SH"),
        ".SH EXIT STATUS",
        *(line for code, meaning in _EXIT for line in (".TP", f".B {code}", _text(meaning))),
        ".SH FILES",
        "/etc/slurmscope/*.toml, ~/.config/slurmscope/*.toml",
    ]
    return "\n".join(lines) + "\n"


def _command(command: click.Command, context: click.Context, heading: str) -> Iterator[str]:
    """Yield synopsis, text and options, then the same for commands below."""
    words = " ".join(command.collect_usage_pieces(context))
    yield from (f"{heading} SYNOPSIS" if heading == ".SH" else ".PP", f".B {_text(context.command_path)}", _text(words))
    yield from (f"{heading} DESCRIPTION" if heading == ".SH" else ".PP", *_paragraphs(command.help or ""))
    records = [record for parameter in command.get_params(context) if (record := parameter.get_help_record(context))]
    if records:
        yield f"{heading} OPTIONS" if heading == ".SH" else ".PP"
    for names, text in records:
        yield from (".TP", f".B {_text(names)}", *_paragraphs(text))
    if isinstance(command, click.Group):
        yield ".SH COMMANDS"
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            if command is slurmscope:
                yield from (
                    ".TP",
                    f".BR slurmscope-{name} (1)".replace("-", "\\-"),
                    _text(below.get_short_help_str(120)),
                )
            else:
                yield f'.SS "{_text(name)}"'
                yield from _command(below, click.Context(below, context, info_name=name), ".SS")


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(text.replace("\b", "").split("\n\n")):
        if number:
            yield ".PP"
        yield from (_text(line.strip()) for line in paragraph.splitlines() if line.strip())


def _text(line: str) -> str:
    """Escape what roff understands; a line must not begin with a dot or an apostrophe."""
    escaped = line.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
