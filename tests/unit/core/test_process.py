# SPDX-License-Identifier: Apache-2.0
"""No signal is lost, whenever it comes."""

from __future__ import annotations

import os
import signal
import threading
import time

from slurmscope.core.process import Signals, run_until_interrupted


def test_every_signal_is_a_wish_in_its_order() -> None:
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)

        assert [True, True, False] == [signals.wait_for_reload() for _ in range(3)]


def test_signal_at_any_moment_ends_the_wait() -> None:
    """Hundreds of times, because the moment right before the wait is short."""
    with Signals() as signals:
        for turn in range(300):
            timer = threading.Timer(0.0002, os.kill, (os.getpid(), signal.SIGHUP))
            timer.start()
            if turn % 2:
                time.sleep(0.0001)
            assert signals.wait_for_reload()
            timer.join()


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Signals():
        assert before != signal.getsignal(signal.SIGTERM)

    assert before == signal.getsignal(signal.SIGTERM)


def test_interrupt_ends_a_server_that_a_shell_started_in_the_background() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:

        def serve() -> int:
            signal.raise_signal(signal.SIGINT)
            return 3

        assert 0 == run_until_interrupted(serve)
        assert signal.SIG_IGN == signal.getsignal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
