# SPDX-License-Identifier: Apache-2.0
"""Hold the script of a job as Slurm stored it, find mistakes in it, and render it for a terminal.

Options count as sbatch counts them: those in the script up to the first command, and those of the command line.

Values may be passwords. Only those of Slurm and OpenMP are shown, and of these none whose name suggests a secret, such
as SLURM_JWT.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slurmscope.core.log import escape
from slurmscope.jobs.render.formatting import show
from slurmscope.jobs.render.text import TextPage
from slurmscope.jobs.submit_line import parse_options


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFinding:
    """One problem of a job script; ``line`` counts from 1, None for the whole script."""

    title: str
    advice: str
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentVariable:
    """One variable of the submission; ``value`` is None where it is not shown, because it may be a secret."""

    name: str
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobScript:
    """A script and the environment at its submission; ``is_cut`` says that the script was longer."""

    text: str
    is_cut: bool = False
    findings: tuple[ScriptFinding, ...] = ()
    environment: tuple[EnvironmentVariable, ...] = ()


MAX_LINES = 20_000
MAX_OPTIONS = 100
MAX_OPTION_CHARACTERS = 300

Options = Mapping[str, str]

_DIRECTIVE = re.compile(r"#SBATCH\s+(?P<options>.*)")
_NEXT_PART = re.compile(r"#SBATCH\s+(?:hetjob|packjob)\b")
_LAUNCHER = re.compile(r"\b(?:srun|mpirun|mpiexec|orterun|prun|mpiexec\.hydra|aprun|ibrun|jsrun|torchrun|charmrun)\b")
_THREADS = re.compile(r"^\s*(?:export\s+)?OMP_NUM_THREADS=[\"']?(?P<count>[0-9]{1,5})[\"']?\s*(?:;.*|#.*)?$")


def lint_script(text: str, submit_line: str = "") -> tuple[ScriptFinding, ...]:
    """Return what to check in a script that was submitted with this command line."""
    lines = text.splitlines()[:MAX_LINES]
    first_command = _find_first_command(lines)
    options = {**_directives(_parts(lines[:first_command])[0]), **_command_options(submit_line)}
    checks: Sequence[Callable[[Sequence[str], Options], Iterator[ScriptFinding]]] = (
        _check_tasks, _check_threads, _check_memory, _check_exclusive, _check_time,
    )  # fmt: skip
    found = [*_late_options(lines, first_command), *(each for check in checks for each in check(lines, options))]
    return tuple(found)


def script_options(text: str, part: int = 0) -> str:
    """Return the options in a script as words of a command line; of a heterogeneous job, those of one of its parts."""
    lines = text.splitlines()[:MAX_LINES]
    parts = _parts(lines[: _find_first_command(lines)])
    options = _directives(parts[part]) if part < len(parts) else {}
    words = [f"--{name}={value}" if value else f"--{name}" for name, value in options.items()]
    kept = [word for word in words if word.split() == [word] and len(word) <= MAX_OPTION_CHARACTERS]
    return " ".join(kept[:MAX_OPTIONS])


def _late_options(lines: Sequence[str], first_command: int) -> Iterator[ScriptFinding]:
    for number, line in enumerate(lines[first_command:], first_command + 1):
        if _DIRECTIVE.match(line):
            yield ScriptFinding(
                title="An option after the first command is ignored",
                advice=f"sbatch reads options up to the first command, which is in line {first_command + 1}. Move this "
                "line above it.",
                line=number,
            )


def _check_tasks(lines: Sequence[str], options: Options) -> Iterator[ScriptFinding]:
    tasks = _number(options, "ntasks") or _number(options, "ntasks-per-node") or 1
    if tasks > 1 and not any(_LAUNCHER.search(line) for line in _commands(lines)):
        yield ScriptFinding(
            title=f"Nothing starts the {tasks} tasks",
            advice="The script itself runs once, and has no srun or mpirun. Start an MPI program with srun. For a "
            "program with threads, request --ntasks=1 and the cores with --cpus-per-task.",
        )


def _check_threads(lines: Sequence[str], options: Options) -> Iterator[ScriptFinding]:
    if "cpus-per-task" in options or "exclusive" in options:
        return
    for number, line in enumerate(lines, 1):
        found = _THREADS.match(line)
        if found and int(found["count"]) > 1:
            yield ScriptFinding(
                title=f"{int(found['count'])} threads without --cpus-per-task",
                advice="Each task has one core, whatever --ntasks is, and its threads share it. Request the cores with "
                f"--cpus-per-task={int(found['count'])}, and set OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK.",
                line=number,
            )
            return


def _check_memory(_lines: Sequence[str], options: Options) -> Iterator[ScriptFinding]:
    if options.get("mem") in {"0", "0M", "0G", "0K", "0T"}:
        yield ScriptFinding(
            title="--mem=0 requests all the memory of each node",
            advice="No other job can run on these nodes. Request what the job needs.",
        )


def _check_exclusive(_lines: Sequence[str], options: Options) -> Iterator[ScriptFinding]:
    if options.get("exclusive") == "":
        yield ScriptFinding(
            title="--exclusive allocates whole nodes",
            advice="All cores of each node are allocated, also those that the job does not use. Leave it out if the "
            "job can share its nodes.",
        )


def _check_time(_lines: Sequence[str], options: Options) -> Iterator[ScriptFinding]:
    if "time" not in options:
        yield ScriptFinding(
            title="No time limit",
            advice="The default of the partition applies. A job with a short --time can start earlier, in gaps of the "
            "schedule.",
        )


def _find_first_command(lines: Sequence[str]) -> int:
    """Return the index of the first line that is neither empty nor a comment; the number of lines without one."""
    return next((index for index, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines))


def _commands(lines: Sequence[str]) -> Iterator[str]:
    return (line for line in lines if not line.lstrip().startswith("#"))


def _directives(lines: Sequence[str]) -> Options:
    found: dict[str, str] = {}
    for line in lines:
        if directive := _DIRECTIVE.match(line):
            found |= parse_options(_split(directive["options"]))
    return found


def _parts(lines: Sequence[str]) -> list[list[str]]:
    """Divide the lines among the parts of a heterogeneous job; any other job has one."""
    parts: list[list[str]] = [[]]
    for line in lines:
        if _NEXT_PART.match(line):
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def _command_options(submit_line: str) -> Options:
    words = _split(submit_line)
    return parse_options(words[1:])


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:  # a quote that is not closed
        return text.split()


def _number(options: Options, name: str) -> int | None:
    value = options.get(name, "")
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 10 else None


MAX_VARIABLES = 1000
MAX_VALUE_CHARACTERS = 500

_SHOWN = re.compile(r"(?:SLURM|OMP)_[A-Z0-9_]+")
_SECRET = re.compile(r"JWT|TOKEN|KEY|SECRET|PASS|CRED|AUTH|SIGN|COOKIE", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")


def show_environment(lines: Iterable[str]) -> tuple[EnvironmentVariable, ...]:
    """Return the variables of ``NAME=value`` lines in order of their names; other lines continue a value."""
    found: dict[str, EnvironmentVariable] = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if equals and _NAME.fullmatch(name):
            is_shown = _SHOWN.fullmatch(name) is not None and _SECRET.search(name) is None
            found[name] = EnvironmentVariable(name=name, value=value[:MAX_VALUE_CHARACTERS] if is_shown else None)
    return tuple(found[name] for name in sorted(found))[:MAX_VARIABLES]


MAX_SHOWN_LINES = 5000
MAX_LINE_CHARACTERS = 2000
CUT = "The script is longer; only its beginning is shown."
NO_FINDINGS = "No problems were found in the script."


def render_script_text(shown_id: str, script: JobScript, *, width: int = 80, use_color: bool = False) -> str:
    """Return the findings, the script with line numbers, and the environment, without escape codes but our own."""
    page = TextPage(width, use_color=use_color)
    lines = [
        *page.top(f"Script of job {show(shown_id, 40)}"),
        *page.heading("Check"),
        *(line for finding in script.findings for line in _finding(page, finding)),
        *(() if script.findings else page.sentence(NO_FINDINGS)),
        *page.heading("Script"),
        *(f"{number:5}  {line}" for number, line in enumerate(show_lines(script.text), 1)),
        *(page.sentence(CUT) if script.is_cut else ()),
        *_environment(page, script),
    ]
    return "\n".join(lines) + "\n"


def show_lines(text: str) -> tuple[str, ...]:
    """Return the lines of a script, safe to show: unprintable characters are escaped."""
    lines = text.rstrip("\n").split("\n")[:MAX_SHOWN_LINES]
    return tuple(escape(line.expandtabs(8), MAX_LINE_CHARACTERS) for line in lines)


def _finding(page: TextPage, finding: ScriptFinding) -> Iterator[str]:
    where = "" if finding.line is None else f"Line {finding.line}: "
    yield from page.sentence(f"{where}{show(finding.title)}.")
    yield from page.sentence(f"    {show(finding.advice)}")


def _environment(page: TextPage, script: JobScript) -> Iterator[str]:
    if not script.environment:
        return
    yield from page.heading("Environment at submission")
    for variable in script.environment:
        if variable.value is not None:
            yield from page.sentence(f"{variable.name}={show(variable.value)}")
    names = [variable.name for variable in script.environment if variable.value is None]
    if names:
        yield from page.sentence(f"Without their values, which may be secret: {', '.join(names)}")
