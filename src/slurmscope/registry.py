# SPDX-License-Identifier: Apache-2.0
"""Collect the objects that the modules of a package export under a fixed name."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


def gather(package: ModuleType, name: str, type_: type[T]) -> tuple[T, ...]:
    """Import every module of ``package`` and return what each exports as ``name``, in module order.

    A module without that name is skipped; an object of another type raises TypeError.
    """
    found = []
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        exported = getattr(importlib.import_module(module.name), name, None)
        if exported is None:
            continue
        if not isinstance(exported, type_):
            raise TypeError(f"{module.name}.{name} is not a {type_.__name__}")
        found.append(exported)
    return tuple(found)
