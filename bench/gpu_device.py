# SPDX-License-Identifier: Apache-2.0
"""Compare what the node agent and ``slurmscope run`` say of a real NVIDIA GPU with what it really did.

Jobs are cgroups laid out as Slurm does, each with a process that loads the GPU with PyTorch and notes when it did. Four
agents run side by side, which are scraped every 1, 5, 15 and 60 seconds; it takes about eight minutes. As root, with
nothing else on the GPU: ``python3 -m bench.gpu_device FOLDER`` with a Python that has PyTorch, click and nvidia-ml-py.
Pages and reports are written to the folder, where one is given.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.gpu_jobs import Agent, Device, Job, Jobs, Page, Table, Window, job_tree, rate, share_of
from bench.gpu_node import child_of
from bench.measure import resident_bytes_of, running_exporter, scrape

INTERVALS = (1.0, 5.0, 15.0, 60.0)
MINUTE = 60.0
DUTIES = (0.2, 0.6, 1.0)
ENERGY_RATIO = 0.01
SETTLE_SECONDS = 3.0
_GPU_0 = {"gpu": "0", "mig": ""}

_LOADS = {
    **{f"duty {duty}": (2, f"duty:{duty}:{MINUTE + 9}") for duty in DUTIES},
    "fp32": (2, "fp32:16"),
    "copies": (2, "copy:16"),
    "first of two": (10, "duty:0.6:36"),
    "second of two": (20, "duty:0.3:36"),
}
"""Memory in GiB, and what is done then."""


class Trial:
    """All checks, one after the other."""

    def __init__(self, agents: Sequence[Agent], jobs: Jobs, table: Table, folder: Path) -> None:
        self._agents = agents
        self._jobs = jobs
        self._table = table
        self._folder = folder
        self._device = Device()
        self._pool = ThreadPoolExecutor(len(agents) + 8)
        self._cpu_seconds: dict[float, list[float]] = {agent.interval: [] for agent in agents}
        # To import PyTorch takes seconds; without a context none of them uses the GPU.
        self._ready = {name: jobs.start("wait", f"hold:{hold}", load) for name, (hold, load) in _LOADS.items()}

    def run(self) -> None:
        nvidia_smi = self._smi_cost()
        steps = (self._stuck, *(lambda duty=duty: self._duty(duty) for duty in DUTIES), self._fp32, self._copies,
                 self._shared, self._training)  # fmt: skip
        for step in steps:
            began = time.monotonic()
            try:
                step()
            except Exception as error:  # noqa: BLE001 - the other checks must go on
                self._table.add("this check", f"{type(error).__name__}: {error}", "no exception", is_met=False)
            self._table.note(f"[{time.monotonic() - began:.0f} s]")
        self._cost(nvidia_smi)

    def _smi_cost(self) -> float:
        query = "--query-gpu=utilization.gpu,memory.used,power.draw,temperature.gpu,clocks.sm"
        costs = []
        for _ in range(5):
            process = subprocess.Popen(["nvidia-smi", query, "--format=csv"], stdout=subprocess.DEVNULL)
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode = 0
            costs.append(usage.ru_utime + usage.ru_stime)
        return min(costs)

    def _watch(self, seconds: float, start: float | None = None) -> dict[float, list[Page]]:
        """Scrape each agent at its interval; those of longer intervals at both ends."""
        start = time.monotonic() + 0.1 if start is None else start

        def pages(agent: Agent) -> list[Page]:
            return agent.watch(start, seconds)

        agents = [agent for agent in self._agents if agent.interval <= seconds]
        return dict(zip([agent.interval for agent in agents], self._pool.map(pages, agents), strict=True))

    def close(self) -> None:
        for job in self._ready.values():
            job.kill()

    def _load(self, name: str) -> Job:
        job = self._ready.pop(name)
        job.go()
        return job

    def _settle(self, job: Job) -> None:
        """Wait until the process has its context, and one reading of each agent has seen that."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and job.process.pid not in self._device.memory():
            time.sleep(0.2)
        time.sleep(SETTLE_SECONDS)
        list(self._pool.map(Agent.page, self._agents))

    def _duty(self, duty: float) -> None:
        job = self._load(f"duty {duty}")
        self._settle(job)
        before = {agent.interval: agent.cpu_seconds() for agent in self._agents}
        began = time.monotonic()
        watched = self._pool.submit(self._watch, MINUTE, began + 0.1)
        metered = self._pool.submit(self._watts, MINUTE, began + 0.1)
        older = self._pool.submit(self._older_sources, MINUTE)
        gauges = []
        while time.monotonic() < began + MINUTE:
            gauges.append(self._device.gauge())
            time.sleep(5.0)
        pages, memory = watched.result(), self._device.memory().get(job.process.pid)
        for agent in self._agents:
            self._cpu_seconds[agent.interval].append(agent.cpu_seconds() - before[agent.interval])
        shares, window = older.result()
        (load,) = [done for done in job.end() if done["command"].startswith("duty")]
        self._compare_duty(duty, load["bursts"], pages, job.number)
        for source, share in shares.items():
            self._table.near(f"busy {duty:.0%}, source {source}", share, share_of(load["bursts"], window))
        self._table.note(f"NVML's gauge every 5 s: {min(gauges):.0%} to {max(gauges):.0%}")
        self._compare_energy(duty, pages, metered.result(), job.number)
        held = pages[1.0][-1].get("jobs_gpu_held_memory_bytes", slurm_job=job.number)
        self._table.add(
            f"memory of job {job.number}", f"{held}", f"NVML {memory}", is_met=held is not None and held == memory
        )
        if duty == 1:
            self._compare_products(pages[1.0], job.number, "bf16")

    def _watts(self, seconds: float, start: float) -> float:
        """Return the mean power by NVML's counter of energy."""
        time.sleep(max(0.0, start - time.monotonic()))
        began, joules = time.monotonic(), self._device.joules()
        time.sleep(seconds)
        return (self._device.joules() - joules) / (time.monotonic() - began)

    def _older_sources(self, seconds: float) -> tuple[dict[str, float | None], Window]:
        """Count as on boards without hardware counters: by the buffer of samples, and by the gauge alone."""
        from slurmscope.node.gpu.nvml_counters import COUNT_SECONDS, DeviceCounters

        began = time.monotonic()
        refused = ("nvmlGpmQueryDeviceSupport",), ("nvmlGpmQueryDeviceSupport", "nvmlDeviceGetSamples")
        counters = [
            DeviceCounters(self._device.nvml, self._device.call(*names), self._device.handle, began)
            for names in refused
        ]
        for number in range(1, int(seconds / COUNT_SECONDS) + 1):
            time.sleep(max(0.0, began + number * COUNT_SECONDS - time.monotonic()))
            for one in counters:
                one.count(time.monotonic(), [])
        found = [one.describe() for one in counters]
        shares: dict[str, float | None] = {
            str(one["source"]): one["totals"].get("busy", 0.0) / one["seconds"]  # type: ignore[attr-defined]
            for one in found
        }
        gauge = shares.pop("gauge", None)
        if gauge is not None:
            self._table.note(f"source gauge alone would say {gauge:.1%}; it is marked as such")
        return shares, (began, time.monotonic())

    def _compare_duty(self, duty: float, bursts: Sequence[Window], pages: dict[float, list[Page]], number: str) -> None:
        for interval, found in pages.items():
            window = (found[0].at, found[-1].at)
            truth = share_of(bursts, window)
            for name, labels in (
                ("gpu_busy_seconds_total", {}),
                ("jobs_gpu_busy_seconds_total", {"slurm_job": number}),
            ):
                share = rate(found, name, **_GPU_0, **labels)
                self._table.near(f"busy {duty:.0%}, every {interval:g} s, {name.split('_')[0]}", share, truth)

    def _compare_energy(self, duty: float, pages: dict[float, list[Page]], watts: float, number: str) -> None:
        for interval, found in pages.items():
            for name, labels in (
                ("gpu_energy_joules_total", {}),
                ("jobs_gpu_energy_joules_total", {"slurm_job": number}),
            ):
                ours = rate(found, name, **_GPU_0, **labels)
                text = "absent" if ours is None else f"{ours:.1f} W"
                is_met = ours is not None and abs(ours - watts) <= ENERGY_RATIO * watts
                what = f"energy at {duty:.0%}, every {interval:g} s, {name.split('_')[0]}"
                self._table.add(what, text, f"NVML {watts:.1f} W, within 1 %", is_met=is_met)
        last = pages[5.0][-1]
        total, parts = (
            last.get("slurm_node_energy_joules_total"),
            [last.get(f"slurm_node_energy_{part}_joules_total") for part in ("jobs", "idle")],
        )
        if total is not None and None not in parts:
            found_sum = sum(part or 0.0 for part in parts)
            is_met = abs(found_sum - total) <= 1e-6 * max(1.0, total)
            self._table.add("node energy: jobs and idle", f"{found_sum:.3f} J", f"meter {total:.3f} J", is_met=is_met)

    def _compare_products(self, pages: list[Page], number: str, kind: str) -> None:
        tensor = rate(pages, "jobs_gpu_tensor_active_seconds_total", slurm_job=number)
        fp32 = rate(pages, "jobs_gpu_pipe_active_seconds_total", slurm_job=number, pipe="fp32")
        sm = rate(pages, "jobs_gpu_sm_active_seconds_total", slurm_job=number)
        is_tensor = kind == "bf16"
        is_met = None not in (tensor, fp32) and (
            (tensor or 0) > 0.7 and (fp32 or 0) < 0.05 if is_tensor else (tensor or 0) < 0.01 and (fp32 or 0) > 0.5
        )
        wanted = "tensor above 70 %, fp32 below 5 %" if is_tensor else "tensor below 1 %, fp32 above 50 %"
        text = f"tensor {_percent(tensor)}, fp32 {_percent(fp32)}, SM {_percent(sm)}"
        self._table.add(f"{kind} matrix products", text, wanted, is_met=is_met)

    def _fp32(self) -> None:
        job = self._load("fp32")
        self._settle(job)
        pages = self._watch(8.0)[1.0]
        job.end()
        self._compare_products(pages, job.number, "FP32")

    def _copies(self) -> None:
        job = self._load("copies")
        self._settle(job)
        pages = self._watch(8.0)[1.0]
        (load,) = [done for done in job.end() if done["command"].startswith("copy")]
        (burst,) = load["bursts"]
        truth = load["bytes"] / (burst[1] - burst[0])
        received = rate(pages, "jobs_gpu_pcie_received_bytes_total", slurm_job=job.number) or 0.0
        sm = rate(pages, "jobs_gpu_sm_active_seconds_total", slurm_job=job.number)
        text = f"PCIe {received / 1e9:.1f} GB/s, SM {_percent(sm)}"
        # What goes over the bus has headers: a few percent more than the data.
        is_met = sm is not None and sm < 0.01 and truth * 0.95 <= received <= truth * 1.25
        self._table.add("copies from the host", text, f"copied {truth / 1e9:.1f} GB/s, SM below 1 %", is_met=is_met)

    def _shared(self) -> None:
        jobs = [self._load("first of two"), self._load("second of two")]
        for job in jobs:
            self._settle(job)
        watched = self._pool.submit(self._watch, 25.0)
        time.sleep(12)
        memory = self._device.memory()
        pages = watched.result()
        bursts = [burst for job in jobs for done in job.end() if "bursts" in done for burst in done["bursts"]]
        for interval, found in pages.items():
            whole = rate(found, "gpu_busy_seconds_total", **_GPU_0)
            parts = [rate(found, "jobs_gpu_busy_seconds_total", slurm_job=job.number) for job in jobs]
            shown = " + ".join(map(_percent, parts))
            total = sum(part or 0.0 for part in parts)
            self._table.near(f"two jobs every {interval:g} s: {shown}", total, whole or 0.0, 0.005)
            window = (found[0].at, found[-1].at)
            self._table.near(f"two jobs every {interval:g} s: GPU", whole, share_of(bursts, window))
        last = pages[1.0][-1]
        marks = [last.get("jobs_gpu_counters_estimated", slurm_job=job.number) for job in jobs]
        self._table.add("two jobs: marked as estimated", f"{marks}", "[1.0, 1.0]", is_met=marks == [1.0, 1.0])
        for job in jobs:
            held = last.get("jobs_gpu_held_memory_bytes", slurm_job=job.number)
            truth = memory.get(job.process.pid)
            self._table.add(
                f"two jobs: memory of {job.number}",
                f"{held}",
                f"NVML {truth}",
                is_met=held is not None and held == truth,
            )

    def _report(self, name: str, *commands: str) -> tuple[dict[str, Any], Job, list[dict[str, Any]]]:
        file = self._folder / f"{name}.json"
        run = (sys.executable, "-m", "slurmscope", "run", "--format", "json", "-o", str(file), "--")
        job = self._jobs.start("wait", *commands, prefix=run)
        job.go()
        done = job.end()
        return json.loads(file.read_text()), job, done

    def _stuck(self) -> None:
        """A notebook that holds memory and rests, then a kernel that never ends."""
        watched = self._pool.submit(self._watch, 58.0, time.monotonic() + 2)
        report, job, done = self._report("stuck", "hold:4", "idle:15", "spin:38")
        pages = watched.result()[1.0]
        spin, idle = (next(one for one in done if one["command"].startswith(name)) for name in ("spin", "idle"))
        (gpu,) = report["summary"]["gpu"]["devices"]
        seconds, truth = gpu["stuck_seconds"], spin["ended"] - spin["began"]
        is_met = seconds is not None and abs(seconds - truth) <= 4
        text = f"stuck for {seconds} s of {report['summary']['run_seconds']:.0f} s"
        self._table.add("spinner and idle notebook, run", text, f"only the {truth:.1f} s of the spinner", is_met=is_met)
        for name, load in (("idle notebook", idle), ("spinner", spin)):
            found = [page for page in pages if load["began"] + 3 < page.at < load["ended"] - 1]
            shares = [
                rate(found, f"jobs_gpu_{kind}_seconds_total", slurm_job=job.number) for kind in ("busy", "sm_active")
            ]
            watts = rate(found, "jobs_gpu_energy_joules_total", slurm_job=job.number)
            busy, sm = (-1.0 if share is None else share for share in shares)
            is_met = (busy >= 0.95 and 0 <= sm < 0.02) if name == "spinner" else 0 <= busy < 0.02
            text = f"busy {busy:.2%}, SM {sm:.2%}, {watts or 0:.0f} W"
            self._table.add(f"{name}, agent", text, "stuck is busy from 95 %, SM below 2 %", is_met=is_met)

    def _training(self) -> None:
        reports, steps, busy = [], [], []
        for precision in ("fp32", "bf16"):
            watched = self._pool.submit(self._watch, 60.0, time.monotonic() + 12)
            report, job, done = self._report(f"training-{precision}", f"train:{precision}:62")
            busy.append(rate(watched.result()[1.0][:45], "jobs_gpu_busy_seconds_total", slurm_job=job.number))
            reports.append(report)
            steps.append(done[-1]["steps"])
        found = [{finding["rule"]: finding for finding in report["findings"]} for report in reports]
        works = [report["summary"]["gpu"]["work"] for report in reports]
        for precision, work, agent, count in zip(("fp32", "bf16"), works, busy, steps, strict=True):
            shown = ", ".join(
                f"{name} {work[name + '_ratio']:.1%}" for name in ("busy", "sm", "tensor", "fp32", "dram")
            )
            self._table.note(f"training {precision}: {count} steps; run: {shown}; agent while it trains: busy {agent}")
        advice = found[0].get("gpu_tensor_unused", {}).get("advice", "")
        self._table.add("training in FP32", advice or f"findings {list(found[0])}", "names the line",
                        is_met="set_float32_matmul_precision" in advice)  # fmt: skip
        text = f"{steps[1] / max(1, steps[0]):.2f} times the steps; findings {list(found[1])}"
        self._table.add("training in bf16", text, "faster, finding gone",
                        is_met=steps[1] > 1.2 * steps[0] and "gpu_tensor_unused" not in found[1])  # fmt: skip
        files = [str(self._folder / f"training-{precision}.json") for precision in ("fp32", "bf16")]
        subprocess.run([sys.executable, "-m", "slurmscope", "compare", *files], check=False)

    def _cost(self, nvidia_smi: float) -> None:
        for agent in self._agents:
            spent = fmean(self._cpu_seconds[agent.interval])
            memory = [resident_bytes_of(pid) / 1e6 for pid in (agent.pid, agent.child)]
            each = spent / (MINUTE / agent.interval + 1)
            text = (
                f"{spent / MINUTE:.3%} of a core, {each * 1000:.1f} ms a reading, {memory[0]:.0f} + {memory[1]:.0f} MB"
            )
            is_met = spent / MINUTE < 0.01 if agent.interval >= 15 else each < nvidia_smi or agent.interval > 1
            limit = f"nvidia-smi {nvidia_smi * 1000:.1f} ms a reading"
            self._table.add(f"agent and child every {agent.interval:g} s", text, limit, is_met=is_met)


def _percent(share: float | None) -> str:
    return "absent" if share is None else f"{share:.1%}"


def _describe_machine(table: Table, agent: Agent, *, is_real: bool) -> None:
    page = agent.page()
    found = [line for line in page.text.splitlines() if line.startswith(("gpu_counters_source_info{", "gpu_info{"))]
    for line in (
        *found,
        *(line for line in page.text.splitlines() if line.startswith("slurm_node_energy_source_info")),
    ):
        table.note(line)
    table.note(f"cgroups are {'real ones of v2' if is_real else 'plain files'}; kernel {os.uname().release}")


def main(arguments: Sequence[str] = ()) -> int:
    """Run all checks, and return 1 when one of them fails."""
    if not Path("/dev/nvidiactl").exists() or os.geteuid() != 0 or importlib.util.find_spec("torch") is None:
        print("a real GPU: not measured, this needs NVIDIA's driver, PyTorch and root")
        return 0
    table = Table()
    with ExitStack() as stack:
        folder = Path(arguments[0] if arguments else stack.enter_context(tempfile.TemporaryDirectory()))
        root, is_real = stack.enter_context(job_tree())
        started = [
            (interval, *stack.enter_context(running_exporter("--path.cgroup", str(root), role="node")))
            for interval in INTERVALS
        ]
        for _, _, address in started:
            scrape(address)
        time.sleep(SETTLE_SECONDS)
        agents = [Agent(interval, pid, child_of(pid), address) for interval, pid, address in started]
        _describe_machine(table, agents[0], is_real=is_real)
        trial = Trial(agents, Jobs(root, is_real=is_real), table, folder)
        stack.callback(trial.close)
        trial.run()
        (folder / "page.prom").write_text(agents[0].page().text)
    failed = [row for row in table.rows if not row[3]]
    print(f"\n{len(table.rows) - len(failed)} of {len(table.rows)} checks hold")
    for what, found, expected, _ in failed:
        print(f"FAIL  {what}: {found} ({expected})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
