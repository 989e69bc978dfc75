# SPDX-License-Identifier: Apache-2.0
"""Render a job report as JSON: the fields of the model by name, and values derived from them.

::

    {"version": 1, "made_seconds": 1790007300, "has_warning": true, "worst": "critical",
     "summary": {"record": {"job_id": 4711, "shown_id": "4711", ...}, "cpu": {"time": {"ratio": 0.5, ...}}, ...},
     "failure": null, "findings": [...], "charts": [...], "missing": [...]}

A key is never left out; what was not measured is null. Keys are added, never renamed, within one ``version``.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping

from slurmscope.jobs.failure import explain_failure
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.render.resubmission import ResubmissionText
from slurmscope.jobs.report import JobReport, OptionChange, Resubmission
from slurmscope.jobs.summary import Coverage, EnergySummary, GpuSummary, HeldGpu, MemorySummary, OtherGpus, UsedShare
from slurmscope.jobs.traced_run import RunReport

_DERIVED: Mapping[type, tuple[str, ...]] = {
    JobReport: ("worst", "has_warning"),
    JobRecord: ("shown_id", "gpus", "is_running", "has_ended"),
    UsedShare: ("ratio",),
    MemorySummary: ("best_peak_bytes", "ratio"),
    GpuSummary: ("memory_ratio", "is_shared"),
    HeldGpu: ("memory_ratio",),
    OtherGpus: ("memory_ratio",),
    EnergySummary: ("total_joules",),
    Coverage: ("is_good",),
    OptionChange: ("line",),
    Resubmission: ("lines", "diff"),
    ResubmissionText: ("sentences",),
}
"""Properties to include, so that readers of JSON need not compute them."""


def render_json(report: JobReport) -> bytes:
    """Return the report as one JSON object in ASCII, without any HTML markup."""
    return encode_json({**_mapping(as_plain(report)), "failure": as_plain(explain_failure(report))})


def render_run_json(made: RunReport) -> bytes:
    """Return the report of a command: that of a job with one more key, ``run``."""
    return encode_json({"run": as_plain(made.run), **_mapping(as_plain(made.report))})


def encode_json(plain: object) -> bytes:
    """Encode dicts, lists, texts and numbers in ASCII, without any HTML markup."""
    text = json.dumps(plain, allow_nan=False, separators=(",", ":"))
    # Only strings can hold these: parsed as HTML, the document has no tags.
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").encode("ascii")


def _mapping(plain: object) -> dict[str, object]:
    return plain if isinstance(plain, dict) else {}


def as_plain(value: object) -> object:
    """Convert a value to dicts, lists, texts and numbers; a number that is not finite becomes null."""
    if isinstance(value, str):
        # Lone surrogates, as from badly encoded names, cannot be encoded as UTF-8.
        return str(value) if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if dataclasses.is_dataclass(value):
        names = (*(field.name for field in dataclasses.fields(value)), *_DERIVED.get(type(value), ()))
        return {name: as_plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): as_plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [as_plain(inner) for inner in value]
    return value
