# SPDX-License-Identifier: Apache-2.0
"""Build the documentation as a site with search, in dist/site; ``make site`` calls it.

The pages are those of ``docs/`` as they are, and what they link to outside of it, which is put under ``files/``.
A link or an anchor that leads nowhere ends the build.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]\n]*)\]\((?!https?:|mailto:)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


def main() -> int:
    gather(ROOT / "dist" / "docs")
    builder = Path(sys.executable).with_name("zensical")
    return subprocess.run([builder, "build", "--strict", "--clean"], cwd=ROOT, check=False).returncode


def gather(target: Path) -> None:
    """Fill a folder with all files of the site; one that is there already is replaced."""
    shutil.rmtree(target, ignore_errors=True)
    waiting = [path for path in sorted(DOCS.rglob("*")) if path.is_file()]
    known = set(waiting)
    while waiting:
        source = waiting.pop()
        place = target / _place_of(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix != ".md":
            shutil.copyfile(source, place)
            continue
        text = source.read_text(encoding="utf-8")
        place.write_text(LINK.sub(partial(_move, source), text), encoding="utf-8")
        linked = {(source.parent / link["path"]).resolve() for link in LINK.finditer(text)}
        new = sorted(path for path in linked - known if path.is_file())
        known.update(new)
        waiting += new


def _place_of(source: Path) -> Path:
    return source.relative_to(DOCS) if source.is_relative_to(DOCS) else Path("files") / source.relative_to(ROOT)


def _move(page: Path, link: re.Match[str]) -> str:
    """Return a link as it is on the site; of one to a folder of the repository, its text."""
    linked = (page.parent / link["path"]).resolve()
    if linked.is_dir():
        return link["text"]
    path = os.path.relpath(_place_of(linked), _place_of(page).parent)
    return f"[{link['text']}]({path}{link['anchor'] or ''})"


if __name__ == "__main__":
    sys.exit(main())
