# SPDX-License-Identifier: Apache-2.0
"""The command line of the older Lustre throughput exporter is understood by ``slurmscope cluster``."""

from __future__ import annotations

import pytest

from slurmscope.cli.options import translate_lustre_flags
from tests.fakes.command_line import run_here

URL = "http://p.example.org:9090/prom/api/v1/query?query=sum%20by(jobid)(irate(lustre_job_read_bytes_total[2m]))"

LUSTRE = "--prometheus.url=http://p:9090 --collector.lustre"
READS = "--prometheus.url=http://p.example.org:9090/prom --collector.lustre --collector.lustre.range=2m"


@pytest.mark.parametrize(
    ("older", "ours"),
    [
        ("-promserver=http://p:9090", LUSTRE),
        ("-promserver http://p:9090 -port 9846", LUSTRE + " --web.listen-address=:9846"),
        ("--timerange=5m --timeout 20", "--collector.lustre.range=5m --prometheus.timeout=20"),
        ("-log TRACE", "--log.level=debug"),
        ("-log=WARNING", "--log.level=WARNING"),
        (f"-urlReads={URL}", READS),
        (
            "-urlWrites=http://p/api/v1/query?query=irate(other[1m])",
            "--prometheus.url=http://p --collector.lustre --collector.lustre.range=1m --collector.lustre.dialect=other",
        ),
        ("-urlWrites http://p/api/v1/query", "--prometheus.url=http://p --collector.lustre"),
        ("-urlReads=http://[", "--prometheus.url=http://["),
        ("-port", "-port"),
        ("--web.listen-address=:1 --once", "--web.listen-address=:1 --once"),
        ("-- -port 1", "-- -port 1"),
    ],
)
def test_older_flags_become_ours(older: str, ours: str) -> None:
    assert ours.split() == translate_lustre_flags(older.split())


def test_older_command_line_sets_the_same_things() -> None:
    older = ["-promserver", "http://p:9090", "-timerange", "2m", "-timeout", "20", "-port", "9846", "-log", "ERROR"]

    shown = run_here("config", "show", "cluster", *older).stdout

    assert "prometheus.url = 'http://p:9090'  # flag" in shown.replace('"', "'")
    assert "collector.lustre.enabled = true  # flag" in shown
    assert "collector.lustre.range = '2m'  # flag" in shown.replace('"', "'")
    assert "prometheus.timeout = '20s'  # flag" in shown.replace('"', "'")
    assert "web.listen-address = [':9846']  # flag" in shown.replace('"', "'")
    assert "log.level = 'error'  # flag" in shown.replace('"', "'")


@pytest.mark.parametrize(
    ("flag", "named"),
    [
        ("-promserver=ftp://p", "--prometheus.url"),
        ("-urlReads=http://p?query=rate(x[1m])", "'x' is not one of servers, clients"),
        ("-timerange=x", "--collector.lustre.range"),
        ("-log=LOUD", "level"),
    ],
)
def test_invalid_value_is_one_sentence(flag: str, named: str) -> None:
    done = run_here("cluster", "--once", flag)

    assert 2 == done.returncode
    assert named in done.stderr
    assert 1 == len(done.stderr.splitlines())
