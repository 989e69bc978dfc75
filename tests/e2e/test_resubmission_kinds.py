# SPDX-License-Identifier: Apache-2.0
"""Real jobs of many kinds complete when they are submitted again with the header of their report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future

import pytest

from lab.cgroups import has_cgroup_v1
from tests.e2e.resubmission_kinds import KINDS, Kind
from tests.e2e.resubmission_trial import MEBIBYTE, Size, Trial, run_bench, try_kinds

pytestmark = pytest.mark.skipif(not has_cgroup_v1(), reason="this machine has no cgroup v1 controllers")

# Suggestions are a fifth above the need: a second run that needs more than that was not promised.
MARGIN = 1.2
# Files of the shell and its commands, which one job or the other is the first to read.
SLACK_BYTES = 16 * MEBIBYTE
Trials = Mapping[str, Future[Trial]]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    """Try all kinds on one cluster, once for all tests."""
    private = tmp_path_factory.mktemp("resubmission")
    with run_bench(private) as bench:
        yield try_kinds(bench, KINDS)


@each_kind
def test_first_run_ends_as_known(kind: Kind, trials: Trials) -> None:
    assert kind.ends == trials[kind.name].result().first.state


@each_kind
def test_job_completes_with_the_header_whenever_its_program_can(kind: Kind, trials: Trials) -> None:
    trial = trials[kind.name].result()
    assert not trial.rejection
    if trial.second is None:
        assert not kind.short_of, "it cannot complete as it was submitted, and nothing was offered"
    else:
        assert trial.second.state == ("COMPLETED" if kind.can_complete else kind.ends)


@each_kind
def test_header_requests_what_the_program_needs(kind: Kind, trials: Trials) -> None:
    trial = trials[kind.name].result()
    first, suggested = trial.first, trial.suggested
    assert (True, True) == (kind.needs_cpus <= suggested.cpus, kind.needs_nodes <= suggested.nodes)
    node_bytes = suggested.memory_mebibytes / suggested.nodes * MEBIBYTE
    assert kind.needs_mebibytes * MEBIBYTE <= node_bytes
    assert kind.uses_cache or (first.peak_bytes or 0) <= node_bytes


@each_kind
def test_only_what_was_short_gets_larger(kind: Kind, trials: Trials) -> None:
    trial = trials[kind.name].result()
    before, after = trial.submitted.by_option, trial.suggested.by_option
    assert kind.short_of == {name for name in before if after[name] > before[name]}


@each_kind
def test_only_a_complete_run_gets_less_and_what_it_requested_in_vain(kind: Kind, trials: Trials) -> None:
    trial = trials[kind.name].result()
    before, after = trial.submitted.by_option, trial.suggested.by_option
    smaller = {name for name in before if after[name] < before[name]}
    # Of what an overloaded machine did not measure nothing is said.
    assert kind.frees <= smaller or not trial.is_measured
    assert kind.ends == "COMPLETED" or not smaller


@each_kind
def test_rules_do_not_complain_in_vain(kind: Kind, trials: Trials) -> None:
    findings = trials[kind.name].result().report["findings"]
    assert not kind.wrong & {found["rule"] for found in findings if found["severity"] != "info"}
    assert not kind.unfounded & {found["rule"] for found in findings}


@each_kind
def test_second_run_is_what_the_report_promised(kind: Kind, trials: Trials) -> None:
    trial = trials[kind.name].result()
    if trial.second is None:
        return
    first, second = trial.first, trial.second
    # Accounting has the size of both.
    assert (first.size, second.size) == (trial.submitted, trial.suggested)
    assert freed_by_hand(first.size, second.size, first.run_seconds) == trial.freed
    needed = trial.report["summary"]["memory"]["best_peak_bytes"]
    if kind.ends == "COMPLETED" and not kind.uses_cache and needed is not None:
        assert (second.peak_bytes or 0) <= MARGIN * needed + SLACK_BYTES


def freed_by_hand(before: Size, after: Size, run_seconds: int) -> tuple[float, float]:
    """Return the core-seconds and MiB-seconds that a run of this length leaves to others."""
    return (
        max(0, before.cpus - after.cpus) * run_seconds,
        max(0, before.memory_mebibytes - after.memory_mebibytes) * run_seconds,
    )
