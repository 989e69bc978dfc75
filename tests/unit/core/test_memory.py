# SPDX-License-Identifier: Apache-2.0
"""A long-lived process keeps its memory in one heap and its collector quiet."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own: what is settled stays so.
SETTLE = """
import gc
from slurmscope.core.process import settle_memory
settle_memory()
print(gc.isenabled(), gc.get_freeze_count() > 1000, gc.get_threshold()[0] > 10_000)
"""


def test_settled_process_collects_garbage_rarely_and_never_scans_its_imports() -> None:
    done = subprocess.run([sys.executable, "-c", SETTLE], capture_output=True, text=True, timeout=60, check=False)

    assert ("True True True\n", "") == (done.stdout, done.stderr)
