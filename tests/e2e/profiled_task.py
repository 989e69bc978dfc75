# SPDX-License-Identifier: Apache-2.0
"""Use CPU time and memory that are known, report both, and wait; a step runs ``python3 profiled_task.py FOLDER``.

The report is named by step and task. The task ends when the file ``end`` appears in the folder.
"""

import json
import os
import sys
import time
from pathlib import Path

MIB = 1024 * 1024
BUSY_SECONDS = 1.0


def main(folder: Path) -> None:
    """Use more of everything the higher the task and the step are."""
    step, task = int(os.environ["SLURM_STEP_ID"]), int(os.environ["SLURM_PROCID"])
    number = 1 + 2 * step + task
    memory = bytearray(number * 20 * MIB)
    memory[::4096] = b"x" * len(range(0, len(memory), 4096))
    while time.process_time() < number * BUSY_SECONDS:
        pass
    write(folder / f"{step}.{task}.json")
    while not (folder / "end").exists():
        time.sleep(0.2)
    write(folder / f"{step}.{task}.final.json")


def write(file: Path) -> None:
    """Report what the kernel says about this process."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    anonymous, resident = (int(status[key].split()[0]) * 1024 for key in ("RssAnon", "VmRSS"))
    report = {"cpu": time.process_time(), "anonymous": anonymous, "resident": resident}
    part = file.with_suffix(".part")
    part.write_text(json.dumps(report), encoding="utf-8")
    part.rename(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
