# SPDX-License-Identifier: Apache-2.0
"""Run every benchmark and report which targets are met.

Each module in ``bench/`` has a ``main`` that prints its figures and returns 0 when all its targets
are met. Name modules to run only those: ``python -m bench exposition``. Options after one name are those of that
benchmark: ``python -m bench archive --jobs 200000``.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys

import bench

WITH_OPTIONS = ("archive", "portal")
HIDDEN = ("__main__", "archive_rows", "detectors", "gpu_jobs", "gpu_load", "measure", "nccl_ras")


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all of them, and return 1 when a target is missed."""
    known = [module.name for module in pkgutil.iter_modules(bench.__path__) if module.name not in HIDDEN]
    if {"-h", "--help"} & set(names):
        print("Usage: python -m bench [NAME]...")
        print("       python -m bench archive [--database NAME] [--jobs N]")
        print("       python -m bench portal [--database NAME] [--jobs N]\n")
        print(f"Measure speed and cost against targets. Names: {', '.join(known)}")
        return 0
    if len(names) > 1 and names[0] in WITH_OPTIONS and names[1].startswith("-"):
        return int(importlib.import_module(f"bench.{names[0]}").main(names[1:]))
    unknown = sorted(set(names) - set(known))
    if unknown:
        print(f"bench: there is no {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    broken = [name for name in names or known if importlib.import_module(f"bench.{name}").main() != 0]
    print(f"bench: targets missed in {', '.join(broken)}" if broken else "bench: every target is met")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
