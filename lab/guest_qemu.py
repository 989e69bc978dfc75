# SPDX-License-Identifier: Apache-2.0
"""Run qemu with the guest's machine, and end it by its process id when its time is over."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lab.errors import GuestUnavailable, LabError
from lab.requirements import SEARCH_PATH

QEMU = "qemu-system-x86_64"
KERNEL_ARGUMENTS = (
    "console=ttyS0 quiet panic=-1 cgroup_no_v1=all psi=1"
    # The guest keeps no secrets, and each of these would cost an emulated machine time.
    " mitigations=off nokaslr random.trust_cpu=on"
)
END_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Describe the guest's hardware, and the files that get what its kernel and qemu say.

    Shares are folders of the host by the tag under which the guest mounts them; the host's root comes as "host".
    """

    image: Path
    initial_files: Path
    console: Path
    log: Path
    memory_mebibytes: int
    cpus: int
    shares: tuple[tuple[str, Path], ...]


def find_qemu() -> str:
    """Find qemu, or raise GuestUnavailable naming its Debian package."""
    if os.uname().machine != "x86_64":
        raise GuestUnavailable(f"The guest is an x86-64 machine, and this one is {os.uname().machine}.")
    if os.geteuid() != 0:
        raise GuestUnavailable("The guest must be started by root, because it runs on all files of this machine.")
    path = shutil.which(QEMU, path=SEARCH_PATH)
    if path is None:
        raise GuestUnavailable(
            f"The program {QEMU} is missing: apt-get install --no-install-recommends qemu-system-x86"
        )
    return path


def run_machine(qemu: str, machine: Machine, timeout: float) -> None:
    """Run the machine until it switches itself off, or raise LabError after the timeout."""
    argv = [*_dying_with_us(), qemu, *_arguments(machine)]
    # Ours is the only hand that ends it: a Ctrl-C of the terminal reaches us and not qemu.
    with (
        machine.log.open("wb") as output,
        subprocess.Popen(
            argv, cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        ) as process,
    ):
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise LabError(f"the guest was not done after {timeout:g} s") from error
        finally:
            _end(process)
    if status != 0:
        raise LabError(f"{QEMU} ended with status {status}")


def _arguments(machine: Machine) -> list[str]:
    """Give qemu's arguments: no device that is not named here, no window, no second boot."""
    arguments = ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-machine", "pc"]
    arguments += _accelerator()
    arguments += ["-m", str(machine.memory_mebibytes), "-smp", str(machine.cpus)]
    arguments += ["-kernel", str(machine.image), "-initrd", str(machine.initial_files), "-append", KERNEL_ARGUMENTS]
    arguments += ["-serial", f"file:{machine.console}"]
    arguments += _share("host", Path("/"), ",readonly=on")
    for tag, folder in machine.shares:
        arguments += _share(tag, folder, "")
    return arguments


def _accelerator() -> list[str]:
    """Choose how the guest's processors are made.

    /dev/kvm alone proves nothing: it is there on processors that cannot virtualise, and qemu then dies.
    """
    flags = set(Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").split())
    if flags & {"vmx", "svm"} and os.access("/dev/kvm", os.R_OK | os.W_OK):
        return ["-accel", "kvm", "-cpu", "host"]
    # Five-level page tables only make the emulation walk further.
    return ["-accel", "tcg,thread=multi", "-cpu", "max,la57=off"]


def _share(tag: str, folder: Path, more: str) -> list[str]:
    # qemu reads commas as separators unless they are doubled. Several file systems below one folder have inode
    # numbers in common, which "remap" keeps apart.
    path = str(folder).replace(",", ",,")
    option = f"local,id={tag},path={path},security_model=passthrough,multidevs=remap{more}"
    return ["-fsdev", option, "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]


def _dying_with_us() -> list[str]:
    """Give a prefix that lets the kernel kill qemu should we be killed ourselves."""
    setpriv = shutil.which("setpriv", path=SEARCH_PATH)
    return [] if setpriv is None else [setpriv, "--pdeathsig", "KILL"]


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
