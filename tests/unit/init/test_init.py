# SPDX-License-Identifier: Apache-2.0
"""slurmscope init decides by what it finds, shows it, and changes nothing the second time."""

from __future__ import annotations

import grp
import os
import subprocess
import threading
import tomllib
from pathlib import Path

import pytest
import yaml

from slurmscope.core.errors import ConfigError
from slurmscope.core.own_files import shipped_files
from slurmscope.init.answers import Answers, drop_in, parse_answers, role_file, suggest
from slurmscope.init.changes import write_changes
from slurmscope.init.host import FoundHost, Slurm, find_node_name
from slurmscope.init.plan import JOB_RULES, RULES, SCRAPE, make_plan, unit_file
from slurmscope.node.cgroup.tree import LayoutKind
from slurmscope.slurm.config import ControllerConfig
from tests.fakes.command_line import run_here
from tests.fakes.slurm_scripts import make_commands
from tests.requirements import require_program

ROOT = Path(__file__).parents[3]
SHIPPED = {name: file.read_bytes().decode("utf-8", "replace") for name, file in shipped_files().items()}
CONTROLLER = ControllerConfig(cluster_name="alpha", private_data=frozenset({"jobs"}), accounting_storage="none")
ALL = Answers(roles=("node", "cluster", "portal"), readers=("192.0.2.10",), prometheus_url="http://tsdb:9090")


def host(**given: object) -> FoundHost:
    found = {"name": "ctl1.example.org", "slurm": Slurm(config=CONTROLLER), "cgroups": LayoutKind.V2, **given}
    return FoundHost(**found)  # type: ignore[arg-type]


def values(text: str | None) -> dict[str, object]:
    return tomllib.loads(text or "")


def test_settings_follow_from_what_was_found() -> None:
    slurm = Slurm(bin_path=Path("/sw/slurm/bin"), is_usual=False, config=CONTROLLER, node_name="c01")
    plan = make_plan(host(slurm=slurm), ALL, SHIPPED)

    assert "c01" == values(plan.files[role_file("node")])["node"]["name"]  # type: ignore[index]
    cluster = values(plan.files[role_file("cluster")])
    assert "/sw/slurm/bin" == cluster["slurm"]["bin-path"]  # type: ignore[index]
    assert {"enabled": False} == cluster["collector"]["completions"]  # type: ignore[index]
    assert "http://tsdb:9090" == values(plan.files[role_file("portal")])["prometheus"]["url"]  # type: ignore[index]


def test_what_is_left_to_a_person_is_said() -> None:
    slurm = Slurm(config=CONTROLLER)
    plan = make_plan(host(slurm=slurm, proxies=("https_proxy",)), Answers(roles=("node", "portal")), SHIPPED)
    notes = " ".join(plan.notes)

    for words in ("Everybody who reaches port 9798", "no accounting", "PrivateData", "https_proxy", "No Prometheus"):
        assert words in notes
    assert "sacctmgr -i add user slurmscope account=root adminlevel=operator" in plan.steps
    assert any(step.startswith("useradd ") for step in plan.steps)


def test_restriction_that_would_cut_the_agent_off_is_said() -> None:
    answers = Answers(roles=("node",), readers=("192.0.2.10",), settings={"node": {"output.push": "http://gw:9091"}})

    notes = make_plan(host(), answers, SHIPPED).notes

    assert any(note.startswith("output.push in node.toml: add the address") for note in notes)


def test_units_of_a_package_are_not_written_again() -> None:
    plan = make_plan(host(packaged=frozenset({"node"})), ALL, SHIPPED)

    assert unit_file("node") not in plan.files
    assert unit_file("cluster") in plan.files


def test_unit_starts_the_program_that_ran_init() -> None:
    unit = make_plan(host(program="/srv/slurmscope.pyz"), ALL, SHIPPED).files[unit_file("node")]

    assert "ExecStart=/srv/slurmscope.pyz node --config.file /etc/slurmscope/node.toml" in (unit or "").splitlines()


def test_drop_in_that_is_no_longer_wanted_is_removed() -> None:
    before = host(files={drop_in("node"): "[Service]\nIPAddressAllow=localhost 192.0.2.10\n"})

    assert ("192.0.2.10",) == suggest(before).readers
    assert make_plan(before, Answers(roles=("node",)), SHIPPED).files[drop_in("node")] is None


def test_place_of_slurm_conf_reaches_the_services() -> None:
    plan = make_plan(host(slurm=Slurm(config_file='/sw/a "b"/slurm%.conf')), ALL, SHIPPED)

    assert r'Environment="SLURM_CONF=/sw/a \"b\"/slurm%%.conf"' in (plan.files[drop_in("cluster")] or "")


@pytest.mark.parametrize("web", [{}, {"web.config.file": "/etc/slurmscope/web.yml"}])
def test_part_for_prometheus_is_valid(web: dict[str, str], tmp_path: Path) -> None:
    plan = make_plan(host(), Answers(roles=("cluster",), settings={"cluster": web}), SHIPPED)
    (tmp_path / "prometheus.yml").write_text(plan.files[SCRAPE] or "")
    for path in (RULES, JOB_RULES):
        (tmp_path / Path(path).name).write_text(plan.files[path] or "")

    for check in (["config", "prometheus.yml"], ["rules", "rules.yml", "job-rules.yml"]):
        argv = [require_program("promtool"), "check", *check]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert 0 == done.returncode, done.stderr
    jobs = {job["job_name"]: job for job in yaml.safe_load(plan.files[SCRAPE] or "")["scrape_configs"]}
    assert ["ctl1.example.org:9092"] == jobs["slurm"]["static_configs"][0]["targets"]
    assert ("https" if web else "http") == jobs["slurm"].get("scheme", "http")


@pytest.mark.parametrize(
    ("listen", "port"), [("10.0.0.1:9999", "9999"), (":9999, :9998", "9999"), (["[::1]:9999"], "9999"), ([], "9092")]
)
def test_prometheus_gets_the_port_however_the_address_is_written(listen: str | list[str], port: str) -> None:
    plan = make_plan(host(), Answers(roles=("cluster",), settings={"cluster": {"web.listen-address": listen}}), SHIPPED)

    jobs = yaml.safe_load(plan.files[SCRAPE] or "")["scrape_configs"]
    assert [f"ctl1.example.org:{port}"] == jobs[0]["static_configs"][0]["targets"]
    assert f"http://ctl1.example.org:{port}/sd/nodes" == jobs[1]["http_sd_configs"][0]["url"]


def test_address_that_is_none_is_an_error_of_the_file() -> None:
    answers = Answers(roles=("cluster",), settings={"cluster": {"web.listen-address": 9092}})
    with pytest.raises(ConfigError, match=r"cluster\.toml: web\.listen-address: 9092 is not a list"):
        make_plan(host(), answers, SHIPPED)


@pytest.mark.parametrize(
    ("daemons", "packaged", "roles"),
    [
        ({"slurmd"}, set(), ("node",)),
        ({"slurmctld", "slurmd"}, set(), ("node", "cluster")),
        ({"slurmctld"}, {"portal"}, ("portal",)),
        (set(), set(), ()),
    ],
)
def test_roles_are_those_of_packages_or_else_of_the_daemons(
    daemons: set[str], packaged: set[str], roles: tuple[str, ...]
) -> None:
    found = host(slurm=Slurm(daemons=frozenset(daemons)), packaged=frozenset(packaged))

    assert roles == suggest(found).roles


def test_node_name_is_set_only_where_it_differs_and_is_certain() -> None:
    rows = {"n1": "login.example.org", "n2": "multi", "n3": "multi", "short": "short"}

    assert "n1" == find_node_name(rows, "login.example.org")
    assert "" == find_node_name(rows, "multi")
    assert "" == find_node_name(rows, "short.example.org")


def test_all_wrong_answers_are_named_at_once() -> None:
    text = 'roles = ["nodes"]\nreaders = ["localhost"]\nportal-url = "jobs"\nadmins = ["a b"]\nrole = 1\n'

    with pytest.raises(ConfigError) as raised:
        parse_answers(f"{text}[settings.x]\na = 1\n", "a.toml", Answers())

    wrong = [line.partition(": ")[2].partition(":")[0] for line in str(raised.value).splitlines()]
    assert ["roles", "readers", "portal-url", "admins"] == wrong[:4]
    assert [True, True] == [word.startswith("unknown key") for word in wrong[4:]]


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Slurm that is installed here, and does not run, would take seconds to say so.
    commands = folder.with_name(f"{folder.name}-commands")
    if not commands.exists():
        config = (ROOT / "tests/fixtures/slurm-22.05/scontrol-config.txt").as_posix()
        make_commands(commands, {"scontrol": f"cat {config}", "sinfo": "echo n1 n1"})
    monkeypatch.delenv("SLURM_CONF", raising=False)
    return run_here("init", "--root", str(folder), "--slurm.bin-path", str(commands), *arguments)


def test_second_run_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = tmp_path / "answers.toml"
    answers.write_text('roles = ["node", "cluster", "portal"]\nreaders = ["192.0.2.10"]\nadmins = ["ada"]\n')
    root = tmp_path / "root"

    first = run(root, monkeypatch, "--answers", str(answers))
    written = {file: file.read_bytes() for file in root.rglob("*") if file.is_file()}
    second = run(root, monkeypatch, "--answers", str(answers))
    third = run(root, monkeypatch, "--yes")
    dry = run(root, monkeypatch, "--dry-run")

    assert (0, 0, 0, 0) == (first.returncode, second.returncode, third.returncode, dry.returncode), first.stderr
    assert f"Wrote {len(written)} files. Next:" in first.stdout
    unasked = run(root, monkeypatch)

    assert "Nothing to change.\n" in second.stdout
    assert "Nothing to change.\n" in third.stdout
    assert "Nothing to change. No questions were asked, since this is no terminal" in unasked.stdout
    assert written == {file: file.read_bytes() for file in root.rglob("*") if file.is_file()}
    assert not [file for file in written if file.name.endswith(".new")]


def test_edits_of_an_administrator_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "etc/slurmscope/node.toml"
    file.parent.mkdir(parents=True)
    file.write_text('# ours\n[node]\ngrace = "90s"\n')
    file.chmod(0o640)
    answers = tmp_path / "answers.toml"
    answers.write_text('roles = ["node"]\n[settings.node]\nmetrics.profile = "reports"\n')

    done = run(tmp_path, monkeypatch, "--answers", str(answers))

    assert '+profile = "reports"' in done.stdout
    assert '# ours\n[node]\ngrace = "90s"\n\n[metrics]\nprofile = "reports"\n' == file.read_text()
    assert 0o640 == file.stat().st_mode & 0o777


def test_nothing_is_written_without_a_terminal_or_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "etc/slurmscope").mkdir(parents=True)
    (tmp_path / "etc/slurmscope/node.toml").touch()

    done = run(tmp_path, monkeypatch)
    dry = run(tmp_path, monkeypatch, "--dry-run")

    assert (1, 1) == (done.returncode, dry.returncode)
    assert "--yes or --answers FILE" in done.stderr
    assert "slurmscope-node.service" in done.stdout
    assert ["etc/slurmscope/node.toml"] == [str(f.relative_to(tmp_path)) for f in tmp_path.rglob("*") if f.is_file()]


@pytest.mark.parametrize(
    ("line", "message"),
    [('metrics.profile = "some"', "metrics.profile in /etc/slurmscope/node.toml: "), ("nod.grace = 1", "unknown key")],
)
def test_settings_with_which_a_service_would_not_start_are_not_written(
    line: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = tmp_path / "answers.toml"
    answers.write_text(f'roles = ["node"]\n[settings.node]\n{line}\n')

    done = run(tmp_path / "root", monkeypatch, "--answers", str(answers))

    assert 2 == done.returncode
    assert message in done.stderr
    assert not (tmp_path / "root").exists()


def test_host_without_daemons_needs_a_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = tmp_path / "answers.toml"
    answers.write_text("roles = []")

    done = run(tmp_path, monkeypatch, "--answers", str(answers))

    assert (2, True) == (done.returncode, "no role was chosen" in done.stderr)


def test_slurm_of_this_host_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = tmp_path / "answers.toml"
    answers.write_text('roles = ["node"]')

    shown = run(tmp_path / "root", monkeypatch, "--answers", str(answers)).stdout

    assert f"commands in {tmp_path / 'root-commands'}" in shown
    assert "Accounting: slurmdbd\n" in shown


def test_link_to_a_configuration_elsewhere_stays(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_text("a = 1\n")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/node.toml").symlink_to(tmp_path / "real.toml")

    write_changes({"/etc/node.toml": "a = 2\n", "/etc/none.conf": None}, tmp_path)

    assert (tmp_path / "etc/node.toml").is_symlink()
    assert "a = 2\n" == (tmp_path / "real.toml").read_text()


@pytest.mark.parametrize("umask", [0o077, 0o027, 0o000])
def test_services_can_read_what_root_writes_with_any_umask(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        write_changes({"/etc/slurmscope/node.toml": "a = 1\n", "/etc/systemd/system/x.service.d/a.conf": ""}, tmp_path)
    finally:
        os.umask(before)

    modes = {path.relative_to(tmp_path): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    files = {path for path in modes if (tmp_path / path).is_file()}
    assert 2 == len(files)
    assert all(mode == (0o644 if path in files else 0o755) for path, mode in modes.items())


def test_new_settings_of_the_portal_are_not_for_everybody(tmp_path: Path) -> None:
    names = {group.gr_name: group.gr_gid for group in grp.getgrall()}

    write_changes({"/etc/slurmscope/portal.toml": "a = 1\n"}, tmp_path)

    status = (tmp_path / "etc/slurmscope/portal.toml").stat()
    has_group = os.geteuid() == 0 and "slurmscope" in names
    assert (0o640 if has_group else 0o600) == status.st_mode & 0o777
    assert not has_group or names["slurmscope"] == status.st_gid


def test_private_file_is_readable_by_nobody_else_while_it_is_replaced(tmp_path: Path) -> None:
    place = tmp_path / "etc/slurmscope/portal.toml"
    place.parent.mkdir(parents=True)
    place.write_text("secret = 0\n")
    place.chmod(0o600)
    aside, seen, has_ended = place.with_name(".portal.toml.new"), set[int](), threading.Event()

    def watch() -> None:
        while not has_ended.is_set():
            for file in (place, aside):
                try:
                    seen.add(file.stat().st_mode & 0o777)
                except FileNotFoundError:
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(200):
        write_changes({"/etc/slurmscope/portal.toml": f"secret = {number}\n"}, tmp_path)
    has_ended.set()
    watcher.join()

    assert {0o600} == seen
