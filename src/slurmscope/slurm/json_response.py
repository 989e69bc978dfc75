# SPDX-License-Identifier: Apache-2.0
"""Read the records, errors and numbers in what Slurm prints as JSON.

When the controller is down, the commands of Slurm 22.05 end with exit code 0 and an empty list: only the list of
errors in the answer means that the request was not processed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from slurmscope.core.errors import MalformedAnswer, SlurmRefused
from slurmscope.core.log import escape

_MESSAGE_LIMIT = 300

JsonType = TypeVar("JsonType")
JsonRecord = TypeVar("JsonRecord")
Record_co = TypeVar("Record_co", covariant=True)


class Problem(msgspec.Struct, frozen=True, gc=False):
    """One error that Slurm reports."""

    description: str | None = None
    error: str | None = None


class JsonAnswer(Protocol[Record_co]):
    """Describe the answer to one kind of request."""

    @property
    def records(self) -> Sequence[Record_co] | None:
        """Return the requested records; None where the answer does not have them."""

    @property
    def errors(self) -> Sequence[Problem] | None:
        """Return what went wrong."""


_NULL = msgspec.Raw(b"null")

_decode_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw] | None).decode
_decode_problem = msgspec.json.Decoder(Problem).decode


def read_records(
    answer: bytes,
    decode_answer: Callable[[bytes], JsonAnswer[JsonRecord]],
    decode_record: Callable[[bytes], JsonRecord],
    key: str,
) -> tuple[Sequence[JsonRecord], int]:
    """Return the records under a key and how many could not be parsed; an invalid one is skipped.

    Raises SlurmRefused when the answer reports an error, and MalformedAnswer when it is truncated or something else.
    """
    try:
        whole = _decode(answer, decode_answer)
    except msgspec.ValidationError:
        return _read_one_by_one(answer, decode_record, key)
    if whole.errors:
        raise SlurmRefused(f"Slurm reports: {_wording(whole.errors[0])}")
    if whole.records is None:
        raise MalformedAnswer(f"the answer of Slurm has no {key}")
    return whole.records, 0


def reported_error(answer: bytes) -> str | None:
    """Return the first error that an answer reports, whatever else it contains; None when there is none."""
    try:
        reported = _decode_parts(answer).get("errors", _NULL)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    try:
        errors = _decode(reported, _decode_list)
        return _wording(_decode(errors[0], _decode_problem)) if errors else None
    except (msgspec.ValidationError, MalformedAnswer):
        return "an error that it does not name"


def _read_one_by_one(answer: bytes, decode: Callable[[bytes], JsonRecord], key: str) -> tuple[list[JsonRecord], int]:
    if said := reported_error(answer):
        raise SlurmRefused(f"Slurm reports: {said}")
    try:
        found = _decode(_decode(answer, _decode_parts).get(key, _NULL), _decode_list)
    except msgspec.ValidationError:
        found = None
    if found is None:
        raise MalformedAnswer(f"the answer of Slurm has no list of {key}")
    records = []
    for raw in found:
        try:
            records.append(_decode(raw, decode))
        except (msgspec.ValidationError, MalformedAnswer):
            continue
    if found and not records:
        raise MalformedAnswer(f"none of {len(found)} {key} in the answer of Slurm has the fields that we know")
    return records, len(found) - len(records)


def _decode(data: bytes, decode: Callable[[bytes], JsonType]) -> JsonType:
    """Decode, even when Slurm has passed on bytes of its users that are not UTF-8."""
    try:
        try:
            return decode(data)
        except UnicodeDecodeError:
            return decode(bytes(data).decode("utf-8", "replace").encode("utf-8"))
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedAnswer(
            f"the answer of Slurm is cut or not JSON: {escape(str(error), _MESSAGE_LIMIT)}"
        ) from error


def _wording(problem: Problem) -> str:
    said = ": ".join(text for text in (problem.description, problem.error) if text)
    return escape(said or "an error that it does not name", _MESSAGE_LIMIT)


NO_VALUE = 0xFFFFFFFE
"""Where Slurm keeps 32 bits, this means "not set" and the next number "without a limit"."""


class OptionalJsonNumber(msgspec.Struct, frozen=True, gc=False):
    """A number that may be not set, or without a limit."""

    set: bool | None = True
    infinite: bool | None = False
    number: int | float | None = None


JsonNumber = int | float | str | OptionalJsonNumber | None
"""A text, such as ``"Infinity"``, replaces a number when slurmrestd is configured to write complex values."""


def whole(value: JsonNumber) -> int | None:
    """Return a whole number of 0 or more; None for one that is not set, without a limit or not a number."""
    if isinstance(value, OptionalJsonNumber):
        value = value.number if value.set and not value.infinite else None
    if isinstance(value, float) and math.isfinite(value):
        value = int(value)
    if isinstance(value, int) and 0 <= value < NO_VALUE:
        return value
    return None
