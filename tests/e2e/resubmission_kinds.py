# SPDX-License-Identifier: Apache-2.0
"""List kinds of real jobs with what is true about them, so that advice about them can be wrong.

The need of a program is written here by hand and never read from a report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of job: how it is submitted, what it does, and what advice must respect."""

    name: str
    script: str
    """``work`` runs the program of known behaviour."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of sbatch by long name, written as #SBATCH lines."""
    typed: Mapping[str, str] = field(default_factory=dict)
    """Options on the command line, which override those of the script and which accounting stores."""
    ends: str = "COMPLETED"
    """How the first run ends."""
    needs_mebibytes: int = 0
    """Memory per node without which the program cannot complete; the header may not request less."""
    needs_cpus: int = 1
    """Cores without which it cannot start, or would be slower."""
    needs_nodes: int = 1
    """Nodes without which a step of it cannot start."""
    uses_cache: bool = False
    """Whether the kernel's peak is mostly file cache, which a smaller request may well leave out."""
    short_of: frozenset[str] = frozenset()
    """What was short: only this may get larger, and it has to."""
    frees: frozenset[str] = frozenset()
    """What was requested in vain and has to get smaller, of mem, cpus and nodes."""
    wrong: frozenset[str] = frozenset()
    """Rules that may not warn about this job."""
    unfounded: frozenset[str] = frozenset()
    """Rules that may say nothing at all about this job."""
    can_complete: bool = True
    """Whether the program can complete at all: one that fails by itself fails with any header."""
    action: str = ""
    """What is done to the first run: cancel, suspend, requeue."""
    part: str = ""
    """The task of an array (``_1``) or the part of a heterogeneous job (``+0``) to report."""
    second_part: Mapping[str, str] = field(default_factory=dict)
    """Options of a second part, which makes the job heterogeneous."""


def _of(*names: str) -> frozenset[str]:
    return frozenset(names)


MEMORY_KINDS = (
    Kind(
        name="memory_spike",
        script="work spike 700 5 5",
        options={"mem": "3000M"},
        needs_mebibytes=700,
        frees=_of("mem"),
    ),
    Kind(
        name="memory_freed_at_once",
        script="work spike 600 0 10",
        options={"mem": "2500M"},
        needs_mebibytes=600,
        frees=_of("mem"),
    ),
    Kind(
        name="memory_spike_at_the_end",
        script="work hold 20 10; work spike 700 0 0",
        options={"mem": "2500M"},
        needs_mebibytes=700,
    ),
    Kind(name="short_spike", script="work spike 600 0 0", options={"mem": "2000M"}, needs_mebibytes=600),
    Kind(
        name="memory_far_below_its_limit",
        script="work hold 100 10",
        typed={"mem": "2000M"},
        needs_mebibytes=100,
        frees=_of("mem"),
    ),
    Kind(
        name="memory_near_its_limit",
        script="work hold 300 10",
        options={"mem": "315M"},
        needs_mebibytes=300,
        short_of=_of("mem"),
    ),
    Kind(
        name="step_with_its_own_limit",
        script="sleep 5; srun --mem=100M work hold 250 10; code=$?; sleep 5; exit $code",
        options={"mem": "800M"},
        ends="FAILED",
        can_complete=False,
    ),
    Kind(
        name="linear_growth",
        script="work grow 400 8",
        options={"mem": "250M", "time": "2"},
        ends="OUT_OF_MEMORY",
        needs_mebibytes=400,
        short_of=_of("mem"),
    ),
    Kind(
        name="out_of_memory_at_once",
        script="work hold 150 10",
        options={"mem": "60M"},
        ends="OUT_OF_MEMORY",
        needs_mebibytes=150,
        short_of=_of("mem"),
    ),
    Kind(
        name="out_of_memory_late",
        script="work hold 100 8; work hold 700 4",
        typed={"mem": "400M"},
        ends="OUT_OF_MEMORY",
        needs_mebibytes=700,
        short_of=_of("mem"),
    ),
    Kind(
        name="out_of_memory_ignored",
        script="work hold 200 5 || true; sleep 5",
        options={"mem": "100M"},
        ends="OUT_OF_MEMORY",
        needs_mebibytes=200,
        short_of=_of("mem"),
    ),
    Kind(
        name="two_tasks_with_memory",
        script="srun -n2 work hold 300 10",
        options={"ntasks": "2", "mem": "2000M"},
        needs_mebibytes=600,
        needs_cpus=2,
        frees=_of("mem"),
    ),
    Kind(
        name="memory_per_core",
        script="work hold 150 10",
        typed={"ntasks": "1", "cpus-per-task": "2", "mem-per-cpu": "1000M"},
        needs_mebibytes=150,
        frees=_of("mem"),
    ),
    Kind(
        name="memory_per_core_in_the_script",
        script="work hold 150 10",
        options={"ntasks": "1", "cpus-per-task": "2", "mem-per-cpu": "1000M"},
        needs_mebibytes=150,
        frees=_of("mem"),
    ),
    Kind(
        name="step_with_a_request_of_its_own",
        script="srun --mem=900M work hold 100 10",
        options={"mem": "2000M"},
        needs_mebibytes=900,
    ),
    Kind(name="tiny", script="work hold 20 8", options={"mem": "300M"}, needs_mebibytes=20),
    Kind(
        name="shared_memory",
        script="work shared_memory 450 10",
        options={"mem": "2000M"},
        needs_mebibytes=450,
        frees=_of("mem"),
    ),
    Kind(
        name="file_cache",
        script="work cache 600 10",
        options={"mem": "2000M"},
        uses_cache=True,
    ),
)
CPU_KINDS = (
    Kind(
        name="one_busy_task",
        script="srun -n4 work one_of spin 1 10",
        typed={"ntasks": "4", "mem": "400M"},
        needs_cpus=4,
    ),
    Kind(
        name="one_busy_task_of_a_script",
        script="srun work one_of spin 1 10",
        options={"ntasks": "4", "mem": "400M"},
        needs_cpus=4,
    ),
    Kind(
        name="pinned_threads",
        script="work pinned 8 10",
        typed={"cpus-per-task": "8", "mem": "400M"},
        needs_cpus=8,
    ),
    Kind(
        name="threads_on_their_cores",
        script="work spin 4 20",
        typed={"ntasks": "1", "cpus-per-task": "4", "mem": "400M"},
        needs_cpus=4,
    ),
    Kind(
        name="serial_on_four_cores",
        script="work spin 1 10",
        typed={"cpus-per-task": "4", "mem": "400M"},
        frees=_of("cpus"),
    ),
    Kind(
        name="serial_with_memory_of_four_cores",
        script="work hold 600 2; work spin 1 10",
        typed={"ntasks": "1", "cpus-per-task": "4", "mem-per-cpu": "500M"},
        needs_mebibytes=600,
        frees=_of("cpus", "mem"),
    ),
    Kind(
        name="tasks_of_several_cores",
        script="srun work spin 2 20",
        options={"ntasks": "2", "cpus-per-task": "2", "mem": "400M"},
        needs_cpus=4,
    ),
    Kind(
        name="idle_on_four_cores",
        script="work hold 20 10",
        typed={"cpus-per-task": "4", "mem": "400M"},
        frees=_of("cpus"),
    ),
    Kind(
        name="step_on_one_core",
        script="srun work spin 1 10",
        options={"ntasks": "1", "mem": "400M"},
        wrong=_of("too_many_threads"),
    ),
    Kind(
        name="step_with_cores_of_its_own",
        script="srun -c4 work spin 1 10",
        typed={"ntasks": "1", "cpus-per-task": "4", "mem": "400M"},
        needs_cpus=4,
    ),
    Kind(
        name="serial_in_the_script",
        script="work spin 1 10",
        options={"cpus-per-task": "4", "mem": "400M"},
    ),
    Kind(
        name="sleeping_threads",
        script="work sleepers 40 10",
        options={"ntasks": "1", "mem": "400M"},
        wrong=_of("too_many_threads"),
    ),
    Kind(name="fork_storm", script="work forks 10", options={"mem": "400M"}),
    Kind(name="exclusive", script="work hold 20 10", typed={"exclusive": "", "mem": "400M"}, needs_cpus=1),
)
NODE_KINDS = (
    Kind(
        name="two_nodes_without_srun",
        script="work spin 1 10",
        typed={"nodes": "2", "ntasks-per-node": "1", "mem": "400M"},
    ),
    Kind(
        name="two_nodes_at_work",
        script="srun work spin 1 10",
        typed={"nodes": "2", "ntasks-per-node": "1", "mem": "400M"},
        needs_cpus=2,
        wrong=_of("node_imbalance"),
    ),
    Kind(
        # Slurm starts one task on each node: with fewer nodes there would be fewer tasks.
        name="task_on_each_node",
        script="srun work spin 1 10",
        typed={"nodes": "2", "mem": "400M"},
        needs_cpus=2,
        needs_nodes=2,
    ),
    Kind(
        name="step_with_an_idle_node",
        script="srun -N2 -n2 work one_of spin 1 10",
        typed={"nodes": "2", "ntasks-per-node": "1", "mem": "400M"},
        needs_cpus=2,
        needs_nodes=2,
    ),
)
FILE_KINDS = (
    Kind(name="small_files", script="work files 10", options={"mem": "400M"}),
    Kind(name="pipes", script="work pipe 2000 8", options={"mem": "400M"}, unfounded=_of("scratch_unused")),
)
TIME_KINDS = (
    Kind(
        name="timeout",
        script="work hold 20 95; work spike 700 0 0",
        options={"mem": "2500M", "time": "1"},
        ends="TIMEOUT",
        needs_mebibytes=700,
        short_of=_of("time"),
    ),
    Kind(name="near_its_time_limit", script="sleep 57", options={"time": "1"}, short_of=_of("time")),
    Kind(name="far_below_its_time_limit", script="sleep 8", options={"time": "60"}),
    Kind(name="with_a_minimal_time", script="sleep 8", typed={"time": "50", "time-min": "20"}),
    Kind(name="under_a_second", script="true", options={"mem": "1000M", "time": "30"}),
)
ENDINGS = (
    Kind(name="exit_4", script="sleep 6; exit 4", options={"mem": "2000M"}, ends="FAILED", can_complete=False),
    Kind(
        name="exit_7_of_a_step",
        script="srun sh -c 'sleep 6; exit 7'",
        options={"mem": "2000M"},
        ends="FAILED",
        can_complete=False,
    ),
    Kind(name="aborted", script="sleep 6; kill -ABRT $$", options={"mem": "2000M"}, ends="FAILED", can_complete=False),
    Kind(
        name="segmentation_fault",
        script="sleep 6; kill -SEGV $$",
        options={"mem": "2000M"},
        ends="FAILED",
        can_complete=False,
    ),
    Kind(
        name="cancelled",
        script="work hold 20 12; work spike 700 0 0",
        options={"mem": "2500M"},
        ends="CANCELLED",
        needs_mebibytes=700,
        action="cancel",
    ),
    Kind(name="suspended", script="work hold 200 12", options={"mem": "1500M"}, needs_mebibytes=200, action="suspend"),
    Kind(name="requeued", script="work hold 200 12", options={"mem": "1500M"}, needs_mebibytes=200, action="requeue"),
)
SPECIAL = (
    Kind(
        name="array",
        script="work hold 100 10",
        typed={"array": "1-2", "mem": "1500M"},
        needs_mebibytes=100,
        part="_1",
    ),
    Kind(
        name="uneven_array",
        script="work hold 100 8; [ $SLURM_ARRAY_TASK_ID = 1 ] || work hold 700 2",
        typed={"array": "1-2", "mem": "1500M"},
        needs_mebibytes=700,
        part="_1",
    ),
    Kind(
        name="heterogeneous",
        script="work hold 100 10",
        options={"ntasks": "1", "mem": "1500M"},
        second_part={"ntasks": "1", "mem": "300M"},
        needs_mebibytes=100,
        frees=_of("mem"),
        part="+0",
    ),
    Kind(name="without_steps", script="", typed={"mem": "1500M"}, ends="CANCELLED", action="cancel"),
    Kind(
        name="with_a_gpu",
        script="work hold 100 10",
        typed={"partition": "gpus", "gres": "gpu:a100:1", "mem": "1500M"},
        needs_mebibytes=100,
    ),
    Kind(
        name="with_a_license",
        script="work hold 100 10",
        typed={"licenses": "matlab:2", "mem": "1500M"},
        needs_mebibytes=100,
    ),
)
GROUPS: Mapping[str, tuple[Kind, ...]] = {
    "memory": MEMORY_KINDS,
    "cores": CPU_KINDS,
    "nodes": NODE_KINDS,
    "files": FILE_KINDS,
    "time limits": TIME_KINDS,
    "endings": ENDINGS,
    "other requests": SPECIAL,
}
KINDS = tuple(kind for group in GROUPS.values() for kind in group)
