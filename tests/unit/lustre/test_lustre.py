# SPDX-License-Identifier: Apache-2.0
"""Rates are queried by job ID and file system, with every text quoted."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmscope.lustre.feature import LustreOptions
from slurmscope.lustre.reader import parse_rates, rates_expression
from slurmscope.lustre.use import Quantity, UseRate
from slurmscope.prometheus.responses import FoundSeries, Reply
from tests.promtool import check_query


def test_bytes_are_summed_over_the_targets_of_a_file_system() -> None:
    assert (
        "sum by (jobid, filesystem) (label_replace((max by (jobid, target) "
        '(irate(lustre_job_read_bytes_total{target!=""}[60000ms])) or max without (replica, prometheus_replica) '
        '(irate(lustre_job_read_bytes_total{target=""}[60000ms]))) > 0, '
        '"filesystem", "$1", "target", "(.+)-(?:OST|MDT)[0-9a-fA-F]{4}"))'
    ) == rates_expression(Quantity.READ, LustreOptions())


def test_servers_without_targets_are_added_up_and_copies_are_not(tmp_path: Path) -> None:
    # Bytes per second, of counters that are read every 30 s; the sums are worked out by hand.
    rates = {
        'jobid="7",instance="oss1"': 999,
        'jobid="7",instance="oss2"': 1500,
        'jobid="8",instance="oss1",replica="a"': 10,
        'jobid="8",instance="oss1",replica="b"': 11,
        'jobid="9",instance="oss1",volume="0"': 20,
        'jobid="9",instance="oss1",volume="1"': 30,
        'jobid="10",instance="oss1",target="work-OST0000"': 100,
        'jobid="10",instance="oss2",target="work-OST0000"': 90,
        'jobid="10",instance="oss2",target="work-OST0001"': 5,
    }
    expected = {'{jobid="7"}': 2499, '{jobid="8"}': 11, '{jobid="9"}': 50, '{jobid="10", filesystem="work"}': 105}
    series = {f"lustre_job_read_bytes_total{{{labels}}}": f"0+{30 * rate}x4" for labels, rate in rates.items()}

    check_query(tmp_path, rates_expression(Quantity.READ, LustreOptions()), series, expected, interval="30s", at="2m")


def test_metadata_operations_keep_target_and_operation() -> None:
    options = LustreOptions(range=90.0)

    assert (
        'max by (jobid, target, operation) (irate(lustre_job_stats_total{site="a\\"b",'
        'target=~".+-MDT[0-9a-fA-F]{4}"}[90000ms])) > 0'
    ) == rates_expression(Quantity.METADATA, options, (("site", 'a"b'),))


def reply(labels: dict[str, str], *values: float) -> Reply:
    times = tuple(float(number) for number in range(len(values)))
    return Reply(series=(FoundSeries(labels, times, values),))


@pytest.mark.parametrize(
    ("quantity", "labels", "expected"),
    [
        (Quantity.READ, {"jobid": "7", "filesystem": "work"}, UseRate("7", "work", 2.5)),
        (Quantity.WRITE, {"jobid": "7"}, UseRate("7", "unknown", 2.5)),
        (Quantity.WRITE, {"filesystem": "work"}, UseRate("", "work", 2.5)),
        (
            Quantity.METADATA,
            {"jobid": "cp.1", "target": "work-MDT0001", "operation": "open"},
            UseRate("cp.1", "work", 2.5, "work-MDT0001", "open"),
        ),
        (Quantity.METADATA, {}, UseRate("", "unknown", 2.5)),
    ],
)
def test_rates_of_an_answer(quantity: Quantity, labels: dict[str, str], expected: UseRate) -> None:
    assert [expected] == list(parse_rates(quantity, LustreOptions(), reply(labels, 2.5)))


def test_series_without_a_finite_value_has_no_rate() -> None:
    assert [] == list(parse_rates(Quantity.READ, LustreOptions(), reply({"jobid": "7"})))


CLIENTS = LustreOptions(dialect="clients")


def test_exporter_on_clients_has_other_names_and_all_its_series_are_added_up() -> None:
    assert 'sum by (slurm_job_id, fs) (irate(lustre_client_data_bytes_total{op="read",site="a"}[60000ms]) > 0)' == (
        rates_expression(Quantity.READ, CLIENTS, (("site", "a"),))
    )
    assert "sum by (slurm_job_id, fs, op) (irate(lustre_client_access_operations_total{}[60000ms]) > 0)" == (
        rates_expression(Quantity.METADATA, CLIENTS)
    )


def test_rates_of_an_exporter_on_clients() -> None:
    labels = {"slurm_job_id": "7", "fs": "work", "op": "open"}

    assert [UseRate("7", "work", 2.5)] == list(parse_rates(Quantity.READ, CLIENTS, reply(labels, 2.5)))
    assert [UseRate("7", "work", 2.5, "", "open")] == list(parse_rates(Quantity.METADATA, CLIENTS, reply(labels, 2.5)))
