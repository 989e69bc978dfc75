# SPDX-License-Identifier: Apache-2.0
"""Evaluate PromQL with Prometheus' own tool."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.requirements import require_program


def check_query(
    folder: Path, query: str, series: Mapping[str, str], expected: Mapping[str, float], *, interval: str, at: str
) -> None:
    """Check what a query returns for these series; their values are in promtool's notation."""
    test = {
        "interval": interval,
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": query,
                "eval_time": at,
                "exp_samples": [{"labels": labels, "value": value} for labels, value in expected.items()],
            }
        ],
    }
    file = folder / "test.yml"
    file.write_text(json.dumps({"tests": [test]}), encoding="utf-8")
    argv = [require_program("promtool"), "test", "rules", str(file)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr
