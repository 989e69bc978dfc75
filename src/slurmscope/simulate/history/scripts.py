# SPDX-License-Identifier: Apache-2.0
"""Write the script of a simulated job, in some of them with a usual mistake."""

from __future__ import annotations

import re

from slurmscope.model.job_record import JobRecord

_ODD = re.compile(r"[^A-Za-z0-9_.-]+")
_MIB = 1 << 20


def make_script(record: JobRecord) -> str:
    """Return a script that requests what the job got; the job ID decides which mistake it has, if any."""
    kind = record.job_id % 4
    cores, minutes = record.cpus or 1, (record.time_limit_seconds or 3600) // 60
    name = _ODD.sub("_", record.name)[:40] or "job"
    memory = f"#SBATCH --mem={(record.memory_bytes or 1 << 30) // _MIB // max(1, record.node_count)}M"
    has_threads = kind == 1 and cores > 1
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name={name}",
        f"#SBATCH --nodes={max(1, record.node_count)}",
        f"#SBATCH --ntasks={cores}",
        *([f"#SBATCH --time={minutes}"] if kind != 2 else ()),
        *([memory] if kind != 3 else ()),
        *([f"#SBATCH --gpus={record.gpus}"] if record.gpus else ()),
        "",
        "module load tools",
        *([memory] if kind == 3 else ()),
        *([f"export OMP_NUM_THREADS={cores}", f"./{name} input.dat"] if has_threads else [f"srun ./{name} input.dat"]),
    ]
    return "\n".join(lines) + "\n"
