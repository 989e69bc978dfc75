# SPDX-License-Identifier: Apache-2.0
"""Keep a process that lives for months small, and its garbage collector quiet."""

from __future__ import annotations

import ctypes
import gc

_M_ARENA_MAX = -8  # from malloc.h of the GNU C library
READING_OBJECTS = 50_000
PAGE_OBJECTS = 5_000
"""Every page leaves cycles behind: 50,000 of them take a tenth of a second, in which nobody else gets an answer."""


def settle_memory(young_objects: int = READING_OBJECTS) -> None:
    """Tune memory for large readings; call it once, when all is imported and no other thread runs.

    The C library gives each thread a heap of its own, and each heap keeps room for the largest answer it ever held:
    with 100,000 jobs 230 MB in all, 100 MB with one heap for all threads.

    A reading makes tens of thousands of objects and no cycles. With Python's usual limit of 700 the collector looks at
    them again and again, a sixth of the CPU of a page; ``young_objects`` is the limit instead. What was imported it
    need not look at ever.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(young_objects, 20, 100)
    library = ctypes.CDLL(None)
    # Another C library has no such knob, and does not need it.
    if hasattr(library, "mallopt"):
        library.mallopt(_M_ARENA_MAX, 1)
