# SPDX-License-Identifier: Apache-2.0
"""Query the RAS service of a real NCCL, while a program works, is stopped, and is gone.

As any user, on a machine with an NVIDIA GPU: ``python3 -m bench.nccl_ras [FOLDER]`` with a Python that has PyTorch (its
NCCL 2.28 or later) and click; it takes a minute. The status is written to the folder, where one is given.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from bench.measure import judge
from slurmscope.node.job_use import JobKey, JobUse
from slurmscope.node.nccl import ras
from slurmscope.node.nccl.collector import RasState

PATIENCE_SECONDS = 60.0
KEY = JobKey(4711)
PROGRAM = """
import os, sys, time
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1", NCCL_RAS_ENABLE="1")
import torch, torch.distributed as dist
torch.cuda.set_device(0)
dist.init_process_group("nccl")
print("NCCL", *torch.cuda.nccl.version(), flush=True)
tensor = torch.ones(1 << 20, device="cuda")
while True:
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    print("step", flush=True)
    time.sleep(0.05)
"""


def main(arguments: list[str]) -> int:
    """Print what the client made of the service, and return 1 when it is wrong."""
    if importlib.util.find_spec("torch") is None:
        print("nccl_ras: nothing measured, this Python has no PyTorch")
        return 0
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            print(program.stdout.readline().strip())
            program.stdout.readline()
            job = JobUse(key=KEY, uid=os.getuid(), pids=frozenset((program.pid,)))
            if arguments:
                (Path(arguments[0]) / "nccl-ras.json").write_bytes(fetch())
            verdicts = [_judge_working(job, program.pid), _judge_other_user(job), _judge_stopped(job, program)]
        finally:
            program.kill()
    verdicts.append(_judge_gone(job))
    return 0 if all(verdicts) else 1


def fetch() -> bytes:
    """Return the status as the service sends it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with closing(ras.RasReader(list)._connect(deadline)) as connection:
        return ras.exchange(connection, {os.getuid()}, deadline)[1]


def query(job: JobUse, timeout_seconds: float = PATIENCE_SECONDS) -> RasState:
    """Query the service once, and return what is known then."""
    reader = ras.RasReader(lambda: [job], timeout_seconds=timeout_seconds)
    reader.read()
    reader.join()
    return reader.read()


def _judge_working(job: JobUse, pid: int) -> bool:
    first = _timed(lambda: query(job))
    time.sleep(1.0)
    second = query(job)
    ranks = [(rank.number, rank.pid, rank.has_failed) for found in second.jobs.get(KEY, ()) for rank in found.ranks]
    missing = [found.missing for found in second.jobs.get(KEY, ())]
    print(f"communicators: {second.jobs.get(KEY)}")
    print(f"operations: {first.operations().get(KEY)}, a second later {second.operations().get(KEY)}")
    is_right = second.queries == {"ok": 1} and set(ranks) == {(0, pid, False)} and set(missing) == {0}
    return judge("a program that works", f"{second.queries}", "its rank, PID, no error, none missing", is_met=is_right)


def _judge_other_user(job: JobUse) -> bool:
    other = JobUse(key=job.key, uid=(job.uid or 0) + 1, pids=job.pids)
    state = query(other)
    is_right = state.queries == {"other_user": 1} and not state.jobs
    return judge("a service of another user", f"{state.queries}", "other_user, nothing known", is_met=is_right)


def _judge_stopped(job: JobUse, program: subprocess.Popen[str]) -> bool:
    program.send_signal(signal.SIGSTOP)
    state = _timed(lambda: query(job, timeout_seconds=5.0))
    program.send_signal(signal.SIGCONT)
    is_right = state.queries == {"timeout": 1} and not state.jobs
    return judge("a stopped program", f"{state.queries}", "timeout, nothing known", is_met=is_right)


def _judge_gone(job: JobUse) -> bool:
    state = query(job)
    is_right = state.queries == {"no_service": 1}
    return judge("a program that has ended", f"{state.queries}", "no_service", is_met=is_right)


def _timed(work: Callable[[], RasState]) -> RasState:
    began = time.monotonic()
    state = work()
    print(f"query: {time.monotonic() - began:.2f} s, {state.queries}")
    return state


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
