# SPDX-License-Identifier: Apache-2.0
"""Write the metrics page to a file, or push it to a Pushgateway, at regular intervals."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from slurmscope.log import fields
from slurmscope.outputs.push import PushGateway
from slurmscope.outputs.settings import OutputSettings
from slurmscope.outputs.textfile import remove_stale_parts, write_textfile
from slurmscope.services.runtime.periodic import attempt, run_periodically

logger = logging.getLogger(__name__)

FINAL_DELETE_SECONDS = 3.0

MakePage = Callable[[], Iterable[bytes]]
"""Return a fresh page in text format, in blocks."""


@contextmanager
def open_textfile_loop(make_page: MakePage, path: Path, interval_seconds: float) -> Iterator[None]:
    """Keep a file for node_exporter up to date; the last page stays when the exporter ends."""
    remove_stale_parts(path)
    logger.info("writing metrics to a file", extra=fields(path=str(path), interval=interval_seconds))
    with run_periodically("textfile", interval_seconds, lambda: write_textfile(path, make_page())):
        yield


@contextmanager
def open_push_loop(make_page: MakePage, is_idle: Callable[[], bool], settings: OutputSettings) -> Iterator[None]:
    """Keep one group of a Pushgateway up to date; delete it while ``is_idle`` returns True, and at the end."""
    stopping = threading.Event()
    grouping = dict(item.split("=", 1) for item in settings.push_grouping) or {"instance": socket.gethostname()}
    gateway = PushGateway(url=settings.push, job=settings.push_job, grouping=grouping, sleep=stopping.wait)
    has_cleaned_up = False

    def push() -> None:
        nonlocal has_cleaned_up
        if not has_cleaned_up:
            gateway.delete_left_over()
            has_cleaned_up = True
        blocks = list(make_page())
        if is_idle():
            gateway.delete()
        else:
            gateway.put(blocks)

    logger.info("pushing metrics", extra=fields(group=str(grouping), interval=settings.interval))
    with run_periodically("push", settings.interval, push, stopping=stopping):
        yield
    final = replace(gateway, timeout_seconds=1.0, deadline_seconds=FINAL_DELETE_SECONDS, sleep=time.sleep)
    attempt("push", final.delete)
