# SPDX-License-Identifier: Apache-2.0
"""Round the numbers of lists, tables and API answers, all by the same function."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from slurmscope.figures import round_number

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def round_fields(item: T) -> T:
    """Return a dataclass with its floating-point numbers rounded."""
    rounded = {
        name: round_number(value)
        for name in _float_fields(type(item))
        if isinstance(value := getattr(item, name), float)
    }
    return dataclasses.replace(item, **rounded)


@cache
def _float_fields(kind: type[DataclassInstance]) -> tuple[str, ...]:
    """Return the fields that may hold such a number, by their annotation."""
    return tuple(field.name for field in dataclasses.fields(kind) if "float" in str(field.type))
