# SPDX-License-Identifier: Apache-2.0
"""Write the guest's initial file system: busybox, kernel modules and the script that is process 1.

The format is the kernel's own ("newc"): for each file a header of hexadecimal numbers, its name, its content, both
padded to four bytes.
"""

import shutil
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.errors import GuestUnavailable
from lab.requirements import SEARCH_PATH

INIT_SCRIPT = Path(__file__).with_name("guest_init.sh")
# Mount points of the first stage, and where programs and modules lie.
FOLDERS = ("bin", "proc", "sys", "dev", "modules", "desk", "host", "changes", "machine")
# The name of the loader is near the start of every program that needs one.
HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Be one file, folder or device of the archive."""

    name: str
    mode: int
    content: bytes = b""
    device: tuple[int, int] = (0, 0)


def write_initial_files(target: Path, modules: Iterable[Path]) -> None:
    """Write the archive that the kernel unpacks before it starts the script."""
    entries = [
        *(Entry(name=name, mode=stat.S_IFDIR | 0o755) for name in FOLDERS),
        # Process 1 has no output unless this is there when it starts.
        Entry(name="dev/console", mode=stat.S_IFCHR | 0o600, device=(5, 1)),
        Entry(name="dev/null", mode=stat.S_IFCHR | 0o666, device=(1, 3)),
        _program("bin/busybox", find_busybox()),
        _program("init", INIT_SCRIPT),
        *(_program(f"modules/{path.name}", path) for path in modules),
    ]
    target.write_bytes(b"".join(_archive(entries)))


def find_busybox() -> Path:
    """Find a busybox that needs no libraries."""
    path = shutil.which("busybox", path=SEARCH_PATH)
    if path is None:
        raise GuestUnavailable("The program busybox is missing: apt-get install --no-install-recommends busybox-static")
    with Path(path).open("rb") as file:
        if b"/ld-linux" in file.read(HEAD_BYTES):
            raise GuestUnavailable(f"The guest needs a {path} without libraries: apt-get install busybox-static")
    return Path(path)


def _program(name: str, source: Path) -> Entry:
    return Entry(name=name, mode=stat.S_IFREG | 0o755, content=source.read_bytes())


def _archive(entries: Iterable[Entry]) -> Iterator[bytes]:
    number = 0
    for number, entry in enumerate(entries, start=1):
        yield from _record(number, entry)
    yield from _record(number + 1, Entry(name="TRAILER!!!", mode=0))


def _record(number: int, entry: Entry) -> Iterator[bytes]:
    name = entry.name.encode() + b"\0"
    # Inode, mode, user, group, links, time, size, device it lies on (2), device it is (2), length of name, checksum.
    fields = (number, entry.mode, 0, 0, 1, 0, len(entry.content), 0, 0, *entry.device, len(name), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    for part in (header + name, entry.content):
        yield part
        yield b"\0" * (-len(part) % 4)
