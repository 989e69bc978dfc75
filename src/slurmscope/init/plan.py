# SPDX-License-Identifier: Apache-2.0
"""Decide which files a host gets, from what was found and answered; nothing is read or written here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from slurmscope.core.errors import ConfigError
from slurmscope.core.settings import parse_list
from slurmscope.init.answers import FOLDER, UNITS, Answers, drop_in, role_file
from slurmscope.init.host import ROLES, FoundHost
from slurmscope.init.toml_edit import Value, read_keys, set_keys

PROMETHEUS = f"{FOLDER}/prometheus"
SCRAPE = f"{PROMETHEUS}/scrape.yml"
RULES, JOB_RULES = f"{PROMETHEUS}/rules.yml", f"{PROMETHEUS}/job-rules.yml"
DEFAULT_PROGRAM = "/opt/slurmscope/bin/slurmscope"
MARK = "# Written by slurmscope init, which replaces it; use another file of this folder for what you add.\n"

SENDING = ("trace.forward", "profile.push", "output.push", "output.remote-write")
"""Settings with which a node agent connects to others."""

_EXEC = re.compile(r"(?m)^(Exec\w+=)/opt/slurmscope/bin/slurmscope ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The files with their contents, by absolute path; None removes one. Notes say what no other step says."""

    files: Mapping[str, str | None]
    bases: Mapping[str, str]
    """Shipped files that new ones are made of."""
    notes: tuple[str, ...]
    steps: tuple[str, ...]


def touched_paths() -> dict[str, None]:
    """Return the paths of all files that could be written, which have to be read before."""
    paths = [path for role in ROLES for path in (role_file(role), unit_file(role), drop_in(role))]
    return dict.fromkeys([*paths, SCRAPE, RULES, JOB_RULES])


def unit_file(role: str) -> str:
    return f"{UNITS}/slurmscope-{role}.service"


def make_plan(host: FoundHost, answers: Answers, shipped: Mapping[str, str]) -> Plan:
    """Return what to write; ``shipped`` are the files to deploy by name."""
    files: dict[str, str | None] = {}
    bases: dict[str, str] = {}
    for role in answers.roles:
        path, example = role_file(role), shipped[f"{role}.toml"]
        before = host.files.get(path)
        wanted = {**_settings(role, host, answers), **answers.settings.get(role, {})}
        files[path] = set_keys(example if before is None else before, wanted, path)
        bases[path] = example
        if role not in host.packaged:
            unit = f"slurmscope-{role}.service"
            files[unit_file(role)] = _EXEC.sub(rf"\1{host.program or DEFAULT_PROGRAM} ", shipped[unit])
            bases[unit_file(role)] = shipped[unit]
        if (text := _drop_in(role, host, answers)) or drop_in(role) in host.files:
            files[drop_in(role)] = text or None
    if "cluster" in answers.roles:
        files[SCRAPE] = _scrape_jobs(host, files)
        files[RULES] = bases[RULES] = shipped["rules/slurmscope.yml"]
        files[JOB_RULES] = bases[JOB_RULES] = shipped["rules/slurmscope-jobs.yml"]
    steps = tuple(_steps(host, answers, files))
    return Plan(files=files, bases=bases, notes=(*_notes(host, answers), *_blocked(answers, files)), steps=steps)


def _settings(role: str, host: FoundHost, answers: Answers) -> dict[str, Value]:
    slurm = host.slurm
    values: dict[str, Value] = {}
    if role == "node":
        if slurm.node_name:
            values["node.name"] = slurm.node_name
        return values
    if slurm.bin_path and not slurm.is_usual:
        values["slurm.bin-path"] = str(slurm.bin_path)
    if role == "cluster" and slurm.config and slurm.config.accounting_storage == "none":
        values["collector.completions.enabled"] = False
    if role == "portal":
        found: dict[str, Value] = {
            "prometheus.url": answers.prometheus_url,
            "mail.portal-url": answers.portal_url,
            "portal.admins": list(answers.admins),
        }
        values |= {key: value for key, value in found.items() if value}
    return values


def _drop_in(role: str, host: FoundHost, answers: Answers) -> str:
    lines = []
    if role == "node" and answers.readers:
        lines += ["IPAddressDeny=any", f"IPAddressAllow=localhost {' '.join(answers.readers)}"]
    if host.slurm.config_file:
        lines.append(f'Environment="SLURM_CONF={_unit_text(host.slurm.config_file)}"')
    return MARK + "\n".join(["[Service]", *lines]) + "\n" if lines else ""


def _unit_text(text: str) -> str:
    return re.sub(r'(["\\])', r"\\\1", text.replace("%", "%%"))


def _scrape_jobs(host: FoundHost, files: Mapping[str, str | None]) -> str:
    cluster = read_keys(files[role_file("cluster")] or "", role_file("cluster"))
    port = _first_port(cluster.get("web.listen-address", ""))
    is_protected = bool(cluster.get("web.config.file"))
    scheme = "https" if is_protected else "http"
    tls = "    scheme: https\n    # tls_config: {ca_file: ...}\n    # basic_auth: {username: ..., password_file: ...}\n"
    return f"""{MARK}# The scrape jobs of this cluster, for prometheus.yml. From 2.43 on, Prometheus can read them here:
#   scrape_config_files: [{SCRAPE}]
#   rule_files: [{RULES}, {JOB_RULES}]
scrape_configs:
  - job_name: slurm
    scrape_interval: 30s
    sample_limit: 1000000
{tls if is_protected else ""}    static_configs:
      - targets: ["{host.name}:{port}"]
  - job_name: slurm-nodes
    scrape_interval: 15s
    sample_limit: 100000
    http_sd_configs:
      - url: {scheme}://{host.name}:{port}/sd/nodes
    relabel_configs:
      - source_labels: [__meta_slurm_node]
        target_label: instance
"""


def _first_port(listen: object) -> str:
    try:
        addresses = parse_list(listen) or (":9092",)
    except ValueError as error:
        raise ConfigError(f"{role_file('cluster')}: web.listen-address: {error}") from error
    return addresses[0].rpartition(":")[2]


def _notes(host: FoundHost, answers: Answers) -> Iterator[str]:
    """Yield what was left undone, and why."""
    config = host.slurm.config
    if host.slurm.problem:
        yield f"Slurm was not examined: {host.slurm.problem}."
    if "node" in answers.roles and not answers.readers:
        yield "Everybody who reaches port 9798 can read names of users and jobs: name the addresses of Prometheus."
    if "node" in answers.roles and host.cgroups.value == "unsupported":
        yield "No cgroups of a known layout are mounted: jobs are found by their processes, with fewer metrics."
    if "node" in answers.roles and config and config.process_tracking not in ("", "cgroup"):
        yield f"ProctrackType is {config.process_tracking}: with proctrack/cgroup there are more metrics of jobs."
    if "cluster" in answers.roles:
        yield "Port 9092 is not restricted, as the exporter also talks to Slurm: use a firewall, or web.config.file."
    if config and config.accounting_storage == "none":
        yield "Slurm has no accounting: ended jobs are not counted" + (
            ", and the portal will have no jobs." if "portal" in answers.roles else "."
        )
    if config and "jobs" in config.private_data and {"cluster", "portal"} & set(answers.roles):
        yield "PrivateData hides jobs from the user slurmscope: see the sacctmgr line below."
    if config and config.hidden_labels and "node" in answers.roles:
        yield "PrivateData is set: without a password in web.config.file, the port of a node shows no jobs."
    if "portal" in answers.roles and not answers.prometheus_url:
        yield "No Prometheus was named: prometheus.url in portal.toml is that of the example."
    if host.proxies:
        yield f"{', '.join(host.proxies)}: slurmscope does not use proxies; its servers must be reachable directly."
    if any(role not in host.packaged for role in answers.roles) and not host.program:
        yield f"The place of slurmscope is not known: units start {DEFAULT_PROGRAM}."


def _blocked(answers: Answers, files: Mapping[str, str | None]) -> Iterator[str]:
    """Yield a note if the node agent could not reach a server any more: the restriction is for both directions."""
    if "node" in answers.roles and answers.readers:
        values = read_keys(files[role_file("node")] or "", role_file("node"))
        for key in SENDING:
            if values.get(key):
                yield f'{key} in node.toml: add the address of that server to "readers", or it is not reached.'


def _steps(host: FoundHost, answers: Answers, files: Mapping[str, str | None]) -> Iterator[str]:
    config = host.slurm.config
    if not host.has_user:
        yield "useradd --system --user-group --home-dir /nonexistent --shell /usr/sbin/nologin slurmscope"
    if config and "jobs" in config.private_data and {"cluster", "portal"} & set(answers.roles):
        yield "sacctmgr -i add user slurmscope account=root adminlevel=operator"
    if "portal" in answers.roles:
        yield f"chgrp slurmscope {role_file('portal')} && chmod 0640 {role_file('portal')}"
    if any(path.startswith(UNITS) for path in files):
        yield "systemctl daemon-reload"
    for role in answers.roles:
        # As the user of the service: root may see what PrivateData hides from it.
        yield f"slurmscope doctor {role}" if role == "node" else f"runuser -u slurmscope -- slurmscope doctor {role}"
        yield f"systemctl enable --now slurmscope-{role}"
    if "cluster" in answers.roles:
        yield f"promtool check rules {RULES} {JOB_RULES}      # then merge {SCRAPE} into prometheus.yml"
    if "portal" in answers.roles and host.web_server:
        yield f"slurmscope files {host.web_server}-portal.conf      # for the web server"
