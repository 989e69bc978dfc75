# SPDX-License-Identifier: Apache-2.0
"""Render one PDF or PNG as a process of its own: from standard input to standard output."""

from __future__ import annotations

import os
import pickle
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from slurmscope.core.errors import OutputError
from slurmscope.jobs.render.pdf import render_chart_png, render_pdf, render_svg_png
from slurmscope.jobs.render.svg.charts import render_use_pie_svg

PDF, CHART, PIE = "pdf", "chart", "pie"
CPU_SECONDS = 60
NICENESS = 10
"""Pages go first."""

_RENDERERS: dict[str, Callable[[Any], bytes]] = {
    PDF: render_pdf,
    CHART: render_chart_png,
    PIE: lambda report: render_svg_png(render_use_pie_svg(report)),
}


def main() -> int:
    """Render what the portal sent."""
    _limit_self()
    kind, value = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by the portal that started this process
    try:
        document = _RENDERERS[kind](value)
    except OutputError as error:
        sys.stderr.write(str(error))
        return 1
    sys.stdout.buffer.write(document)
    return 0


def _limit_self() -> None:
    """Leave the CPU to pages; the example unit of systemd permits neither of the two calls."""
    with suppress(OSError):
        os.nice(NICENESS)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))


if __name__ == "__main__":
    sys.exit(main())
