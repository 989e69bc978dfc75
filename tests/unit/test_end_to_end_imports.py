# SPDX-License-Identifier: Apache-2.0
"""End-to-end tests run the exporters; they do not put parsers and collectors together themselves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WIRED_BY_EXPORTERS = ("cluster", "exporter", "inbox", "lustre", "metrics", "node", "profile", "trace")
"""Packages with commands, parsers, readers and collectors that the exporters put together."""
EXCEPTIONS = {
    "guest_job": "compares the reader of cgroup v2 with the kernel's files inside an emulated machine",
    "guest_short_jobs": "raises a limit of the tracker that no setting has: emulated, everything costs more",
    "test_attacks_tracing": "floods the trace socket of an agent whose jobs are those of the test",
    "test_cluster_exporter_pages": "records the responses to the command lines that the exporter sends",
    "test_cgroups": "makes cgroups that no Slurm makes, at moments that no agent can choose",
    "test_exporter_life": "reads which metrics are declared as older names",
    "test_gpus": "compares the sources of the mapping of GPUs to jobs, which the page does not tell apart",
    "test_hanging_files": "traces the system calls of reading one process",
    "test_lustre_reports": "compares queries to Prometheus with its own answers; no exporter takes part",
    "test_process_groups": "reads processes inside namespaces that have no network, with a number that is used again",
    "test_push": "compares our client of a Pushgateway with the real one",
    "test_push_inbox": "compares our client of a Pushgateway with the real one",
    "test_remote_write": "sends made-up jobs, whose numbers are known, by remote write",
    "test_sacct_window": "lists jobs of windows of time that no exporter can be made to choose",
    "test_textfile": "kills the writer of a file at every system call",
    "test_tracing": "makes tokens that are expired, forged or signed by an older key",
}


def wires_itself(text: str) -> bool:
    """Return whether a file imports such a package, also in a program that it runs in another process."""
    packages = re.findall(r"(?m)^\s*(?:from slurmscope import|from slurmscope\.|import slurmscope\.)\s*(\w+)", text)
    return not set(WIRED_BY_EXPORTERS).isdisjoint(packages)


def test_end_to_end_tests_import_no_parser_and_no_collector() -> None:
    found = {file.stem for file in (ROOT / "tests/e2e").glob("*.py") if wires_itself(file.read_text("utf-8"))}

    assert set(EXCEPTIONS) == found


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("from slurmscope import cluster", True),
        ("from slurmscope.cluster import scheduler", True),
        ("from slurmscope.cluster.scheduler import parse_diag", True),
        ("def test() -> None:\n    import slurmscope.node.jobs", True),
        ("from slurmscope.archive.settings import ArchiveSettings", False),
        ("from tests.processes import serving", False),
    ],
)
def test_import_of_a_parser_is_found(text: str, is_found: bool) -> None:
    assert is_found is wires_itself(text)
