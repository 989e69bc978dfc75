# SPDX-License-Identifier: Apache-2.0
"""Provide a kernel for the guest: the distribution's own, unpacked into a cache and not installed.

The first use downloads some 70 MB; what is kept are about 60 MB, until the folder is removed by hand or RECIPE changes.
"""

import contextlib
import fcntl
import lzma
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.errors import GuestUnavailable, LabError
from lab.waiting import wait_until

# Count up whenever what is put into the cache changes.
RECIPE = 1
# Depends on the newest kernel of the usual flavour; the smaller "cloud" flavour has no 9p.
PACKAGE = "linux-image-amd64"
# What the guest needs to reach its devices and the host's files; what these depend on is found out.
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
COMMAND_SECONDS = 300.0
LOCK_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestKernel:
    """Name a kernel image and its modules in the order in which they must be loaded."""

    image: Path
    modules: tuple[Path, ...]


def cache_folder() -> Path:
    """Give the folder that keeps kernels between runs, by default in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "slurmscope-lab"


def provide_kernel(cache: Path) -> GuestKernel:
    """Give the kernel in the cache, and download it first when there is none."""
    folder = cache / f"guest-kernel-{RECIPE}"
    if not folder.is_dir():
        try:
            cache.mkdir(parents=True, exist_ok=True)
            with _lock(cache / "lock"):
                if not folder.is_dir():
                    _fill(folder)
        except OSError as error:
            raise GuestUnavailable(f"The guest's kernel cannot be kept in {cache}: {error}.") from error
    return GuestKernel(image=folder / "image", modules=tuple(sorted(folder.glob("*.ko"))))


def unpack_image(packed: bytes) -> bytes:
    """Give the kernel proper out of an x86 boot image; where we cannot unpack it, the image as it is.

    Emulated, the kernel takes several seconds to unpack itself. Where its packed part lies is told by the header, whose
    layout the kernel documents as its boot protocol.
    """
    setup_sectors = packed[0x1F1] or 4
    offset = int.from_bytes(packed[0x248:0x24C], "little")
    length = int.from_bytes(packed[0x24C:0x250], "little")
    begin = (setup_sectors + 1) * 512 + offset
    try:
        # The size of the unpacked kernel follows the stream; a decompressor object stops before it.
        kernel = lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(packed[begin : begin + length])
    except lzma.LZMAError:
        return packed
    return kernel if kernel.startswith(b"\x7fELF") else packed


def order_modules(tree: Path, wanted: Sequence[str]) -> dict[str, bytes]:
    """Give the wanted modules by name, each after those that it depends on; built-in ones are left out."""
    files = {_module_name(path): path for path in tree.rglob("*.ko*")}
    builtin = {_module_name(Path(line)) for line in (tree / "modules.builtin").read_text(encoding="ascii").splitlines()}
    ordered: dict[str, bytes] = {}

    def add(name: str) -> None:
        if name in ordered or name in builtin:
            return
        if name not in files:
            raise GuestUnavailable(f"The distribution's kernel has no module {name}, which the guest needs.")
        content = _read_module(files[name])
        for needed in _dependencies(content):
            add(needed)
        ordered[name] = content

    for name in wanted:
        add(name)
    return ordered


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Keep a second process from downloading the same."""
    with path.open("w") as file:

        def is_ours() -> bool:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            return False

        wait_until(is_ours, f"another process to let {path} go", timeout_seconds=LOCK_SECONDS)
        yield


def _fill(folder: Path) -> None:
    """Make the folder, aside first, so that nobody meets half a kernel."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="new-") as name:
        work = Path(name)
        package = _download(work)
        _run([_need("dpkg-deb"), "--extract", str(package), str(work / "files")], work)
        image = _only(work / "files", "boot/vmlinuz-*")
        tree = _only(work / "files", "lib/modules/*", "usr/lib/modules/*")
        aside = work / "kernel"
        aside.mkdir(mode=0o755)
        (aside / "image").write_bytes(unpack_image(image.read_bytes()))
        for number, (module, content) in enumerate(order_modules(tree, MODULES).items()):
            (aside / f"{number:02}-{module}.ko").write_bytes(content)
        aside.rename(folder)


def _download(work: Path) -> Path:
    """Fetch the newest kernel package into a folder."""
    try:
        return _try_download(work)
    except LabError:
        # Lists of packages may be missing on a fresh machine, or older than what the mirror still has.
        _run([_need("apt-get"), "-qq", "update"], work)
        return _try_download(work)


def _try_download(work: Path) -> Path:
    shown = _run([_need("apt-cache"), "depends", PACKAGE], work)
    names = re.findall(r"^\s*Depends: (linux-image-\S+)$", shown, re.MULTILINE)
    if not names:
        raise GuestUnavailable(f"The guest boots Debian's kernel, and apt knows no package {PACKAGE} here.")
    # apt's own unprivileged user cannot write here.
    _run([_need("apt-get"), "-qq", "-o", "APT::Sandbox::User=root", "download", names[0]], work)
    return _only(work, "linux-image-*.deb")


def _run(argv: Sequence[str], folder: Path) -> str:
    try:
        done = subprocess.run(
            argv, cwd=folder, capture_output=True, text=True, errors="replace", timeout=COMMAND_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise GuestUnavailable(f"No kernel for the guest: {argv[0]} took over {COMMAND_SECONDS:g} s.") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it did not say why"])[-1]
        raise GuestUnavailable(f"No kernel for the guest: {' '.join(argv)} failed: {last}.")
    return done.stdout


def _need(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise GuestUnavailable(f"The guest's kernel comes from a Debian package, and there is no {program} here.")
    return path


def _only(folder: Path, *patterns: str) -> Path:
    found = [path for pattern in patterns for path in folder.glob(pattern)]
    if not found:
        raise GuestUnavailable(f"The distribution's kernel package holds no {patterns[0]}.")
    return found[0]


def _module_name(path: Path) -> str:
    """Give the name the kernel uses; file names may have a dash instead."""
    return path.name.partition(".")[0].replace("-", "_")


def _read_module(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(content)
    if path.suffix != ".ko":
        raise GuestUnavailable(f"The kernel module {path.name} is packed in a way that is not known here.")
    return content


def _dependencies(module: bytes) -> list[str]:
    """Read what the module says about itself: texts that end in zero bytes, one of them "depends=a,b"."""
    found = re.search(rb"\0depends=([\w,-]*)\0", module)
    names = found[1].decode("ascii").split(",") if found else []
    return [name.replace("-", "_") for name in names if name]
