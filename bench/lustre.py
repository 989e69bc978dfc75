# SPDX-License-Identifier: Apache-2.0
"""Measure what an answer with 50,000 job IDs of Lustre costs, from its bytes to the metrics page.

Half of the IDs are jobs, the others programs: names that their users choose, and as many as they like.
"""

from __future__ import annotations

import json
import sys
import tracemalloc

from bench.measure import judge, judge_seconds, least_seconds, reference_seconds
from slurmscope.cluster.squeue import JobOwner
from slurmscope.http.client.request import HttpAnswer
from slurmscope.lustre.feature import LustreOptions, collect
from slurmscope.lustre.reader import parse_rates
from slurmscope.lustre.use import Attribution, FilesystemUse, JobIdPatterns, NameService, Quantity
from slurmscope.metrics.write import Format, write
from slurmscope.prometheus.responses import parse_answer

JOB_IDS = 50_000
USERS = 500
CPU_LIMIT = 31.0
"""In references, of which 31 take about one second."""
MEMORY_LIMIT_MB = 128.0
PAGE_LIMIT = 5_000
"""Samples on the page: users and accounts, and bounded numbers of jobs and programs."""

OPTIONS = LustreOptions(job_id=("%e:%u:%g", r"site-(?P<uid>\d+)-(?P<program>.+)"))
OWNERS = {number: JobOwner(f"a{number % 50}", f"u{number % USERS}", f"p{number % 4}") for number in range(JOB_IDS // 2)}
NAMES = NameService(lambda uid: f"u{uid % USERS}", lambda uid: f"g{uid % 50}")


def main() -> int:
    """Measure CPU, memory and the size of the page."""
    answer = _answer()
    reference = reference_seconds()
    (seconds,) = least_seconds(lambda: _make_page(answer))
    tracemalloc.start()
    page = _make_page(answer)
    peak_mb = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    samples = sum(1 for line in page.splitlines() if not line.startswith(b"#"))
    kept = [
        judge_seconds(f"{JOB_IDS:,} job IDs of Lustre in one answer", seconds, CPU_LIMIT, reference),
        judge(
            "memory for them",
            f"{peak_mb:.0f} MB, an answer of {len(answer.body) / 1e6:.1f} MB",
            f"at most {MEMORY_LIMIT_MB:.0f} MB",
            is_met=peak_mb <= MEMORY_LIMIT_MB,
        ),
        judge("samples on the page", f"{samples:,}", f"at most {PAGE_LIMIT:,}", is_met=samples <= PAGE_LIMIT),
    ]
    return 0 if all(kept) else 1


def _answer() -> HttpAnswer:
    texts = (str(n // 2) if n % 2 else f"prog.{n}.{1000 + n % 7000}" for n in range(JOB_IDS))
    result = [
        {"metric": {"jobid": text, "filesystem": f"fs{n % 3}"}, "value": [1.0, f"{n}.5"]}
        for n, text in enumerate(texts, start=1)
    ]
    body = {"status": "success", "data": {"resultType": "vector", "result": result}}
    return HttpAnswer(status=200, body=json.dumps(body).encode())


def _make_page(answer: HttpAnswer) -> bytes:
    rates = parse_rates(Quantity.READ, OPTIONS, parse_answer(answer))
    attribution = Attribution(JobIdPatterns(OPTIONS.job_id), OWNERS, NAMES)
    use = FilesystemUse(rates={Quantity.READ: attribution.attribute(rates)})
    return b"".join(write(collect(OPTIONS, lustre=use), Format.TEXT))


if __name__ == "__main__":
    sys.exit(main())
