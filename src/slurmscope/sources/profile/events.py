# SPDX-License-Identifier: Apache-2.0
"""Parse the datagrams of the profiling plugin.

::

    slurm-profile/1<TAB>event=sample<TAB>job=12<TAB>step=0<TAB>node=n1<TAB>...<TAB>CPUTime:d=1.98:11.79

The format is described at the head of ``plugin/acct_gather_profile_prometheus.c``. Unknown keys are ignored, so that a
newer plugin may add some.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote_to_bytes

from slurmscope.errors import MalformedAnswer
from slurmscope.model.profile import EventKind, ProfileEvent, ProfileSeries, Sample, SampledField, StepKey

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
