# SPDX-License-Identifier: Apache-2.0
"""Run small programs step by step, as the processes of a job."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys

import psutil

# Reads commands of one word from its input; each is answered when it is done.
WRITER = """
import os, signal, sys, time

def write(amount):
    with open(os.devnull, "wb", buffering=0) as sink:
        for _ in range(amount // 1_000_000):
            sink.write(bytes(1_000_000))

def child(work):
    pid = os.fork()
    if pid == 0:
        work()
        print("ready", flush=True)
        sys.stdin.readline()
        os._exit(0)
    return pid

print("started", flush=True)
"""


class Script:
    """A program under test whose steps are taken one by one."""

    def __init__(self, body: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER + body],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # ours is a file that pytest has deleted already
            text=True,
        )
        self.expect("started")

    @property
    def pid(self) -> int:
        return self.process.pid

    def expect(self, word: str) -> None:
        assert self.process.stdout
        assert word == self.process.stdout.readline().strip()

    def go_on(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def pids(self) -> set[int]:
        """List as cgroups do: the program and all below it, zombies left out."""
        everybody = [psutil.Process(self.pid), *psutil.Process(self.pid).children(recursive=True)]
        found = set()
        for process in everybody:
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.add(process.pid)
        return found

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGSTOP)  # it may start others all the time
            for process in psutil.Process(self.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self.process.kill()
        self.process.communicate(timeout=30)
