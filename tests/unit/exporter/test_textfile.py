# SPDX-License-Identifier: Apache-2.0
"""Check that a page file is replaced whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.errors import OutputError
from slurmscope.exporter.outputs import remove_stale_parts, write_textfile
from tests.fakes.small_disk import run_on_small_disk
from tests.leftovers import nothing_left

OLD = b"slurm_up 1\n"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """Give a file that already holds a page, alone in its folder."""
    path = tmp_path / "slurm.prom"
    path.write_bytes(OLD)
    return path


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


class TestWriting:
    def test_blocks_are_written_in_order(self, page: Path) -> None:
        write_textfile(page, [b"a 1\n", b"", b"b 2\n"])
        assert b"a 1\nb 2\n" == page.read_bytes()
        assert ["slurm.prom"] == names(page.parent)

    def test_first_write_makes_the_file(self, tmp_path: Path) -> None:
        write_textfile(tmp_path / "new.prom", [OLD])
        assert OLD == (tmp_path / "new.prom").read_bytes()

    @given(st.lists(st.binary(max_size=5000)))
    def test_any_bytes_come_back(self, blocks: list[bytes]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.prom"
            write_textfile(path, blocks)
            assert b"".join(blocks) == path.read_bytes()

    @pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
    def test_page_is_readable_by_all_with_any_umask(self, page: Path, umask: int) -> None:
        before = os.umask(umask)
        try:
            write_textfile(page, [b"a 1\n"])
        finally:
            os.umask(before)
        assert 0o100644 == page.stat().st_mode

    def test_unfinished_page_is_hidden_from_node_exporter_and_closed_to_others(self, page: Path) -> None:
        seen: list[tuple[str, int]] = []

        def blocks() -> Iterator[bytes]:
            yield b"a 1\n"
            seen.extend((entry.name, entry.stat().st_mode) for entry in page.parent.iterdir() if entry != page)

        write_textfile(page, blocks())
        ((name, mode),) = seen
        assert not name.endswith(".prom")
        assert 0o100600 == mode

    def test_link_is_replaced_and_not_followed(self, tmp_path: Path) -> None:
        (tmp_path / "target").write_bytes(OLD)
        (tmp_path / "slurm.prom").symlink_to(tmp_path / "target")
        write_textfile(tmp_path / "slurm.prom", [b"new 1\n"])
        assert OLD == (tmp_path / "target").read_bytes()
        assert b"new 1\n" == (tmp_path / "slurm.prom").read_bytes()


class TestFailing:
    @pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, OSError])
    def test_failing_blocks_pass_through_and_leave_nothing(self, page: Path, error: type[BaseException]) -> None:
        def blocks() -> Iterator[bytes]:
            yield b"half"
            raise error("stop")

        with pytest.raises(error, match="stop"):
            write_textfile(page, blocks())
        assert OLD == page.read_bytes()
        assert ["slurm.prom"] == names(page.parent)

    def test_missing_directory_is_reported(self, tmp_path: Path) -> None:
        missing = tmp_path / "none"
        with pytest.raises(OutputError) as caught:
            write_textfile(missing / "slurm.prom", [OLD])
        sentence = (
            f"{missing}/slurm.prom cannot be written: No such file or directory; does the directory {missing} exist?"
        )
        assert sentence == str(caught.value)

    def test_directory_in_place_of_the_file_is_reported(self, page: Path) -> None:
        page.unlink()
        page.mkdir()
        with pytest.raises(OutputError, match=r"slurm.prom cannot be replaced: Is a directory"):
            write_textfile(page, [b"a 1\n"])
        assert ["slurm.prom"] == names(page.parent)

    def test_message_is_printable(self) -> None:
        with pytest.raises(OutputError) as caught:
            write_textfile(Path("/nonexistent\x1b[31m\n/x.prom"), [OLD])
        assert str(caught.value).isprintable()

    def test_no_descriptor_is_left_open(self, page: Path) -> None:
        with nothing_left():
            for target in (page, page / "below-a-file", page.parent / "none" / "x.prom"):
                for _ in range(10):
                    with contextlib.suppress(OutputError):
                        write_textfile(target, [b"a 1\n"])


FULL_DISK = """
import json, os, sys
from pathlib import Path
from slurmscope.core.errors import OutputError
from slurmscope.exporter.outputs import remove_stale_parts, write_textfile

page = Path(sys.argv[1]) / "slurm.prom"

def attempt(size):
    try:
        write_textfile(page, [b"x" * 1000] * (size // 1000))
    except OutputError as error:
        told = str(error).removeprefix(str(page) + " ")
    else:
        told = "written"
    return told, page.stat().st_size, sorted(os.listdir(page.parent))

results = [attempt(50_000), attempt(400_000), attempt(60_000)]
os.system(f"mount -o remount,ro {page.parent}")
results.append(attempt(70_000))
print(json.dumps(results))
"""


def test_full_and_read_only_disks_leave_the_old_page(tmp_path: Path) -> None:
    ended = run_on_small_disk(tmp_path, 256, FULL_DISK)
    alone = ["slurm.prom"]
    assert [
        ["written", 50_000, alone],
        ["cannot be written: No space left on device; free some space, the next write tries again", 50_000, alone],
        ["written", 60_000, alone],
        ["cannot be written: Read-only file system", 60_000, alone],
    ] == json.loads(ended)


class TestPageIsNeverHalf:
    PAGES = (b"a 1\n" * 100_000, b"b 2\n" * 150_000)

    def test_reader_sees_whole_pages_only(self, page: Path) -> None:
        page.write_bytes(self.PAGES[0])
        is_done = threading.Event()

        def write() -> None:
            for turn in range(60):
                write_textfile(page, [self.PAGES[turn % 2][at : at + 65536] for at in range(0, 600_000, 65536)])
            is_done.set()

        writer = threading.Thread(target=write)
        writer.start()
        seen = []
        while not is_done.is_set() and writer.is_alive():
            seen.append(page.read_bytes() in self.PAGES)
        writer.join(60)
        assert is_done.is_set()
        assert {True} == set(seen)

    def test_killed_writer_leaves_the_old_or_the_new_page(self, page: Path) -> None:
        page.write_bytes(self.PAGES[0])
        program = (
            "import sys\nfrom pathlib import Path\nfrom slurmscope.exporter.outputs import write_textfile\n"
            "print('ready', flush=True)\n"
            "while True:\n"
            "    for line, count in ((b'a 1\\n', 100_000), (b'b 2\\n', 150_000)):\n"
            "        write_textfile(Path(sys.argv[1]), [line * 1000] * (count // 1000))\n"
        )
        for _ in range(12):
            argv = [sys.executable, "-c", program, str(page)]
            with subprocess.Popen(argv, stdout=subprocess.PIPE) as writer:
                assert writer.stdout is not None
                writer.stdout.readline()
                time.sleep(random.uniform(0, 0.03))
                writer.kill()
            assert page.read_bytes() in self.PAGES
            assert 0o100644 == page.stat().st_mode
        leftover = len(names(page.parent)) - 1
        assert leftover == remove_stale_parts(page)
        assert ["slurm.prom"] == names(page.parent)


class TestStaleParts:
    def test_only_own_parts_are_removed(self, page: Path) -> None:
        own = ".slurm.prom.0123456789abcdef.part"
        others = [
            ".other.prom.0123456789abcdef.part", "slurm.prom.0123456789abcdef.part", ".slurm.prom.0123.part",
            ".slurmXprom.0123456789abcdef.part", ".slurm.prom.0123456789abcdef.part~", ".slurm.prom.swp",
        ]  # fmt: skip
        for name in (own, *others):
            (page.parent / name).write_bytes(b"half")
        assert 1 == remove_stale_parts(page)
        assert sorted([*others, "slurm.prom"]) == names(page.parent)

    def test_part_of_a_real_killed_write_is_recognised(self, page: Path) -> None:
        program = (
            "import os, signal, sys\nfrom pathlib import Path\n"
            "from slurmscope.exporter.outputs import write_textfile\n"
            "write_textfile(Path(sys.argv[1]), (os.kill(os.getpid(), signal.SIGKILL) for _ in range(1)))\n"
        )
        subprocess.run([sys.executable, "-c", program, str(page)], check=False, timeout=60)
        assert 2 == len(names(page.parent))
        assert 1 == remove_stale_parts(page)
        assert ["slurm.prom"] == names(page.parent)

    def test_missing_directory_is_reported(self, tmp_path: Path) -> None:
        with pytest.raises(OutputError, match="does the directory"):
            remove_stale_parts(tmp_path / "none" / "slurm.prom")

    def test_part_that_cannot_be_removed_is_reported(self, page: Path) -> None:
        (page.parent / ".slurm.prom.0123456789abcdef.part").mkdir()
        with pytest.raises(OutputError, match="leftover temporary files that cannot be removed: Is a directory"):
            remove_stale_parts(page)
