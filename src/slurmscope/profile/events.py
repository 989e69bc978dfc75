# SPDX-License-Identifier: Apache-2.0
"""Parse the datagrams of the profiling plugin.

::

    slurm-profile/1<TAB>event=sample<TAB>job=12<TAB>step=0<TAB>node=n1<TAB>...<TAB>CPUTime:d=1.98:11.79

The format is described at the head of ``plugin/acct_gather_profile_prometheus.c``. Unknown keys are ignored, so that a
newer plugin may add some.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

from slurmscope.core.errors import MalformedAnswer


class ProfileSeries(enum.Enum):
    """What a sample is about, as Slurm names it."""

    TASKS = "Tasks"
    ENERGY = "Energy"
    FILESYSTEM = "Filesystem"
    NETWORK = "Network"


class EventKind(enum.Enum):
    """What happened to a step."""

    STEP_START = "step_start"
    DATASET = "dataset"
    SAMPLE = "sample"
    TASK_END = "task_end"
    STEP_END = "step_end"


@dataclass(frozen=True, slots=True)
class StepKey:
    """Identify a step on a node; ``step`` is a number or batch, extern, interactive, unknown."""

    job_id: int
    step: str
    node: str


@dataclass(frozen=True, slots=True)
class SampledField:
    """A field of a sample in Slurm's unit, and the sum of all its values since the step started.

    Where the sender does not add them up, ``total`` is the value itself until the agent has done so.
    """

    value: float
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One sample; ``task`` is empty unless the series is about tasks.

    ``sampler`` is the Slurm plugin that took it. ``has_gpus`` is whether Slurm measured its GPU fields; if not, they
    are uninitialised memory.
    """

    series: ProfileSeries
    task: str = ""
    time_seconds: int = 0
    sampler: str = ""
    has_gpus: bool = False
    fields: Mapping[str, SampledField] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileEvent:
    """One event of a step.

    ``start_seconds`` distinguishes two runs of the same step: a requeued job keeps its id. Events are numbered from 1;
    ``lost`` of the previous ones could not be sent. ``task`` is the one that ended, if Slurm knows it.
    """

    kind: EventKind
    key: StepKey
    uid: int
    start_seconds: int
    number: int
    lost: int
    sample: Sample | None = None
    task: str = ""


Measured = Mapping[tuple[str, str], float]
"""Numbers in base units, by quantity and by task or sensor (else empty)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledStep:
    """The current numbers of a step; ``samples`` has the last sample of each series and task."""

    key: StepKey
    has_ended: bool = False
    last_sample_seconds: int | None = None
    measured: Measured = field(default_factory=dict)
    samples: Mapping[tuple[ProfileSeries, str], Sample] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """All profiled steps of this node, and what was received since the start; empty if profiling is off.

    ``push_errors`` counts failed pushes and deletions; None if nothing is pushed.
    """

    steps: tuple[ProfiledStep, ...] = ()
    events: Mapping[str, int] = field(default_factory=dict)
    rejected: Mapping[str, int] = field(default_factory=dict)
    lost: int | None = None
    push_errors: int | None = None


MAX_DATAGRAM_BYTES = 4096

_FORMAT = "slurm-profile/1"
_WORD = re.compile(r"([A-Za-z0-9._/+,@%:-]+)=([A-Za-z0-9._/+,@%:-]*)\Z")
_UNSIGNED = re.compile(r"[0-9]{1,20}\Z", re.ASCII)
_DOUBLE = re.compile(r"-?(?:[0-9]{1,400}(?:\.[0-9]{1,400})?(?:e[+-]?[0-9]{1,4})?|inf|nan)\Z", re.ASCII)
STEP_FORM = re.compile(r"(?:[0-9]{1,10}|batch|extern|interactive|unknown)(?:\+[0-9]{1,10})?\Z", re.ASCII)
NODE_FORM = re.compile(r"[A-Za-z0-9._-]{1,255}\Z")
TASK_FORM = re.compile(r"[0-9]{1,10}\Z", re.ASCII)
_KINDS = {kind.value: kind for kind in EventKind}
_SERIES = {series.value: series for series in ProfileSeries}


def parse_event(datagram: bytes) -> ProfileEvent:
    """Parse one datagram; raise MalformedAnswer if any part of it is wrong."""
    if len(datagram) > MAX_DATAGRAM_BYTES:
        raise MalformedAnswer("the datagram is too long")
    try:
        form, *words = datagram.decode("ascii").split("\t")
    except UnicodeDecodeError:
        raise MalformedAnswer("the datagram is not ASCII") from None
    if form != _FORMAT:
        raise MalformedAnswer(f"the datagram is not {_FORMAT}")
    values = _parse_words(words)
    kind = _KINDS.get(values.get("event", ""))
    if kind is None:
        raise MalformedAnswer("the kind of event is unknown")
    return ProfileEvent(
        kind=kind,
        key=StepKey(_unsigned(values, "job"), _text(values, "step", STEP_FORM), _text(values, "node", NODE_FORM)),
        uid=_unsigned(values, "uid"),
        start_seconds=_unsigned(values, "start"),
        number=_unsigned(values, "seq"),
        lost=_unsigned(values, "lost"),
        sample=_parse_sample(values) if kind is EventKind.SAMPLE else None,
        task=_text(values, "task", TASK_FORM) if kind is EventKind.TASK_END and "task" in values else "",
    )


def _parse_words(words: list[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for word in words:
        match = _WORD.match(word)
        if match is None or match[1] in values:
            raise MalformedAnswer("a word of the datagram is not of the form key=value, or comes twice")
        values[match[1]] = match[2]
    return values


def _parse_sample(values: Mapping[str, str]) -> Sample:
    series = _SERIES.get(values.get("series", ""))
    if series is None:
        raise MalformedAnswer("the series of a sample is unknown")
    return Sample(
        series=series,
        task=_text(values, "task", TASK_FORM) if series is ProfileSeries.TASKS else "",
        time_seconds=_unsigned(values, "time"),
        sampler=_decode(values.get("from", "")),
        has_gpus=values.get("gpu") == "1",
        fields={_decode(key[:-2]): _parse_field(key, values[key]) for key in values if key[-2:] in (":u", ":d")},
    )


def _parse_field(key: str, text: str) -> SampledField:
    value, _, total = text.partition(":")
    form = _UNSIGNED if key.endswith(":u") else _DOUBLE
    if not form.match(value) or not form.match(total):
        raise MalformedAnswer("a field of a sample is not a number and its sum")
    return SampledField(float(value), float(total))


def _unsigned(values: Mapping[str, str], key: str) -> int:
    text = values.get(key, "")
    if not _UNSIGNED.match(text):
        raise MalformedAnswer(f"{key} is not a whole number")
    return int(text)


def _text(values: Mapping[str, str], key: str, form: re.Pattern[str]) -> str:
    text = _decode(values.get(key, ""))
    if not form.match(text):
        raise MalformedAnswer(f"{key} is missing or not valid")
    return text


def _decode(text: str) -> str:
    return unquote_to_bytes(text).decode("utf-8", "replace")
