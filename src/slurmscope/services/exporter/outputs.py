# SPDX-License-Identifier: Apache-2.0
"""Write or push the page again and again until the end."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from slurmscope.log import fields
from slurmscope.metrics.write import Format
from slurmscope.outputs.push import PushGateway
from slurmscope.outputs.settings import OutputSettings
from slurmscope.outputs.textfile import remove_stale_parts, write_textfile
from slurmscope.services.runtime.periodic import attempt, repeating

logger = logging.getLogger(__name__)

LAST_WORD_SECONDS = 3.0


class Pages(Protocol):
    """Give a fresh page whenever one is wanted."""

    def page(self, format: Format) -> Iterable[bytes]:
        """Return the page in blocks."""
        ...

    def is_idle(self) -> bool:
        """Tell whether the page made last holds nothing worth a push."""
        ...


@contextmanager
def open_textfile_loop(pages: Pages, path: Path, interval_seconds: float) -> Iterator[None]:
    """Keep a file for node_exporter up to date; what was written last stays at the end."""
    remove_stale_parts(path)
    logger.info("writing a file", extra=fields(path=str(path), interval=interval_seconds))
    with repeating("textfile", interval_seconds, lambda: write_textfile(path, pages.page(Format.TEXT))):
        yield


@contextmanager
def open_push_loop(pages: Pages, settings: OutputSettings) -> Iterator[None]:
    """Keep one group of a Pushgateway up to date; remove it when there is nothing to tell, and at the end."""
    stopping = threading.Event()
    grouping = dict(item.split("=", 1) for item in settings.push_grouping) or {"instance": socket.gethostname()}
    gateway = PushGateway(url=settings.push, job=settings.push_job, grouping=grouping, sleep=stopping.wait)
    left_over = [gateway.delete_left_over]

    def push() -> None:
        while left_over:
            left_over[0]()
            left_over.pop()
        blocks = list(pages.page(Format.TEXT))
        if pages.is_idle():
            gateway.delete()
        else:
            gateway.put(blocks)

    logger.info("pushing", extra=fields(group=str(grouping), interval=settings.interval))
    with repeating("push", settings.interval, push, stopping=stopping):
        yield
    attempt("push", replace(gateway, timeout_seconds=1.0, deadline_seconds=LAST_WORD_SECONDS, sleep=time.sleep).delete)
