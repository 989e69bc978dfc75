# SPDX-License-Identifier: Apache-2.0
"""``slurmscope config`` shows settings so that they can be copied into a file."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from slurmscope.cli.roles import SECTION_NAMES, find_sections
from slurmscope.core.errors import ConfigError
from slurmscope.core.settings import DURATION, SIZE
from tests.fakes.command_line import run_here


@pytest.mark.parametrize("role", SECTION_NAMES)
def test_what_is_shown_is_a_file_that_says_the_same(role: str, tmp_path: Path) -> None:
    shown = run_here("config", "show", role).stdout
    copy = tmp_path / "copy.toml"
    copy.write_text(shown)

    again = run_here("config", "show", role, "--config.file", str(copy))

    assert (0, "") == (again.returncode, again.stderr)
    assert tomllib.loads(shown) == tomllib.loads(again.stdout)


def test_durations_and_sizes_are_shown_with_units() -> None:
    shown = run_here("config", "show", "up", "--recorder.retention", "1209600").stdout

    assert 'rules.scratch-unused.min-moved-bytes = "1GiB"  # default' in shown
    assert 'recorder.retention = "14d"  # flag' in shown
    assert "up.cluster = true  # default" in shown


def test_large_number_is_shown_in_full() -> None:
    assert "metrics.series-limit = 100000  # default" in run_here("config", "show", "cluster").stdout


@pytest.mark.parametrize(
    ("role", "flags"),
    [
        ("report", ["--prometheus.matchers", "cluster=a", "--prometheus.matchers", 'site=" b"']),
        ("up", ["--up.targets", "n1=http://10.0.0.1:9798/metrics", "--up.targets", "http://n2"]),
        ("cluster", ["--collector.jobs.ncpus-partitions=", "--output.push-grouping", "a=b"]),
        ("cluster", ["--collector.disable-defaults", "--collector.nodes"]),
        ("node", ["--node.interval", "0.3", "--collector.job_use.steps"]),
    ],
)
def test_given_values_survive_the_way_through_a_file(role: str, flags: list[str], tmp_path: Path) -> None:
    shown = run_here("config", "show", role, *flags).stdout
    copy = tmp_path / "copy.toml"
    copy.write_text(shown)

    again = run_here("config", "show", role, "--config.file", str(copy))

    assert (0, "") == (again.returncode, again.stderr)
    assert tomllib.loads(shown) == tomllib.loads(again.stdout)
    assert 0 == run_here("config", "check", role, "--config.file", str(copy)).returncode


def test_small_number_is_shown_as_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMSCOPE_RULES_CPU_IDLE_MIN_BUSY_RATIO", "0.1234567")

    shown = run_here("config", "show", "report").stdout

    assert "rules.cpu-idle.min-busy-ratio = 0.1234567  # SLURMSCOPE_RULES_CPU_IDLE_MIN_BUSY_RATIO" in shown


@pytest.mark.parametrize("command", ["config", "database", "doctor", "rules", "token"])
def test_group_without_a_command_tells_its_help(command: str) -> None:
    done = run_here(command)

    # click writes it to one stream or the other, depending on its release.
    assert (done.stdout + done.stderr).startswith(f"Usage: slurmscope {command} ")
    assert "slurmscope: " not in done.stdout + done.stderr


def test_check_refuses_what_the_portal_would_refuse() -> None:
    done = run_here("config", "check", "portal", "--portal.mode", "proxy")

    assert (2, "") == (done.returncode, done.stdout)
    assert "sign-in is impossible" in done.stderr


@pytest.mark.parametrize(
    ("role", "problem"), [("portal", "set prometheus.cluster-label"), ("up", "records the jobs of one cluster")]
)
def test_check_refuses_clusters_that_the_portal_would_refuse(role: str, problem: str) -> None:
    flags = ("--accounting.clusters", "alpha", "--accounting.clusters", "beta")
    prometheus = ("--prometheus.url", "http://127.0.0.1:9090") if role == "portal" else ()

    done = run_here("config", "check", role, *flags, *prometheus)

    assert (2, "") == (done.returncode, done.stdout)
    assert problem in done.stderr


def test_check_refuses_curves_that_are_deleted_before_they_are_thinned() -> None:
    done = run_here("config", "check", "portal", "--reporter.thin-curves-after", "365d")
    kept = run_here("config", "check", "portal", "--reporter.thin-curves-after", "365d", "--reporter.keep-curves", "0s")

    assert (2, "", 0) == (done.returncode, done.stdout, kept.returncode)
    assert "365d, but reporter.keep-curves deletes curves after 365d: none would be thinned" in done.stderr


def test_check_refuses_a_key_without_a_certificate() -> None:
    done = run_here("config", "check", "node", "--output.remote-write-key-file", "/etc/key.pem")

    assert (2, "") == (done.returncode, done.stdout)
    assert "needs --output.remote-write-cert-file" in done.stderr


def test_check_refuses_two_credentials_for_prometheus() -> None:
    flags = ("--prometheus.headers", "Authorization=Basic YTpi", "--prometheus.bearer-token-file", "/etc/token")

    done = run_here("config", "check", "portal", "--prometheus.url", "http://127.0.0.1:9090", *flags)

    assert (2, "") == (done.returncode, done.stdout)
    assert "--prometheus.headers sets Authorization" in done.stderr


@pytest.mark.parametrize("role", ["cluster", "node"])
def test_check_refuses_a_web_configuration_that_the_exporter_would_refuse(role: str, tmp_path: Path) -> None:
    for name in ("a.pem", "a.key"):
        (tmp_path / name).touch()
    web = tmp_path / "web.yml"
    web.write_text("tls_server_config: {cert_file: a.pem, key_file: a.key, curve_preferences: [CurveP1]}\n")

    done = run_here("config", "check", role, "--web.config.file", str(web))

    assert (2, "") == (done.returncode, done.stdout)
    assert "curve_preferences: 'CurveP1' is not one of" in done.stderr
    assert 1 == len(done.stderr.splitlines())


@pytest.mark.parametrize(
    ("role", "flags", "problem"),
    [
        ("node", ["--trace.forward", "http://c:9092/trace"], "trace.forward needs trace.socket"),
        ("node", ["--trace.forward", "http://c:9092/trace", "--trace.socket", "/run/a"], "needs trace.key-file"),
        ("node", ["--trace.key-file", "/nonexistent/key"], "create it with slurmscope trace key"),
        ("cluster", ["--trace.key-file", "/nonexistent/key"], "create it with slurmscope trace key"),
    ],
)
def test_check_refuses_tracing_that_could_not_work(role: str, flags: list[str], problem: str) -> None:
    done = run_here("config", "check", role, *flags)

    assert 2 == done.returncode
    assert problem in done.stderr


def test_check_takes_a_web_configuration_that_can_be_used(tmp_path: Path) -> None:
    web = tmp_path / "web.yml"
    web.write_text("http_server_config: {headers: {X-Frame-Options: deny}}\n")

    assert 0 == run_here("config", "check", "node", "--web.config.file", str(web)).returncode


def _result(parse: Callable[[object], object], text: str) -> object:
    try:
        return parse(text)
    except (ValueError, ConfigError):
        return None


@pytest.mark.parametrize("role", SECTION_NAMES)
def test_settings_that_accept_units_are_shown_with_units(role: str) -> None:
    declared = [setting for section in find_sections(role) for setting in section.settings()]

    durations = {setting.key for setting in declared if 14 * 86400 == _result(setting.parse, "14d")}
    sizes = {setting.key for setting in declared if 2**31 == _result(setting.parse, "2GiB")}

    assert durations == {setting.key for setting in declared if setting.metavar == DURATION}
    assert sizes == {setting.key for setting in declared if setting.metavar == SIZE}
    assert durations or role == "database"


def test_files_are_named_before_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('[log]\nlevel = "warn"\n', encoding="utf-8")

    shown = run_here("config", "show", "node", f"--config.file={file}").stdout.splitlines()

    assert f"# configuration file: {file}" == shown[0]
    assert f'log.level = "warn"  # {file}' in shown


def test_settings_without_a_file_say_so() -> None:
    assert "# configuration file: none" == run_here("config", "show", "node").stdout.splitlines()[0]


def test_valid_file_is_reported_as_json(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("")

    done = run_here("config", "check", "node", "--json", "--config.file", str(file))

    assert {"valid": True, "files": [str(file)], "error": None} == json.loads(done.stdout)
    assert 0 == done.returncode


def test_error_is_reported_as_json(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("[web]\nlisten-adress = ':1'\n")

    done = run_here("config", "check", "node", "--json", "--config.file", str(file))

    report = json.loads(done.stdout)
    assert (2, "", False) == (done.returncode, done.stderr, report["valid"])
    assert "listen-adress" in report["error"]
