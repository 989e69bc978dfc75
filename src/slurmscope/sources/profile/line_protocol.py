# SPDX-License-Identifier: Apache-2.0
"""Parse what Slurm's own plugin ``acct_gather_profile/influxdb`` writes, in the line protocol of InfluxDB.

::

    CPUTime,job=12,step=-5,task=0,host=n1 value=1.98 1700000012              22.05 to 25.11
    CPUTime,host=n1,job=12,step=4294967291,task=0 value=1.98 1700000012      26.05
    task,host=n1,job=12,step=batch,task=0 CPUTime=1.98,RSS=20480i 1700000012 26.05 with grouped_fields

Up to 25.11, the task of node-wide samples is the name of their series; from 26.05 on they have none. Fields that Slurm
adds up are differences to the previous sample. Slurm escapes nothing, so a line with an escape is malformed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from slurmscope.errors import MalformedAnswer
from slurmscope.model.profile import ProfileSeries, Sample, SampledField, StepKey
from slurmscope.sources.profile.events import NODE_FORM, STEP_FORM, TASK_FORM

MAX_FIELDS = 256

_NAME = re.compile(r"[A-Za-z0-9_.+@:/-]{1,100}\Z")
_TAG = re.compile(r"[^\s\\,=\"]{1,255}\Z")
_NUMBER = re.compile(
    r"(?:[0-9]{1,20}i?|-?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:e[+-]?[0-9]{1,4})?|-?inf|-?nan)\Z", re.ASCII
)
_TIME = re.compile(r"[0-9]{1,20}\Z", re.ASCII)
_ID = re.compile(r"-?[0-9]{1,10}\Z", re.ASCII)
_ID_BITS = 0xFFFFFFFF
_STEPS = {0xFFFFFFFA: "interactive", 0xFFFFFFFB: "batch", 0xFFFFFFFC: "extern", 0xFFFFFFFD: "unknown"}
_PENDING_STEP = "TBD"
_SERIES_OF_TASK = {series.value: series for series in ProfileSeries if series is not ProfileSeries.TASKS}
_SERIES_OF_GROUP = {"task": ProfileSeries.TASKS} | {series.value.lower(): series for series in _SERIES_OF_TASK.values()}
_SERIES_OF_FIELD = dict.fromkeys(("Reads", "ReadMB", "Writes", "WriteMB"), ProfileSeries.FILESYSTEM) | dict.fromkeys(
    ("PacketsIn", "PacketsOut", "InMB", "OutMB"), ProfileSeries.NETWORK
)
_POWER_FIELD = "Power"


@dataclass(frozen=True, slots=True)
class WrittenSample:
    """Hold a sample and the step it belongs to; the totals of its fields are their values."""

    key: StepKey
    sample: Sample


def parse_write(body: bytes) -> tuple[tuple[WrittenSample, ...], int]:
    """Parse a body; return its samples, and how many of its lines are malformed."""
    samples: list[WrittenSample] = []
    malformed = 0
    for line in body.split(b"\n"):
        if not line:
            continue
        try:
            written = _parse_line(line)
        except MalformedAnswer:
            malformed += 1
            continue
        if samples and _is_continued(samples[-1], written):
            fields = {**samples[-1].sample.fields, **written.sample.fields}
            samples[-1] = replace(samples[-1], sample=replace(written.sample, fields=fields))
        else:
            samples.append(written)
    return tuple(samples), malformed


def _is_continued(last: WrittenSample, written: WrittenSample) -> bool:
    """Return whether a line has a further field of the same sample; a repeated field begins the next one."""
    old, new = last.sample, written.sample
    return (
        last.key == written.key
        and (old.series, old.task, old.time_seconds) == (new.series, new.task, new.time_seconds)
        and not old.fields.keys() & new.fields.keys()
    )


def _parse_line(line: bytes) -> WrittenSample:
    try:
        series_key, fields_text, time_text = line.decode("ascii").split(" ")
    except ValueError:
        raise MalformedAnswer("the line has not three parts, or is not ASCII") from None
    measurement, *tag_words = series_key.split(",")
    tags = dict(_parse_tags(tag_words))
    fields = _parse_fields(fields_text)
    if not _NAME.match(measurement) or len(tags) != len(tag_words) or not _TIME.match(time_text):
        raise MalformedAnswer("the measurement, a tag or the time is wrong")
    if fields.keys() == {"value"}:
        series = _series_of(measurement, tags.get("task"))
        fields = {measurement: fields["value"]}
    else:
        series = _known(_SERIES_OF_GROUP, measurement)
    sample = Sample(
        series=series,
        task=_checked(TASK_FORM, tags.get("task", "")) if series is ProfileSeries.TASKS else "",
        time_seconds=int(time_text),
        fields=fields,
    )
    key = StepKey(_parse_id(tags.get("job", "")), _parse_step(tags), _checked(NODE_FORM, tags.get("host", "")))
    return WrittenSample(key, sample)


def _parse_tags(words: list[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        name, _, value = word.partition("=")
        yield _checked(_NAME, name), _checked(_TAG, value)


def _parse_fields(text: str) -> dict[str, SampledField]:
    words = text.split(",")
    fields: dict[str, SampledField] = {}
    for word in words:
        name, _, number = word.partition("=")
        value = float(_checked(_NUMBER, number).removesuffix("i"))
        fields[_checked(_NAME, name)] = SampledField(value, value)
    if len(fields) != len(words) or len(fields) > MAX_FIELDS:
        raise MalformedAnswer("a field comes twice, or there are too many")
    return fields


def _series_of(field: str, task: str | None) -> ProfileSeries:
    """Return the series of a field that has a line of its own."""
    if task is not None:
        return _SERIES_OF_TASK.get(task, ProfileSeries.TASKS)
    return ProfileSeries.ENERGY if field.endswith(_POWER_FIELD) else _known(_SERIES_OF_FIELD, field)


def _parse_step(tags: Mapping[str, str]) -> str:
    """Return the name of a step as the other plugin sends it."""
    text = tags.get("step", "")
    if not _ID.match(text):
        return "unknown" if text == _PENDING_STEP else _checked(STEP_FORM, text)
    number = _parse_id(text)
    return _STEPS.get(number, str(number))


def _parse_id(text: str) -> int:
    """Return a number of 32 bits; Slurm prints large ones as if they had a sign."""
    number = int(_checked(_ID, text))
    if not -(2**31) <= number <= _ID_BITS:
        raise MalformedAnswer("a number has more than 32 bits")
    return number & _ID_BITS


def _known(series: Mapping[str, ProfileSeries], name: str) -> ProfileSeries:
    if name not in series:
        raise MalformedAnswer("the measurement is not known")
    return series[name]


def _checked(form: re.Pattern[str], text: str) -> str:
    if not form.match(text):
        raise MalformedAnswer("a part of the line is missing or not valid")
    return text
