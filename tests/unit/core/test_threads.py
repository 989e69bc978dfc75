# SPDX-License-Identifier: Apache-2.0
"""A short request does not wait long for busy threads."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own: the turns of all its threads change.
SHORTEN = """
import sys
from slurmscope.core.process import shorten_thread_turns
before = sys.getswitchinterval()
shorten_thread_turns()
print(sys.getswitchinterval() <= before / 10)
"""


def test_threads_take_turns_more_often() -> None:
    done = subprocess.run([sys.executable, "-c", SHORTEN], capture_output=True, text=True, timeout=60, check=False)

    assert ("True\n", "") == (done.stdout, done.stderr)
