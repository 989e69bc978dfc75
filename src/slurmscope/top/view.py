# SPDX-License-Identifier: Apache-2.0
"""Show a source live in a terminal, with keys; or once, for scripts.

One thread polls, so that keys work while a server is slow. The terminal is restored whatever happens.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from slurmscope.core.errors import SlurmscopeError
from slurmscope.core.units import format_bytes, format_count, format_ratio, format_seconds, format_some
from slurmscope.jobs.render.formatting import show
from slurmscope.jobs.render.text import cut, measure, pad
from slurmscope.top.jobs import TopGpu, TopJob, filter_jobs, sort_jobs
from slurmscope.top.sources import TopSource

_BOLD, _REVERSE, _RESET = "\x1b[1m", "\x1b[7m", "\x1b[0m"
_NOTHING = "–"
MIN_COLUMNS, MIN_LINES = 40, 6
HELP = "q quit  c cpu  m memory  g GPU  i I/O  t time  j job  / filter  p pause"
_JOB, _NAME, _USER = 20, 14, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """What is shown, and how; ``problem`` is a sentence about the last poll."""

    title: str
    jobs: Sequence[TopJob] = ()
    clock: str = ""
    sort: str = "cpu"
    filter: str = ""
    problem: str = ""
    is_paused: bool = False
    prompt: str | None = None
    """The text of a filter that is being typed."""


def draw(view: Screen, columns: int, lines: int | None, *, use_color: bool = False) -> list[str]:
    """Return at most so many lines of at most so many columns; all lines if ``lines`` is None."""
    if lines is not None and (columns < MIN_COLUMNS or lines < MIN_LINES):
        text = f"The terminal is too small: {MIN_COLUMNS} columns and {MIN_LINES} lines are needed."
        return [cut(text, columns)][:lines]
    head = [_paint(cut(_heading(view), columns), _BOLD, use_color=use_color)]
    if view.problem:
        head.append(cut(show(view.problem), columns))
    body = _body(view, columns, use_color=use_color)
    if lines is None:
        return [*head, *body]
    room = lines - len(head) - 1
    if len(body) > room:
        left = len(body) - room + 1
        body = [*body[: room - 1], cut(f"… {format_some(left, 'more line')}; / filters", columns)]
    bottom = f"filter: {show(view.prompt)}_" if view.prompt is not None else HELP
    filler = [""] * (room - len(body))
    return [*head, *body, *filler, _paint(pad(bottom, columns), _REVERSE, use_color=use_color)]


def _heading(view: Screen) -> str:
    jobs = list(view.jobs)
    used = [job.cores_used for job in jobs if job.cores_used is not None]
    cores = [job.cores for job in jobs if job.cores is not None]
    parts = [format_some(len(jobs), "job")]
    if used and cores:
        parts.append(f"{format_count(sum(used))} of {format_some(sum(cores), 'core')} busy")
    watts = [gpu.power_watts for job in jobs for gpu in job.gpus if gpu.power_watts is not None]
    if watts:
        parts.append(f"GPUs {sum(watts):,.0f} W")
    parts.append(f"by {view.sort}")
    if view.filter:
        parts.append(f"with {show(view.filter, 40)}")
    if view.is_paused:
        parts.append("paused")
    return f"{view.title}: {', '.join(parts)}" + (f"  {view.clock}" if view.clock else "")


_HEAD = ("JOB", "USER", "NAME", "CORES", "CPU", "MEMORY", "LIMIT", "MEM", "TIME", "OF", "READ/s", "WRITE/s")
_LEFT = 3


def _body(view: Screen, columns: int, *, use_color: bool) -> list[str]:
    if not view.jobs:
        return ["" if view.problem else "No running jobs."]
    rows = [_cells(job) for job in view.jobs]
    widths = [max(measure(row[index]) for row in (_HEAD, *rows)) for index in range(len(_HEAD))]
    while len(widths) > 2 and sum(widths) + len(widths) - 1 > columns:
        widths.pop()
    lines = [_paint(_line(_HEAD, widths), _BOLD, use_color=use_color)]
    for job, row in zip(view.jobs, rows, strict=True):
        lines.append(_line(row, widths))
        lines += (cut(line, columns) for line in _gpu_lines(job))
    return lines


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return " ".join(pad(cells[i], width, is_right=not 0 < i < _LEFT) for i, width in enumerate(widths)).rstrip()


def _cells(job: TopJob) -> tuple[str, ...]:
    cores = f"{_count(job.cores_used)}/{_count(job.cores)}"
    return (
        cut(show(job.job_id), _JOB),
        cut(show(job.user, 64) or _NOTHING, _USER),
        cut(show(job.name, 100) or _NOTHING, _NAME),
        cores,
        _ratio(job.cpu_ratio),
        _bytes(job.memory_bytes),
        _bytes(job.limit_bytes),
        _ratio(job.memory_ratio),
        format_seconds(job.elapsed_seconds) if job.elapsed_seconds is not None else _NOTHING,
        _ratio(job.time_ratio),
        _bytes(job.read_rate),
        _bytes(job.write_rate),
    )


def _gpu_lines(job: TopJob) -> Iterator[str]:
    for gpu in job.gpus:
        where = f"{show(gpu.node, 64)} " if len(job.nodes) > 1 else ""
        yield f"  {where}GPU {show(gpu.name, 30)}  {_describe_gpu(gpu)}"


def _describe_gpu(gpu: TopGpu) -> str:
    parts = [
        f"busy {_ratio(gpu.busy_ratio)}",
        f"SM {_ratio(gpu.sm_ratio)}" if gpu.sm_ratio is not None else "",
        f"memory {_bytes(gpu.memory_bytes)} of {_bytes(gpu.size_bytes)}",
        f"{gpu.power_watts:,.0f} W" if gpu.power_watts is not None else "",
    ]
    return "  ".join(part for part in parts if part)


def _ratio(ratio: float | None) -> str:
    return _NOTHING if ratio is None else format_ratio(ratio)


def _bytes(amount: float | None) -> str:
    return _NOTHING if amount is None else format_bytes(amount)


def _count(amount: float | None) -> str:
    return _NOTHING if amount is None else format_count(amount)


def _paint(text: str, code: str, *, use_color: bool) -> str:
    return f"{code}{text}{_RESET}" if use_color else text


KEYS = {"c": "cpu", "m": "memory", "g": "gpu", "i": "io", "t": "time", "j": "job"}
MAX_FILTER = 60
_DRAW_SECONDS = 1.0
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_ESCAPE_KEY, _BACKSPACE, _RETURN = "\x1b", ("\x7f", "\x08"), ("\r", "\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopChoices:
    """What the user chose; ``interval_seconds`` None is that of the source."""

    sort: str = "cpu"
    filter: str = ""
    interval_seconds: float | None = None
    use_color: bool = False


def read_once(source: TopSource, choices: TopChoices, *, sleep: Callable[[float], None] = time.sleep) -> Screen:
    """Return one view; of a source that has counters only, after an interval."""
    jobs = source.poll()
    if source.needs_two_polls and jobs:
        sleep(choices.interval_seconds or source.interval_seconds)
        jobs = source.poll()
    return make_view(source, choices, jobs)


def make_view(source: TopSource, choices: TopChoices, jobs: tuple[TopJob, ...], *, problem: str = "") -> Screen:
    shown = sort_jobs(filter_jobs(jobs, choices.filter), choices.sort)
    clock = time.strftime("%H:%M:%S")
    return Screen(
        title=source.title, jobs=shown, clock=clock, sort=choices.sort, filter=choices.filter, problem=problem
    )


class _Poller:
    """Poll a source in a thread, one poll at a time."""

    def __init__(self, source: TopSource, interval_seconds: float) -> None:
        self._source = source
        self._interval = interval_seconds
        self._wake = threading.Event()
        self._is_ended = False
        self.is_paused = False
        self.jobs: tuple[TopJob, ...] = ()
        self.problem = "reading …"
        self._thread = threading.Thread(target=self._run, name="top", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Stop after the current poll; it may still wait for its server."""
        self._is_ended = True
        self._wake.set()

    def _run(self) -> None:
        while not self._is_ended:
            if not self.is_paused:
                try:
                    self.jobs, self.problem = self._source.poll(), ""
                except SlurmscopeError as error:
                    # Numbers of another time are not shown as those of now.
                    self.jobs, self.problem = (), f"{error}; trying again every {self._interval:g} s"
            self._wake.wait(self._interval)
            self._wake.clear()


def show_live(source: TopSource, choices: TopChoices) -> None:
    """Draw until the user quits."""
    interval = choices.interval_seconds or source.interval_seconds
    poller = _Poller(source, interval)
    with _screen():
        poller.start()
        try:
            _loop(source, poller, choices)
        except KeyboardInterrupt:
            pass
        finally:
            poller.end()


def _loop(source: TopSource, poller: _Poller, choices: TopChoices) -> None:
    prompt: str | None = None
    while True:
        jobs, problem = poller.jobs, poller.problem
        view = replace(make_view(source, choices, jobs, problem=problem), is_paused=poller.is_paused, prompt=prompt)
        size = shutil.get_terminal_size()
        _write_frame(draw(view, size.columns, size.lines, use_color=choices.use_color))
        for key in _read_keys(_DRAW_SECONDS):
            if prompt is not None:
                prompt, choices = _type_filter(key, prompt, choices)
            elif key in {"q", "\x03", ""}:
                return
            elif key == "/":
                prompt = choices.filter
            elif key == "p":
                poller.is_paused = not poller.is_paused
            elif key in KEYS:
                choices = replace(choices, sort=KEYS[key])


def _type_filter(key: str, prompt: str, choices: TopChoices) -> tuple[str | None, TopChoices]:
    """Take one key of a filter that is being typed; None as its text when it is done."""
    if key in _RETURN:
        return None, replace(choices, filter=prompt)
    if key == _ESCAPE_KEY:
        return None, replace(choices, filter="")
    if key in _BACKSPACE:
        return prompt[:-1], choices
    return (prompt + key if key.isprintable() else prompt)[:MAX_FILTER], choices


def _read_keys(seconds: float) -> Iterator[str]:
    """Yield the keys that were pressed; an empty text at the end of input."""
    readable, _, _ = select.select([sys.stdin.fileno()], [], [], seconds)
    if readable:
        typed = os.read(sys.stdin.fileno(), 1024).decode("utf-8", "ignore")
        # An arrow is a sequence that begins like the escape key.
        yield from [""] if not typed else [] if typed.startswith("\x1b[") else typed


def _write_frame(lines: list[str]) -> None:
    text = "\r\n".join(f"{line}\x1b[K" for line in lines)
    sys.stdout.write(f"\x1b[H{text}\x1b[J")
    sys.stdout.flush()


@contextmanager
def _screen() -> Iterator[None]:
    """Use the other screen of the terminal, with single keys; restore it at the end, also after SIGTERM."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    handler = signal.signal(signal.SIGTERM, _terminate)
    try:
        tty.setcbreak(descriptor)
        sys.stdout.write(_ENTER)
        sys.stdout.flush()
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        signal.signal(signal.SIGTERM, handler)


def _terminate(_number: int, _frame: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)
