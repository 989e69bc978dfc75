# SPDX-License-Identifier: Apache-2.0
"""Check that a command is run within its limits, and that nothing of it is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.errors import (
    CommandError,
    CommandFailed,
    CommandMissing,
    CommandRefused,
    CommandTimedOut,
    MalformedAnswer,
)
from slurmscope.slurm.command import CommandOutput, OutputRoom, command_environment, find_command, run
from tests.leftovers import nothing_left
from tests.requirements import require_program


def run_script(
    script: str,
    *arguments: str,
    timeout_seconds: float = 30.0,
    output_limit_bytes: int = 10**6,
    room: OutputRoom | None = None,
) -> CommandOutput:
    """Run a small shell program as the command."""
    return run(
        ["/bin/sh", "-c", script, "sh", *arguments],
        timeout_seconds=timeout_seconds,
        environment={"PATH": "/usr/bin:/bin"},
        output_limit_bytes=output_limit_bytes,
        room=room or OutputRoom(limit_bytes=10**9, own_bytes=0),
    )


def write_program(path: Path, text: str = "#!/bin/sh\n", mode: int = 0o755) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def is_running(pid: int) -> bool:
    """A zombie waits for its parent but runs no more."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until_gone(pid: int) -> bool:
    give_up = time.monotonic() + 10
    while is_running(pid) and time.monotonic() < give_up:
        time.sleep(0.01)
    return not is_running(pid)


class TestAnswer:
    def test_stdout_comes_back_byte_for_byte(self) -> None:
        assert b"a\0\xff\x1b\n" == run_script(r"printf 'a\000\377\033\n'").stdout

    def test_warnings_on_stderr_do_not_spoil_the_answer(self) -> None:
        answer = run_script("echo banner >&2; echo data; echo more >&2")
        assert (b"data\n", "banner\nmore") == (answer.stdout, answer.stderr)

    def test_stderr_is_escaped(self) -> None:
        assert "a\\u001b[31m\\r\\xff" == run_script(r"printf 'a\033[31m\r\377' >&2").stderr

    def test_stderr_is_cut_and_the_rest_drained(self) -> None:
        answer = run_script("yes warning | head -c 1000000 >&2; echo done")
        assert b"done\n" == answer.stdout
        assert ("warning\n" * 10_000)[: 64 * 1024].rstrip("\n") == answer.stderr

    def test_large_answer_comes_back_whole(self) -> None:
        answer = run_script("head -c 5000000 /dev/zero", output_limit_bytes=5_000_000)
        assert bytes(5_000_000) == answer.stdout

    def test_duration_is_measured(self) -> None:
        assert 0.2 <= run_script("sleep 0.2").duration_seconds < 30

    def test_arguments_are_not_read_by_a_shell(self, tmp_path: Path) -> None:
        hostile = f"$(touch {tmp_path}/made); `touch {tmp_path}/made` | * ' \""
        assert hostile.encode() == run_script('printf %s "$1"', hostile).stdout
        assert [] == list(tmp_path.iterdir())

    def test_command_reads_nothing_from_us(self) -> None:
        assert b"" == run_script("cat").stdout

    def test_command_works_in_the_root_folder(self) -> None:
        assert b"/\n" == run_script("pwd -P").stdout

    def test_command_sees_only_the_environment_it_was_given(self) -> None:
        answer = run(["/usr/bin/env"], timeout_seconds=30, environment={"LC_ALL": "C", "SLURM_CONF": "/x"})
        assert {b"LC_ALL=C", b"SLURM_CONF=/x"} == set(answer.stdout.splitlines())

    def test_command_inherits_no_open_file(self, tmp_path: Path) -> None:
        with (tmp_path / "open").open("w") as file:
            os.set_inheritable(file.fileno(), True)
            listed = run_script(f"ls -l /proc/self/fd | grep -c {file.name} || true").stdout
        assert b"0\n" == listed


class TestFailure:
    def test_exit_code_and_first_line_are_reported(self) -> None:
        with pytest.raises(CommandFailed, match=r"^sh ended with exit code 3: squeue: bad option$"):
            run_script("echo partial; echo 'squeue: bad option' >&2; echo 'more' >&2; exit 3")

    def test_killed_command_names_its_signal(self) -> None:
        with pytest.raises(CommandFailed, match="SIGSEGV: nothing on stderr"):
            run_script("echo partial; kill -SEGV $$")

    def test_real_time_signal_is_recognised_by_number(self) -> None:
        with pytest.raises(CommandFailed, match="signal 40"):
            run_script("kill -40 $$")

    def test_arguments_travel_with_the_error(self) -> None:
        with pytest.raises(CommandError) as caught:
            run_script("exit 1", "one")
        assert ("/bin/sh", "-c", "exit 1", "sh", "one") == caught.value.argv

    @pytest.mark.parametrize(
        "stderr",
        [
            # Printed by squeue, sdiag and sshare 22.05.8 with the fault made for real.
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
            "slurm_load_jobs error: Socket timed out on send/recv operation",
            "Couldn't get shares from controller: Protocol authentication error",
            "slurm_get_statistics: Zero Bytes were transmitted or received",
            "squeue: fatal: Could not establish a configuration source",
            # From Slurm's table of error texts.
            "slurm_load_jobs error: Access/permission denied",
            "slurm_load_jobs error: Rate limit exceeded, please retry momentarily",
        ],
    )
    def test_refusal_of_slurm_is_distinguished(self, stderr: str) -> None:
        with pytest.raises(CommandRefused) as caught:
            run_script('echo "$1" >&2; exit 1', stderr)
        assert f"sh ended with exit code 1: {stderr}" == str(caught.value)

    def test_refusal_is_found_below_lines_that_mislead(self) -> None:
        # What squeue prints when munged is down; its first line is no help.
        lines = (
            "squeue: error: If munged is up, restart with --num-threads=10\n"
            'squeue: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file'
        )
        with pytest.raises(CommandRefused, match=r"exit code 1: squeue: error: Munge encode failed"):
            run_script('echo "$1" >&2; exit 1', lines)

    def test_message_is_one_short_printable_line(self) -> None:
        with pytest.raises(CommandFailed) as caught:
            run_script(r"head -c 5000 /dev/zero | tr '\0' '\033' >&2; exit 1")
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 4000

    def test_lost_exit_code_is_no_success(self) -> None:
        # Inherited by a service whose parent ignores SIGCHLD: the kernel then reaps children for us.
        program = (
            "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
            "from slurmscope.slurm.command import run\n"
            "run(['/bin/sh', '-c', 'exit 1'], timeout_seconds=30, environment={})\n"
        )
        ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60)
        assert "CommandFailed: the exit code of sh was lost: SIGCHLD is ignored" in ended.stderr


class TestLimits:
    def test_slow_command_is_killed_with_its_children(self, tmp_path: Path) -> None:
        pids = tmp_path / "pids"
        with pytest.raises(CommandTimedOut, match=r"^sh timed out after 0.5 s and was killed; see --slurm.timeout$"):
            run_script(f"sleep 300 & echo $! $$ > {pids}; echo partial; wait", timeout_seconds=0.5)
        assert [True, True] == [wait_until_gone(int(pid)) for pid in pids.read_text().split()]

    def test_command_that_ignores_signals_is_killed(self) -> None:
        with pytest.raises(CommandTimedOut):
            run_script("trap '' TERM INT HUP; while :; do sleep 300; done", timeout_seconds=0.3)

    def test_command_that_closes_its_output_and_runs_on_is_killed(self) -> None:
        with pytest.raises(CommandTimedOut):
            run_script("exec >&- 2>&-; sleep 300", timeout_seconds=0.3)

    def test_command_that_prints_forever_is_killed_at_its_time(self) -> None:
        with pytest.raises(CommandTimedOut):
            run_script("while :; do echo e >&2; done", timeout_seconds=0.3)

    def test_grandchild_holding_the_pipes_does_not_hold_us(self, tmp_path: Path) -> None:
        answer = run_script(f"sleep 300 & echo $! > {tmp_path}/pid; echo data", timeout_seconds=60)
        assert b"data\n" == answer.stdout
        assert answer.duration_seconds < 30
        assert wait_until_gone(int((tmp_path / "pid").read_text()))

    def test_grandchild_in_its_own_session_does_not_hold_us(self, tmp_path: Path) -> None:
        script = f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 300' & while [ ! -s {tmp_path}/pid ]; do :; done"
        try:
            assert run_script(script, timeout_seconds=60).duration_seconds < 30
        finally:
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)

    def test_too_much_output_is_malformed(self) -> None:
        with pytest.raises(MalformedAnswer, match=r"^sh printed more than 999999 bytes$"):
            run_script("head -c 1000000 /dev/zero; sleep 300", output_limit_bytes=999_999)

    def test_nothing_is_left_after_many_timeouts(self) -> None:
        # Both kinds of end, so that neither a pipe nor a zombie stays.
        with nothing_left():
            for _ in range(25):
                with pytest.raises(CommandTimedOut):
                    run_script("sleep 300 & sleep 300", timeout_seconds=0.02)
                with pytest.raises(CommandMissing):
                    run(["/nonexistent/squeue"], timeout_seconds=30, environment={})


class TestStart:
    def test_missing_program_is_reported(self, tmp_path: Path) -> None:
        with pytest.raises(CommandMissing, match=r"cannot run squeue: .*No such file"):
            run([str(tmp_path / "squeue")], timeout_seconds=30, environment={})

    def test_program_that_may_not_be_run_is_reported(self, tmp_path: Path) -> None:
        program = write_program(tmp_path / "squeue", mode=0o644)
        with pytest.raises(CommandMissing, match=r"cannot run squeue: .*Permission denied"):
            run([str(program)], timeout_seconds=30, environment={})

    def test_file_that_is_no_program_is_reported(self, tmp_path: Path) -> None:
        program = write_program(tmp_path / "squeue", "\x7fELF broken")
        with pytest.raises(CommandFailed, match=r"cannot start squeue: .*Exec format error"):
            run([str(program)], timeout_seconds=30, environment={})

    def test_argument_with_a_zero_byte_is_reported(self) -> None:
        with pytest.raises(CommandFailed, match="cannot start true: embedded null byte"):
            run(["/bin/true", "a\0b"], timeout_seconds=30, environment={})

    @pytest.mark.parametrize("argv", [["squeue"], ["./squeue"], [""], []])
    def test_only_absolute_paths_are_run(self, argv: list[str]) -> None:
        with pytest.raises(CommandMissing, match="is not an absolute path"):
            run(argv, timeout_seconds=30, environment={})


class TestFindCommand:
    def test_given_folder_is_the_only_one_searched(self, tmp_path: Path) -> None:
        program = write_program(tmp_path / "squeue")
        assert program == find_command("squeue", tmp_path)
        with pytest.raises(CommandMissing, match=f"sh was not found in {tmp_path}; .*--slurm.bin-path"):
            find_command("sh", tmp_path)

    def test_usual_folders_are_searched_in_order(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            write_program(tmp_path / name / "squeue")
        assert tmp_path / "a" / "squeue" == find_command("squeue", None, search_path=f":.:{tmp_path}/a:{tmp_path}/b")

    def test_missing_command_names_the_flag(self) -> None:
        with pytest.raises(CommandMissing, match=r"^no-such-command was not found in the usual folders; .*--slurm"):
            find_command("no-such-command", None)

    def test_folder_and_plain_file_are_no_commands(self, tmp_path: Path) -> None:
        (tmp_path / "sinfo").mkdir()
        write_program(tmp_path / "squeue", mode=0o644)
        for name in ("sinfo", "squeue"):
            with pytest.raises(CommandMissing):
                find_command(name, tmp_path)

    def test_folder_that_the_kernel_does_not_let_us_enter_holds_no_command(self, tmp_path: Path) -> None:
        # A name that is too long fails for root as well, like a closed folder for everybody else.
        with pytest.raises(CommandMissing, match="squeue was not found in "):
            find_command("squeue", tmp_path / ("x" * 300))

    def test_absolute_name_stands_for_itself(self, tmp_path: Path) -> None:
        program = write_program(tmp_path / "my-squeue")
        assert program == find_command(str(program), Path("/nonexistent"))
        with pytest.raises(CommandMissing, match="is not the absolute path of an executable program"):
            find_command("bin/squeue", None)

    def test_link_is_not_resolved_so_upgrades_are_followed(self, tmp_path: Path) -> None:
        (tmp_path / "squeue").symlink_to(write_program(tmp_path / "squeue-22.05"))
        assert tmp_path / "squeue" == find_command("squeue", tmp_path)

    def test_relative_folder_becomes_absolute(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_program(tmp_path / "squeue")
        monkeypatch.chdir(tmp_path)
        assert tmp_path / "squeue" == find_command("squeue", Path())


class TestEnvironment:
    def test_formatting_variables_of_slurm_are_cleared(self) -> None:
        inherited = {
            "SQUEUE_FORMAT": "x", "SINFO_ALL": "1", "SLURM_CLUSTERS": "other", "SLURM_TIME_FORMAT": "relative",
            "LD_PRELOAD": "/tmp/x.so", "PATH": "/tmp", "LC_ALL": "de_DE.UTF-8", "SLURM_CONF": "/etc/slurm/slurm.conf",
            "SLURM_JWT": "token", "TZ": "Europe/Berlin",
        }  # fmt: skip
        environment = command_environment(inherited)
        assert {"SLURM_CONF", "SLURM_JWT", "TZ", "PATH", "LC_ALL", "SLURM_BITSTR_LEN", "SLURM_TIME_FORMAT"} == set(
            environment
        )
        assert ("C", "%s") == (environment["LC_ALL"], environment["SLURM_TIME_FORMAT"])
        assert ["/etc/slurm/slurm.conf", "token", "Europe/Berlin"] == [
            environment[name] for name in ("SLURM_CONF", "SLURM_JWT", "TZ")
        ]
        assert "/tmp" not in environment["PATH"].split(":")

    @given(st.dictionaries(st.text(), st.text()))
    def test_no_other_variable_passes(self, inherited: dict[str, str]) -> None:
        allowed = {"SLURM_CONF", "SLURM_JWT", "TZ", "PATH", "LC_ALL", "SLURM_BITSTR_LEN", "SLURM_TIME_FORMAT"}
        assert set(command_environment(inherited)) <= allowed


class TestRealSqueue:
    @pytest.fixture
    def environment(self, tmp_path: Path) -> dict[str, str]:
        require_program("squeue")
        configuration = tmp_path / "slurm.conf"
        configuration.write_text("ClusterName=none\nSlurmctldHost=localhost\n")
        return command_environment({"SLURM_CONF": str(configuration)})

    def test_version_is_answered(self, environment: dict[str, str]) -> None:
        answer = run(["/usr/bin/squeue", "--version"], timeout_seconds=60, environment=environment)
        assert answer.stdout.startswith(b"slurm")

    def test_wrong_option_is_a_failure_and_no_refusal(self, environment: dict[str, str]) -> None:
        with pytest.raises(CommandFailed, match=r"squeue ended with exit code 1: .*no-such-option"):
            run(["/usr/bin/squeue", "--no-such-option"], timeout_seconds=60, environment=environment)


class TestOutputRoom:
    """Commands that print without end at the same time must not take their limit each."""

    def test_large_output_is_refused_when_others_have_the_room(self) -> None:
        room = OutputRoom(limit_bytes=100, own_bytes=10)

        assert room.take(90, had_bytes=0)
        assert not room.take(20, had_bytes=0)
        room.give_back(90)
        assert room.take(20, had_bytes=0)

    def test_small_output_always_has_room(self) -> None:
        room = OutputRoom(limit_bytes=100, own_bytes=10)
        assert room.take(100, had_bytes=0)

        assert room.take(6, had_bytes=0)
        assert room.take(4, had_bytes=6)
        assert not room.take(1, had_bytes=10)

    @pytest.mark.parametrize("script", ["head -c 1000000 /dev/zero", "head -c 1000000 /dev/zero; exit 3"])
    def test_room_is_given_back_at_the_end(self, script: str) -> None:
        room = OutputRoom(limit_bytes=1_500_000, own_bytes=0)

        for _ in range(3):
            with contextlib.suppress(CommandFailed):
                run_script(script, room=room)

        assert room.take(1_500_000, had_bytes=0)

    def test_endless_commands_share_one_limit(self) -> None:
        room = OutputRoom(limit_bytes=1_000_000, own_bytes=1000)
        room.take(900_000, had_bytes=0)
        with pytest.raises(MalformedAnswer, match=r"^sh and other commands printed more than 1000000 bytes$"):
            run_script("cat /dev/zero", room=room)
