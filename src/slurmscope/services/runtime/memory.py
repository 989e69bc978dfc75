# SPDX-License-Identifier: Apache-2.0
"""Tune memory and garbage collection of a long-running process."""

from __future__ import annotations

import ctypes
import gc

_M_ARENA_MAX = -8  # from malloc.h of the GNU C library
READING_OBJECTS = 50_000
PAGE_OBJECTS = 5_000
"""Every page leaves reference cycles: collecting 50,000 of them blocks all other requests for a tenth of a second."""


def settle_memory(young_objects: int = READING_OBJECTS) -> None:
    """Tune memory for large readings; call it once, after all imports and before other threads start.

    The C library gives each thread its own heap, and each heap stays as large as the largest reading it ever held:
    with 100,000 jobs 230 MB in total, 100 MB with one heap for all threads.

    A reading makes tens of thousands of objects and no cycles. With Python's default threshold of 700 the garbage
    collector scans them again and again, a sixth of the CPU time of a page; ``young_objects`` is used instead. Objects
    that exist now are never scanned again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(young_objects, 20, 100)
    library = ctypes.CDLL(None)
    # Other C libraries do not have mallopt, and do not need it.
    if hasattr(library, "mallopt"):
        library.mallopt(_M_ARENA_MAX, 1)
