# SPDX-License-Identifier: Apache-2.0
"""Judge how a job used its GPUs."""

from __future__ import annotations

from slurmscope.figures import format_bytes, format_ratio, format_some
from slurmscope.model.finding import Severity, Subject
from slurmscope.model.summary import JobSummary
from slurmscope.rules.known import was_suspended
from slurmscope.rules.rule import Match, Rule, Threshold, Thresholds, min_run


def _utilization(summary: JobSummary, values: Thresholds) -> float | None:
    gpu = summary.gpu
    is_judged = gpu.asked > 0 and gpu.coverage.is_good and summary.run_seconds >= values["min_run_seconds"]
    return gpu.mean_utilization if is_judged else None


def _gpu_idle(summary: JobSummary, values: Thresholds) -> Match | None:
    utilization, asked = _utilization(summary, values), summary.gpu.asked
    # Those without a process have a rule of their own: here it is the others that did nothing.
    opened = asked - (summary.gpu.held_idle or 0)
    if utilization is None or opened <= 0 or utilization * asked / opened >= values["min_utilization_ratio"]:
        return None
    subject = "Your GPU was" if asked == 1 else f"Your {asked} GPUs were"
    return Match(
        explanation=f"{subject} busy for {format_ratio(utilization)} of the time: practically not at all.",
        numbers={"utilization_ratio": utilization, "gpus": float(asked)},
    )


def _held_without_process(summary: JobSummary, values: Thresholds) -> Match | None:
    idle, asked = summary.gpu.held_idle, summary.gpu.asked
    if not idle or asked <= 0 or summary.run_seconds < values["min_run_seconds"]:
        return None
    # Seen GPUs can be more than were asked for where Slurm counts slices or shares.
    rest, them = asked - idle, "it" if idle == 1 else "them"
    return Match(
        explanation=f"{format_some(idle, 'GPU')} of {asked} had no process of yours for most of the run, "
        f"and nobody else could have {them}.",
        numbers={"idle_gpus": float(idle), "gpus": float(asked)},
        suggestion=_fewer_gpus(summary, rest) if rest > 0 and summary.record.node_count == 1 else "",
        severity=Severity.CRITICAL if rest <= 0 else None,
    )


def _fewer_gpus(summary: JobSummary, count: int) -> str:
    """Ask for fewer GPUs of the same model, where there is one."""
    models = {gres.model for gres in summary.record.gres if gres.name == "gpu"}
    model = models.pop() if len(models) == 1 else ""
    return f"#SBATCH --gpus={model}:{count}" if model else f"#SBATCH --gpus={count}"


def _gpu_low(summary: JobSummary, values: Thresholds) -> Match | None:
    utilization = _utilization(summary, values)
    if utilization is None or utilization >= values["min_utilization_ratio"] or was_suspended(summary):
        return None
    asked, memory = summary.gpu.asked, summary.gpu.peak_memory_bytes
    needs_memory = memory is not None and memory / asked >= values["large_memory_bytes"]
    held = "" if memory is None else f" Your processes held up to {format_bytes(memory)} of GPU memory."
    return Match(
        explanation=f"{format_some(asked, 'GPU')} computed for {format_ratio(utilization)} of the time on average."
        f"{held}",
        numbers={"utilization_ratio": utilization, "gpus": float(asked)}
        | ({} if memory is None else {"peak_memory_bytes": memory}),
        severity=Severity.INFO if needs_memory else None,
    )


RULES = (
    Rule(
        id="gpu_held_without_process",
        title="GPUs were held but not used",
        subject=Subject.GPU,
        severity=Severity.WARNING,
        needs="processes on the job's GPUs",
        advice="Ask for as many GPUs as the program opens. Check that it finds them, and that it was built to use more "
        "than one.",
        check=_held_without_process,
        thresholds=(min_run(),),
        replaces=("gpu_low",),
    ),
    Rule(
        id="gpu_idle",
        title="The GPUs did nothing",
        subject=Subject.GPU,
        severity=Severity.CRITICAL,
        needs="GPU utilisation on every node",
        advice="Check that the program was built for GPUs, and that its log says it found one. If it does not need "
        "any, use a partition without.",
        check=_gpu_idle,
        thresholds=(
            Threshold(name="min_utilization_ratio", unit="ratio", default=0.02, help="Below this a GPU is idle."),
            min_run(),
        ),
        # That some had no process is the smaller news where the others did nothing either.
        replaces=("gpu_low", "gpu_held_without_process"),
    ),
    Rule(
        id="gpu_low",
        title="The GPUs waited most of the time",
        subject=Subject.GPU,
        severity=Severity.WARNING,
        needs="GPU utilisation on every node",
        advice="Feed them better: more workers that load data, larger batches, data on fast storage. Or use fewer or "
        "smaller GPUs, or a slice of one.",
        check=_gpu_low,
        thresholds=(
            Threshold(name="min_utilization_ratio", unit="ratio", default=0.25, help="Below this use is low."),
            Threshold(
                name="large_memory_bytes", unit="bytes", default=32.0 * (1 << 30),
                help="A job that fills this much memory of each GPU may need them for that: it only gets a hint.",
            ),
            min_run(),
        ),
    ),
)  # fmt: skip
