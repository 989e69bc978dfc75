# SPDX-License-Identifier: Apache-2.0
"""A file system that hangs hangs nobody who only reads the links of the kernel to it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

READ = """
from pathlib import Path
from slurmscope.node.procfs.job_processes import JobProcesses
from slurmscope.node.procfs.reader import ProcessReader
use = JobProcesses(ProcessReader(Path("/proc"))).read([{pid}])
print(use.distinct_files)
"""


def test_path_of_an_open_file_is_only_read_from_its_link(tmp_path: Path) -> None:
    held, log = tmp_path / "held-by-the-job", tmp_path / "calls"
    with held.open("w"):
        argv = ["strace", "-f", "-s", "4096", "-e", "trace=%file", "-o", str(log)]
        argv += [sys.executable, "-c", READ.format(pid=os.getpid())]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)

    assert (0, "") == (done.returncode, done.stderr)
    assert int(done.stdout) >= 1
    named = [line for line in log.read_text("utf-8", "replace").splitlines() if held.name in line]
    assert named
    assert [] == [line for line in named if "readlink" not in line.partition("(")[0]]
