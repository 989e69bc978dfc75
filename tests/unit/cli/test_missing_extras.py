# SPDX-License-Identifier: Apache-2.0
"""Commands that need packages which are not installed name the extra in one sentence, and do nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.slurm_scripts import make_commands
from tests.processes import PATIENCE_SECONDS

# None in sys.modules makes an import fail as it does where the package is not installed.
_PROGRAM = """
import sys
sys.prefix = {prefix}
for name in (
    "bcrypt", "fastapi", "h11", "jinja2", "msgspec", "psycopg", "pymysql", "python_multipart", "sqlalchemy",
    "starlette", "typst", "uvicorn", "yaml",
):
    sys.modules[name] = None
from slurmscope.cli import main
main(sys.argv[1:])
"""


def _run(*arguments: str, prefix: str = "'/opt/venv'") -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", _PROGRAM.format(prefix=prefix), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)


@pytest.mark.parametrize("command", ["portal", "up", "demo"])
def test_pages_need_the_extra_portal(command: str, tmp_path: Path) -> None:
    files = ("--archive.url", str(tmp_path / "archive.db"))
    recorder = ("--recorder.file", str(tmp_path / "recorder.db"))
    arguments = {"portal": files, "up": (*files, *recorder), "demo": ()}[command]

    done = _run(command, *arguments)

    message = (
        f"slurmscope: the portal needs the extra 'portal': {sys.executable} -m pip install --no-index "
        "--find-links DIR 'slurmscope[portal]', with DIR as the folder of your wheels\n"
    )
    assert (2, "", message) == (done.returncode, done.stdout, done.stderr)
    assert [] == list(tmp_path.iterdir())


def test_python_of_the_distribution_is_not_changed_by_pip() -> None:
    done = _run("portal", prefix="sys.base_prefix")

    assert "install slurmscope in a virtual environment with 'slurmscope[portal]'; see docs/install.md" in done.stderr


def test_database_needs_the_extra_mariadb() -> None:
    done = _run("database", "check")

    assert 1 == done.returncode
    assert "needs the extra 'mariadb'" in done.stdout
    # A user that is there already would not help.
    assert "database grant" not in done.stdout


def test_report_on_the_terminal_needs_no_extra(tmp_path: Path) -> None:
    slurm = make_commands(tmp_path / "slurm", {"sacct": ""})

    done = _run("report", "7", "--slurm.bin-path", str(slurm), "--archive.url", str(tmp_path / "archive.db"))

    assert done.stderr.startswith(
        "slurmscope: job 7 was not found, or you may not see it; check the job ID; there is no readable archive"
    )


@pytest.mark.parametrize("arguments", [("size",), ("forget", "ada"), ("export",)])
def test_archive_needs_the_extra_reports(arguments: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "archive.db"
    file.touch()

    done = _run("archive", *arguments, "--archive.url", str(file))

    assert 2 == done.returncode
    assert done.stderr.startswith("slurmscope: the archive of jobs needs the extra 'reports': ")


def test_lustre_statistics_need_the_extra_reports(tmp_path: Path) -> None:
    squeue = make_commands(tmp_path / "bin", {"squeue": "exit 0"})
    flags = ("cluster", "--once", "--slurm.bin-path", str(squeue), "--collector.disable-defaults")

    done = _run(*flags, "--collector.lustre", "--prometheus.url", "http://127.0.0.1:1")

    assert 2 == done.returncode
    assert "needs the extra 'reports'" in done.stderr
    assert 1 == len(done.stderr.splitlines())


def test_address_of_prometheus_in_a_shared_file_costs_other_collectors_nothing(tmp_path: Path) -> None:
    commands = make_commands(tmp_path / "bin", {"squeue": "exit 0", "scontrol": "printf 'PrivateData = none\n'"})
    shared = tmp_path / "slurmscope.toml"
    shared.write_text('[prometheus]\nurl = "http://127.0.0.1:1"\n', encoding="utf-8")

    done = _run("cluster", "--once", "--slurm.bin-path", str(commands), "--config.file", str(shared))

    assert 'slurmscope_collector_success{collector="jobs"} 1' in done.stdout
    assert 'slurmscope_collector_success{collector="lustre"} 0' in done.stdout
    assert "needs --prometheus.url and the extra 'reports'" in done.stderr


@pytest.mark.parametrize("role", ["node", "cluster", "portal"])
def test_configuration_is_checked_and_shown_without_any_extra(role: str, tmp_path: Path) -> None:
    shared = tmp_path / "slurmscope.toml"
    shared.write_text('[prometheus]\nurl = "http://127.0.0.1:1"\n', encoding="utf-8")

    for action, expected in (("check", f"{shared} is valid"), ("show", "log.level = ")):
        done = _run("config", action, role, "--config.file", str(shared))
        assert (0, "", True) == (done.returncode, done.stderr, expected in done.stdout)
