# SPDX-License-Identifier: Apache-2.0
"""Run slurmscope's command line in this process: as users do, without the price of a new one."""

from __future__ import annotations

import contextlib
import io
import logging
import subprocess
from collections.abc import Iterator

from slurmscope.cli import main


def run_here(*arguments: str, encoding: str = "utf-8") -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and return what ``subprocess.run`` would; ``encoding`` is that of its reader."""
    output, complaints = _stream(encoding), _stream(encoding)
    with _own_log_handlers(), contextlib.redirect_stdout(output), contextlib.redirect_stderr(complaints):
        try:
            main(arguments)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return subprocess.CompletedProcess(arguments, code, _text(output, encoding), _text(complaints, encoding))


@contextlib.contextmanager
def _own_log_handlers() -> Iterator[None]:
    """Remove the handlers that a command adds: they write to a stream which ends with it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        for handler in [handler for handler in root.handlers if handler not in handlers]:
            root.removeHandler(handler)
        root.setLevel(level)


def _stream(encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)


def _text(stream: io.TextIOWrapper, encoding: str) -> str:
    stream.flush()
    content = stream.detach()
    assert isinstance(content, io.BytesIO)
    return content.getvalue().decode(encoding)
