# SPDX-License-Identifier: Apache-2.0
"""Give real servers of time series a past of jobs whose numbers can be worked out by hand."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lab.prometheus import Server, create_blocks, run_prometheus, run_victoria_metrics

SCRAPE_SECONDS = 15
MAX_SAMPLES = 20_000


@dataclass(slots=True)
class History:
    """Gather samples; ``samples`` is by metric and labels, a list of times and values each."""

    samples: dict[str, dict[str, list[tuple[float, float]]]] = field(default_factory=dict)

    def add(self, metric: str, labels: Mapping[str, str], points: Mapping[float, float]) -> None:
        """Add one series."""
        written = ",".join(f'{name}="{value}"' for name, value in labels.items())
        self.samples.setdefault(metric, {}).setdefault(written, []).extend(points.items())

    def openmetrics(self) -> str:
        """Write everything for promtool."""
        lines = []
        for metric, series in self.samples.items():
            kind = "counter" if metric.endswith("_total") else "gauge"
            lines.append(f"# TYPE {metric.removesuffix('_total')} {kind}")
            lines += self._lines(metric, series, 1)
        return "\n".join([*lines, "# EOF", ""])

    def text(self) -> str:
        """Write everything for VictoriaMetrics, whose times are in milliseconds."""
        lines = [line for metric, series in self.samples.items() for line in self._lines(metric, series, 1000)]
        return "\n".join([*lines, ""])

    def _lines(self, metric: str, series: Mapping[str, list[tuple[float, float]]], factor: int) -> list[str]:
        return [
            f"{metric}{{{labels}}} {value} {round(time * factor)}"
            for labels, points in series.items()
            for time, value in points
        ]


@contextlib.contextmanager
def prometheus_with(history: History, folder: Path) -> Iterator[Server]:
    """Run a Prometheus with this past that loads no more than 20,000 samples for a question."""
    create_blocks(folder, history.openmetrics())
    with run_prometheus(folder, "", f"--query.max-samples={MAX_SAMPLES}") as server:
        yield server


@contextlib.contextmanager
def victoria_metrics_with(history: History, folder: Path) -> Iterator[Server]:
    """Run a VictoriaMetrics with this past."""
    with run_victoria_metrics(folder) as server:
        server.post("/api/v1/import/prometheus", history.text().encode())
        server.get("/internal/force_flush")
        yield server
