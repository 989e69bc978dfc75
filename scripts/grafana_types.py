# SPDX-License-Identifier: Apache-2.0
"""Check the dashboards against Grafana's own types: that it knows every key and every word of a closed set.

``make grafana`` installs the types, which Grafana publishes for each release, into a temporary folder. What they do
not know they drop, so a dashboard that comes back whole has no misspelt or misplaced key.
"""

from __future__ import annotations

import enum
import importlib
import json
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

DASHBOARDS = Path(__file__).resolve().parent.parent / "deploy/grafana/dashboards"
PACKAGE = "grafana-foundation-sdk"
RELEASES = ("1769699998!10.1.0", "1769699379!11.6.0")
"""The number before the release of Grafana is that of the generator."""


def main(arguments: list[str]) -> int:
    """Check with each release, in a process of its own."""
    if arguments:
        return check(arguments[0])
    results = []
    for release in RELEASES:
        with TemporaryDirectory() as folder:
            pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check")
            subprocess.run([*pip, "--target", folder, f"{PACKAGE}=={release}"], check=True, timeout=300)
            argv = [sys.executable, "-m", "scripts.grafana_types", folder]
            results.append(subprocess.run(argv, check=False, timeout=300).returncode)
    return max(results)


def check(folder: str) -> int:
    """Print what the types in a folder do not know."""
    sys.path.insert(0, folder)
    importlib.import_module("grafana_foundation_sdk.cog.plugins").register_default_plugins()
    encoder = importlib.import_module("grafana_foundation_sdk.cog.encoder").JSONEncoder()
    read = importlib.import_module("grafana_foundation_sdk.models.dashboard").Dashboard.from_json
    wrong: list[str] = []
    files = sorted(DASHBOARDS.glob("*.json"))
    for file in files:
        ours = json.loads(file.read_text(encoding="utf-8"))
        wrong += lost(ours, json.loads(encoder.encode(read(ours))), file.name)
        wrong += unknown_words(read(ours), file.name)
    print("\n".join([*wrong, f"grafana: {len(files)} dashboards, {len(wrong)} unknown keys or words"]), flush=True)
    return 1 if wrong or not files else 0


def lost(ours: object, theirs: object, at: str) -> Iterator[str]:
    """Yield the places of a document at which a key or value is not in the other one."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            yield from lost(value, theirs.get(key), f"{at}/{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from lost(one, other, f"{at}/{index}")
    elif ours != theirs:
        yield f"{at}: {ours!r}"


def unknown_words(value: object, at: str) -> Iterator[str]:
    """Yield the places at which a word is none of those that its type allows."""
    if isinstance(value, dict | list):
        for key, below in value.items() if isinstance(value, dict) else enumerate(value):
            yield from unknown_words(below, f"{at}/{key}")
    elif hasattr(value, "to_json"):
        types = typing.get_type_hints(type(value))
        for name, below in vars(value).items():
            words = {member.value for closed in _closed_sets(types.get(name)) for member in closed}
            if words and isinstance(below, str) and not isinstance(below, enum.Enum) and below not in words:
                yield f"{at}/{name}: {below!r}"
            yield from unknown_words(below, f"{at}/{name}")


def _closed_sets(annotation: object) -> Iterator[type[enum.Enum]]:
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _closed_sets(argument)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
