# SPDX-License-Identifier: Apache-2.0
"""``slurmscope run`` changes nothing for the command, whatever happens to its own measurement and report."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.traced_command import plain_environment, python, run_traced

BUSY = "import time\nwhile time.process_time() < 0.4: pass\n"


@pytest.mark.parametrize("code", [0, 3, 255])
def test_exit_code_is_that_of_the_command(code: int) -> None:
    assert code == run_traced("--quiet", "--", "sh", "-c", f"exit {code}").returncode


def test_command_that_dies_by_a_signal_gives_128_and_its_number() -> None:
    done = run_traced("--", "sh", "-c", "kill -SEGV $$")

    assert 128 + 11 == done.returncode
    assert b"killed by SIGSEGV (signal 11)" in done.stderr


def test_missing_command_gives_127() -> None:
    done = run_traced("--", "no-such-command")

    assert (127, b"slurmscope: cannot run no-such-command: No such file or directory\n") == (
        done.returncode,
        done.stderr,
    )


def test_file_that_is_not_executable_gives_126(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_text("no program")

    assert 126 == run_traced("--", str(file)).returncode


def test_script_without_a_first_line_runs_as_in_a_shell(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('echo "$1"\n')
    script.chmod(0o755)

    done = run_traced("-q", "--", str(script), "hello")

    assert (0, b"hello\n", b"") == (done.returncode, done.stdout, done.stderr)


def test_binary_output_and_input_pass_through_unchanged() -> None:
    noise = bytes(range(256)) * 5000

    done = run_traced("-q", "--", "cat", stdin=noise)

    assert (0, noise, b"") == (done.returncode, done.stdout, done.stderr)


def test_report_goes_to_standard_error_only() -> None:
    done = run_traced("--", "echo", "result")

    assert b"result\n" == done.stdout
    assert b"Wall time" in done.stderr


def test_quiet_prints_nothing() -> None:
    assert b"" == run_traced("--quiet", "--", "true").stderr


def test_broken_pipe_ends_a_command_as_without_us() -> None:
    """Python ignores SIGPIPE, a program that it starts must not."""
    done = run_traced("-q", "--", "sh", "-c", "(yes; echo $? >&2) | head -n 1")

    assert b"y\n" == done.stdout
    assert b"141\n" == done.stderr


def test_variables_and_folder_are_those_of_the_caller(tmp_path: Path) -> None:
    done = run_traced("-q", "--", "sh", "-c", 'pwd; echo "$MARK"', environment={"MARK": "here"})

    assert f"{Path.cwd()}\nhere\n".encode() == done.stdout


def test_shortest_command_has_a_report() -> None:
    text = run_traced("--", "true").stderr.decode()

    rows = dict(line.strip().split("  ", 1) for line in text.splitlines() if line.startswith("  ") and "  " in line[2:])
    assert "exit code 0" == rows["State"].strip()
    assert rows["Processes, peak"].strip().startswith("1 with 1 thread")


def test_text_report_shows_every_resource() -> None:
    done = run_traced("--", *python(BUSY))

    text = done.stderr.decode()
    for label in ("Wall time", "CPU time", "CPU efficiency", "Memory, peak", "Processes, peak", "Read", "Written"):
        assert f"  {label}" in text
    for curve in ("Busy cores", "Memory in use", "Reading", "Writing"):
        assert f"  {curve}" in text
    assert "Too short to judge: most rules need 5 min." in text
    assert max(map(len, text.splitlines())) <= 80


def test_html_report_is_one_document_without_scripts(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    run_traced("-o", str(file), "--", "sh", "-c", "sleep 0.2 # <script>alert(1)</script>")

    page = file.read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "<svg" in page


@pytest.mark.parametrize(
    ("options", "begins"),
    [
        (("-o", "a.json"), "{"),
        (("-o", "a.HTML"), "<!DOCTYPE"),
        (("-f", "text", "-o", "a.json"), "="),
        (("-o", "a.pdf"), "="),
    ],
)
def test_format_is_that_of_the_ending_unless_it_is_named(options: tuple[str, ...], begins: str, tmp_path: Path) -> None:
    *rest, name = options
    file = tmp_path / name

    run_traced(*rest, str(file), "--", "true")

    assert file.read_text().startswith(begins)


def test_file_is_replaced_as_a_whole_and_names_take_the_task(tmp_path: Path) -> None:
    environment = {"SLURM_JOB_ID": "77", "SLURM_PROCID": "3", "SLURMD_NODENAME": "n1", "USER": "ada"}
    name = str(tmp_path / "%j-%t-%N-%u-100%%.json")

    run_traced("-f", "json", "-o", name, "--", "true", environment=environment)

    file = tmp_path / "77-3-n1-ada-100%.json"
    assert [file] == list(tmp_path.iterdir())
    report = json.loads(file.read_bytes())
    assert (77, "n1") == (report["summary"]["record"]["job_id"], report["summary"]["record"]["nodes"][0])
    assert stat.S_ISREG(file.stat().st_mode)


def test_file_that_cannot_be_written_is_refused_before_the_command_runs(tmp_path: Path) -> None:
    done = run_traced("-o", str(tmp_path / "absent" / "r.json"), "--", "touch", str(tmp_path / "ran"))

    assert 2 == done.returncode
    assert b"name a file in a folder that exists" in done.stderr
    assert [] == list(tmp_path.iterdir())


def test_report_is_shown_when_its_folder_vanished_meanwhile(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()

    done = run_traced("-f", "json", "-o", str(folder / "r.json"), "--", "sh", "-c", f"rmdir '{folder}'; exit 4")

    assert 4 == done.returncode
    assert b"cannot be written" in done.stderr
    assert b"Wall time" in done.stderr


def test_no_command_is_an_error() -> None:
    done = run_traced("--quiet")

    assert (2, True) == (done.returncode, b"Name the command to run" in done.stderr)


@pytest.mark.parametrize("closed", ["2>&-", "0<&- 1>&- 2>&-", "2>/dev/full"])
def test_standard_error_that_cannot_be_written_does_not_change_the_exit_code(closed: str) -> None:
    program = f'"$@" {closed}'
    done = run_traced("--", "sh", "-c", "exit 3", prefix=("sh", "-c", program, "sh"))

    assert 3 == done.returncode


FAULTY = """
import sys
import time
from slurmscope.core.errors import SourceError
from slurmscope.run import process_tree as tree_meter
def fail(*_arguments):
    raise {error}("too many open files")
tree_meter.{place} = fail
from slurmscope.cli import main
main(["run", "-f", "json", "-o", sys.argv[1], "--", "sh", "-c", "sleep 0.1; echo out; exit 5"])
"""


@pytest.mark.parametrize("error", ["SourceError", "KeyError"])
@pytest.mark.parametrize("place", ["TreeMeter.scan", "ProcessTree.scan"])
def test_fault_of_the_measurement_does_not_touch_the_command(place: str, error: str, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    argv = [sys.executable, "-c", FAULTY.format(error=error, place=place), str(file)]
    done = subprocess.run(argv, capture_output=True, text=True, env=plain_environment(), check=False)

    assert (5, "out\n", "") == (done.returncode, done.stdout, done.stderr)
    (problem, *_) = [line for line in json.loads(file.read_bytes())["missing"] if "too many open files" in line]
    assert problem.startswith("Something was not measured or not sent: ")


def test_fault_of_the_report_does_not_change_the_exit_code() -> None:
    program = (
        "import sys\nfrom slurmscope.run import report as reporting\nreporting.make_run_report = None\n"
        "from slurmscope.cli import main\nmain(['run', '--', 'sh', '-c', 'exit 4'])"
    )
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, capture_output=True, text=True, env=plain_environment(), check=False)

    assert 4 == done.returncode
    assert "the report could not be made" in done.stderr


WEIGHED = """
import sys
import time
for name in ("bcrypt", "fastapi", "jinja2", "msgspec", "psycopg", "pymysql", "sqlalchemy", "typst", "uvicorn", "yaml"):
    sys.modules[name] = None
from slurmscope.cli import main, run_command
run_command.DRIVER_SIGNS = ()
try:
    main(["run", "-f", sys.argv[1], "-o", sys.argv[2], "--", "sleep", "0.1"])
except SystemExit as end:
    assert not end.code
heavy = {"http.client", "ssl", "sqlite3", "email", "xml", "subprocess", "slurmscope.portal", "slurmscope.archive"} | {
    "slurmscope.run.gpu_watch", "slurmscope.node.gpu.nvml"
}
print(*sorted(heavy & sys.modules.keys()))
"""


@pytest.mark.parametrize("format", ["text", "json", "html"])
def test_nothing_but_click_and_little_of_the_standard_library_is_needed(format: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-c", WEIGHED, format, str(tmp_path / "report")]
    done = subprocess.run(argv, capture_output=True, text=True, env=plain_environment(), check=True)

    assert "\n" == done.stdout
    assert (tmp_path / "report").stat().st_size > 500


def test_cause_is_logged_if_gpus_cannot_be_read() -> None:
    # As where the driver is loaded, but the process that asks it cannot run.
    program = (
        "import sys; from pathlib import Path; sys.executable = '/bin/false'\n"
        "from slurmscope.cli import main, run_command; run_command.DRIVER_SIGNS = (Path('/'),)\n"
        "from slurmscope.node.gpu.nvml import NvmlReader\n"
        "NvmlReader.__init__.__kwdefaults__['driver_signs'] = (Path('/'),)\n"
        "main(['run', '--quiet', '--', 'sleep', '2'])"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert 'msg="GPUs cannot be read" reason=crashed error="the process that reads GPUs ' in done.stderr
