# SPDX-License-Identifier: Apache-2.0
"""Look at this host: Slurm, cgroups, GPUs, Prometheus, web server, proxies, and what is installed of slurmscope."""

from __future__ import annotations

import os
import pwd
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from slurmscope.core.errors import ConfigError, SlurmscopeError
from slurmscope.http.client.address import parse_address
from slurmscope.http.client.request import ClientRequest, send
from slurmscope.node.cgroup.tree import LayoutKind, detect_layout
from slurmscope.node.checks import read_hosts
from slurmscope.slurm.command import SEARCH_PATH, SlurmCommands, SlurmSettings, find_command
from slurmscope.slurm.config import ControllerConfig, read_config

PROMETHEUS_URL = "http://localhost:9090"
PROMETHEUS_SECONDS = 3.0
ROLES = ("node", "cluster", "portal")
DAEMONS = ("slurmctld", "slurmd", "slurmdbd")
WEB_SERVERS = {"usr/sbin/nginx": "nginx", "usr/sbin/apache2": "apache", "usr/sbin/httpd": "apache"}
USUAL_CONFIGS = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf")
MOST_PROCESSES = 100_000
MOST_FILE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Slurm:
    """What Slurm's commands say; ``problem`` says why they do not."""

    bin_path: Path | None = None
    is_usual: bool = True
    """Whether slurmscope finds the commands without being told where they are."""
    config_file: str = ""
    """What SLURM_CONF names, where services have to be told."""
    daemons: frozenset[str] = frozenset()
    config: ControllerConfig | None = None
    problem: str = ""
    node_name: str = ""
    """The name in Slurm of this host, where it is not the short host name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundHost:
    """What was found; empty fields were not."""

    name: str
    slurm: Slurm
    cgroups: LayoutKind
    gpus: tuple[str, ...] = ()
    prometheus_url: str = ""
    web_server: str = ""
    proxies: tuple[str, ...] = ()
    packaged: frozenset[str] = frozenset()
    """Roles whose units a package has installed."""
    has_user: bool = False
    program: str = ""
    """How units start slurmscope; empty if that is not known."""
    files: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Contents of the files that would be changed, by absolute path; a file that is not there is missing."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where files are written, where Slurm's commands are if that was said, and how slurmscope was started."""

    root: Path
    bin_path: Path | None
    program: str


def look(places: Places, environment: Mapping[str, str], paths: Iterable[str]) -> FoundHost:
    """Look at this host; ``paths`` are those of files to read."""
    root = places.root
    units = root / "usr/lib/systemd/system"
    names = (name for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY") if environment.get(name))
    return FoundHost(
        name=_own_name(),
        slurm=_look_at_slurm(environment, places.bin_path),
        cgroups=detect_layout(Path("/sys/fs/cgroup"), Path("/proc")).kind,
        gpus=tuple(_find_gpus(Path("/"))),
        prometheus_url=_find_prometheus(),
        web_server=next((name for path, name in WEB_SERVERS.items() if (root / path).exists()), ""),
        proxies=tuple(names),
        packaged=frozenset(role for role in ROLES if (units / f"slurmscope-{role}.service").is_file()),
        has_user=_has_user(),
        program=places.program,
        files={path: text for path in paths if (text := _read(root / path.lstrip("/"))) is not None},
    )


def _own_name() -> str:
    """Return the full name of this host, or the short one where the resolver has no better answer than localhost."""
    name = socket.getfqdn()
    return socket.gethostname() if name.partition(".")[0] == "localhost" else name


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as stream:
            content = stream.read(MOST_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > MOST_FILE_BYTES:
        raise ConfigError(f"{path} is larger than a configuration file may be")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text") from error


def _has_user() -> bool:
    try:
        pwd.getpwnam("slurmscope")
    except KeyError:
        return False
    return True


def _look_at_slurm(environment: Mapping[str, str], given: Path | None) -> Slurm:
    daemons = frozenset(_running(DAEMONS))
    config_file = environment.get("SLURM_CONF", "")
    bin_path, is_usual = _find_bin_path(environment, given)
    found = Slurm(
        bin_path=bin_path,
        is_usual=is_usual,
        config_file="" if config_file in USUAL_CONFIGS else config_file,
        daemons=daemons,
        problem="" if bin_path else "scontrol was not found in the usual folders, nor on the PATH",
    )
    if bin_path is None:
        return found
    run = SlurmCommands(SlurmSettings(bin_path=bin_path), environment).run
    try:
        config = read_config(run)
        hosts = read_hosts(run)
    except SlurmscopeError as error:
        return replace(found, problem=str(error))
    return replace(found, config=config, node_name=find_node_name(hosts, socket.gethostname()))


def find_node_name(nodes: Mapping[str, str], host_name: str) -> str:
    """Return Slurm's name of this host if it is the only one and not the short host name."""
    short_name = host_name.partition(".")[0]
    own = sorted(name for name, host in nodes.items() if host in (host_name, short_name))
    return own[0] if len(own) == 1 and short_name not in nodes else ""


def _find_bin_path(environment: Mapping[str, str], given: Path | None) -> tuple[Path | None, bool]:
    if given is not None:
        return find_command("scontrol", given).parent, str(given) in SEARCH_PATH.split(":")
    for search_path, is_usual in ((SEARCH_PATH, True), (environment.get("PATH", ""), False)):
        with suppress(SlurmscopeError):
            return find_command("scontrol", None, search_path=search_path).parent, is_usual
    return None, True


def _running(names: tuple[str, ...]) -> Iterator[str]:
    """Yield those of the programs that run here."""
    with os.scandir("/proc") as entries:
        for number, entry in enumerate(entries):
            if number > MOST_PROCESSES:
                return
            if entry.name.isdecimal():
                with suppress(OSError):
                    name = Path(entry.path, "comm").read_text("utf-8", "replace").strip()
                    if name in names:
                        yield name


def _find_gpus(root: Path) -> Iterator[str]:
    """Yield what the kernel shows of GPUs, by vendor; no library is loaded."""
    with suppress(OSError):
        count = sum(1 for _ in (root / "proc/driver/nvidia/gpus").iterdir())
        if count:
            yield f"{count} of NVIDIA"
    vendors = {"0x1002": "AMD", "0x8086": "Intel"}
    for vendor_id, vendor in vendors.items():
        files = (root / "sys/class/drm").glob("card[0-9]*/device/vendor")
        count = sum(1 for file in files if _first_word(file) == vendor_id and "-" not in file.parts[-3])
        if count:
            yield f"{count} of {vendor}"


def _first_word(file: Path) -> str:
    try:
        return file.read_text("ascii", "replace").strip()
    except OSError:
        return ""


def _find_prometheus() -> str:
    """Return the address of a Prometheus on this host; its own word for being ready is the sign."""
    deadline = time.monotonic() + PROMETHEUS_SECONDS
    try:
        answer = send(
            parse_address(PROMETHEUS_URL), ClientRequest(path="/-/ready"), deadline=deadline, limit_bytes=65536
        )
    except SlurmscopeError:
        return ""
    # A password protects it too, and is no sign of something else.
    return PROMETHEUS_URL if b"Prometheus" in answer.body or answer.status == 401 else ""
