# SPDX-License-Identifier: Apache-2.0
"""Run a command as root in a throw-away guest that has nothing but cgroup v2.

The guest sees the files of this machine and may write to all of them, but what it writes lives in its memory and ends
with it; only shared folders are truly written. It has no network but loopback, no systemd and no users of its own.

    python -m lab.guest -- ls /sys/fs/cgroup
"""

import argparse
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError
from lab.guest_image import write_initial_files
from lab.guest_kernel import cache_folder, provide_kernel
from lab.guest_qemu import Machine, find_qemu, run_machine
from lab.requirements import SEARCH_PATH

DEFAULT_TIMEOUT_SECONDS = 300.0
DEFAULT_MEMORY_MEBIBYTES = 2048
DEFAULT_CPUS = 2
MAX_OUTPUT_BYTES = 64 * 1024 * 1024
TAIL_BYTES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestRun:
    """Hold how a command ended in the guest, in the words of subprocess.CompletedProcess.

    ``boot_seconds`` is the age of the guest, by its own clock, when the command began.
    """

    returncode: int
    stdout: str
    stderr: str
    boot_seconds: float


def run_in_guest(
    argv: Sequence[str],
    *,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    memory_mebibytes: int = DEFAULT_MEMORY_MEBIBYTES,
    cpus: int = DEFAULT_CPUS,
    cwd: Path | None = None,
    shared_folders: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
) -> GuestRun:
    """Boot a guest, run a command in it, and give its output and exit status.

    The command starts in our working folder unless told otherwise. Shared folders are the host's own, at the same path.
    Of variables it gets those given here, with PATH, HOME and LC_ALL unless they are among them, and none of ours.
    Raises GuestUnavailable where no guest can be run, and LabError when the guest dies or is not done in time. The
    first use downloads a kernel; that is not part of the time.
    """
    qemu, kernel = find_qemu(), provide_kernel(cache_folder())
    folders = [folder.resolve(strict=True) for folder in shared_folders]
    with tempfile.TemporaryDirectory(prefix="slurmscope-guest-") as name:
        work = Path(name)
        desk = work / "desk"
        desk.mkdir()
        _lay_out(desk, [*_entering(cwd or Path.cwd(), environment or {}), *argv], folders)
        write_initial_files(work / "initial_files", kernel.modules)
        machine = Machine(
            image=kernel.image,
            initial_files=work / "initial_files",
            console=work / "console",
            log=work / "qemu.log",
            memory_mebibytes=memory_mebibytes,
            cpus=cpus,
            shares=(("desk", desk), *((f"share{number}", folder) for number, folder in enumerate(folders))),
        )
        try:
            run_machine(qemu, machine, timeout)
            return _read_result(desk)
        except LabError as error:
            # The work folder is about to go, and with it all that could tell why.
            said = _ends_of(machine.log, machine.console, desk / "stdout", desk / "stderr")
            raise LabError(f"{error}; {said}") from error


def _entering(cwd: Path, environment: Mapping[str, str]) -> list[str]:
    """Give the prefix that takes a command out of the first process's small world into the machine."""
    variables = {"PATH": SEARCH_PATH, "HOME": "/root", "LC_ALL": "C.UTF-8", **environment}
    prefix = ["chroot", "/machine", "/usr/bin/env", "--ignore-environment", f"--chdir={cwd.resolve()}"]
    return prefix + [f"{name}={value}" for name, value in variables.items()]


def _lay_out(desk: Path, argv: Sequence[str], folders: Sequence[Path]) -> None:
    """Put on the desk what the guest's first process looks for there."""
    (desk / "command").write_text(f"exec {shlex.join(argv)}\n", encoding="utf-8")
    (desk / "shares").write_text("".join(f"{folder}\n" for folder in folders), encoding="utf-8")


def _read_result(desk: Path) -> GuestRun:
    try:
        status, boot_seconds = (float((desk / name).read_text(encoding="ascii")) for name in ("status", "boot_seconds"))
    except (FileNotFoundError, ValueError) as error:
        raise LabError("the guest switched itself off before its command had ended") from error
    return GuestRun(
        returncode=int(status),
        stdout=_read_output(desk / "stdout"),
        stderr=_read_output(desk / "stderr"),
        boot_seconds=boot_seconds,
    )


def _read_output(path: Path) -> str:
    if path.stat().st_size > MAX_OUTPUT_BYTES:
        raise LabError(f"the command in the guest wrote more than {MAX_OUTPUT_BYTES} bytes to its {path.name}")
    return path.read_text(encoding="utf-8", errors="replace")


def _ends_of(*files: Path) -> str:
    """Give the ends of these files, those that have any text, each under its name."""
    texts = {path.name: _last_text(path).strip() for path in files if path.is_file()}
    return "\n".join(f"{name}:\n{text}" for name, text in texts.items() if text) or "nobody said why"


def _last_text(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        return file.read(TAIL_BYTES).decode(errors="replace")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command in a guest and give its exit status."""
    options = _parse(arguments)
    try:
        done = run_in_guest(
            options.argv,
            timeout=options.timeout,
            memory_mebibytes=options.memory,
            cpus=options.cpus,
            shared_folders=options.share,
        )
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    print(done.stdout, end="", flush=True)
    print(done.stderr, end="", file=sys.stderr)
    return done.returncode


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.guest", description="Run a command in a guest with cgroup v2.")
    seconds = DEFAULT_TIMEOUT_SECONDS
    parser.add_argument("--timeout", type=float, default=seconds, help="seconds, boot included (%(default)s)")
    parser.add_argument("--memory", type=int, default=DEFAULT_MEMORY_MEBIBYTES, help="mebibytes (%(default)s)")
    parser.add_argument("--cpus", type=int, default=DEFAULT_CPUS, help="processors (%(default)s)")
    parser.add_argument("--share", type=Path, action="append", default=[], help="a folder that is written for real")
    parser.add_argument("argv", nargs="+", metavar="command", help="the command, after --")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
