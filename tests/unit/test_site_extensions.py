# SPDX-License-Identifier: Apache-2.0
"""Extensions of a site: the documented one works, and a broken one affects only itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

from slurmscope.archive.stored_reports import decode_report, encode_report
from slurmscope.core.config import load, named_extensions
from slurmscope.exporter.collector import Role
from slurmscope.exporter.extensions import GROUP, PATIENCE_SECONDS, add_extensions, load_extension
from slurmscope.exporter.feature import open_features
from slurmscope.exporter.reading import SharedReading
from slurmscope.exporter.self_metrics import EXTENSION_ERRORS
from slurmscope.jobs.findings import judge
from slurmscope.jobs.render.html import render_html
from slurmscope.jobs.render.json import render_json
from slurmscope.jobs.render.tables import source_sections
from slurmscope.jobs.render.text import render_text
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.rule import Rule
from slurmscope.portal.job_view import list_tabs, tab_of
from slurmscope.reports.make import ReportMaker
from slurmscope.reports.site_rules import check_site_rules, site_rules, site_sections
from tests.fakes.command_line import run_here
from tests.fakes.reports import make_record, make_report
from tests.fakes.traced_command import plain_environment

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "adding.md"
METRIC = "from slurmscope.metrics.family import Family, gauge\n"
COLLECTOR = """
from slurmscope.exporter.collector import Collector, Reading, Role
from slurmscope.metrics.family import Family, gauge
VALUE = gauge("{metric}", "A value.")
def read(_sources):
    {read}
def collect(_options, *, subject):
    {collect}
COLLECTOR = Collector(name="{name}", role=Role.CLUSTER, help="Export a value.",
    needs=(Reading(name="subject", read=read),), metrics=(VALUE,), collect=collect)
"""
WORKING = {"read": "return 7.0", "collect": "yield Family(VALUE, {(): subject})"}


@pytest.fixture(autouse=True)
def _forget_extensions() -> Iterator[None]:
    load_extension.cache_clear()
    yield
    load_extension.cache_clear()
    for name in [name for name in sys.modules if name.startswith(("site_", "mysite"))]:
        del sys.modules[name]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder from which packages are imported."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return folder


def install(folder: Path, name: str, source: str, version: str = "1.0") -> None:
    """Install a module as pip does."""
    (folder / f"{name}.py").write_text(source)
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {name}\n")


def make_collector(name: str, metric: str = "", **changed: str) -> str:
    return (
        COLLECTOR.replace("{name}", name)
        .replace("{metric}", metric or f"{name}_value")
        .replace("{read}", changed.get("read", WORKING["read"]))
        .replace("{collect}", changed.get("collect", WORKING["collect"]))
    )


def scrape(monkeypatch: pytest.MonkeyPatch, *names: str) -> dict[tuple[str, ...], float]:
    """Return the samples of one page without our collectors, by name and label values."""
    monkeypatch.setenv("SLURMSCOPE_EXTENSIONS_LOAD", ",".join(names))
    monkeypatch.setenv("SLURMSCOPE_METRICS_EXCLUDE", "^slurm_")
    done = run_here("cluster", "--once")
    samples = (sample for family in parse_text(done.stdout) for sample in family.samples)
    return {(sample.name, *sample.labels.values()): sample.value for sample in samples}


def doctor(monkeypatch: pytest.MonkeyPatch, *names: str) -> dict[str, dict[str, object]]:
    monkeypatch.setenv("SLURMSCOPE_EXTENSIONS_LOAD", ",".join(names))
    checks = json.loads(run_here("doctor", "cluster", "--json").stdout)["checks"]
    return {check["name"]: check for check in checks}


@pytest.fixture
def documented(installed: Path) -> Path:
    """Install the package of the documentation; its file has a temperature of 18.5."""
    block = r"```(?:toml|python)\n# (pyproject\.toml|mysite\.py)\n(.*?)```"
    files = dict(re.findall(block, DOCUMENTATION.read_text(), re.DOTALL))
    package = tomllib.loads(files["pyproject.toml"])
    assert ["mysite"] == package["tool"]["setuptools"]["py-modules"]
    assert {"mysite": "mysite"} == package["project"]["entry-points"][GROUP]
    (installed / "supply_celsius").write_text("18.5\n")
    source = files["mysite.py"].replace("/run/mysite", str(installed))
    install(installed, "mysite", source, package["project"]["version"])
    return installed


@pytest.mark.usefixtures("documented")
def test_documented_extension_works(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = scrape(monkeypatch, "mysite")

    assert 18.5 == samples["mysite_cooling_supply_celsius",]
    assert 1 == samples["slurmscope_collector_success", "mysite_cooling"]
    assert 1 == samples["slurmscope_extension_info", "mysite", "1.0"]
    assert 0 == samples["slurmscope_extension_errors_total", "mysite"]
    check = doctor(monkeypatch, "mysite")["extension mysite"]
    assert ("ok", "version 1.0: collector mysite_cooling") == (check["status"], check["message"])
    assert "mysite_long_debug  (warning, time)" in run_here("rules", "list").stdout


@pytest.mark.usefixtures("documented")
def test_documented_rule_finds_what_it_describes() -> None:
    rules = load_extension("mysite").declared("RULES", Rule)
    long_debug = make_report(make_record(partition="debug")).summary

    assert "mysite_long_debug" in {finding.rule for finding in judge(long_debug, None, rules)}
    assert "mysite_long_debug" not in {finding.rule for finding in judge(make_report().summary, None, rules)}


def test_its_collector_has_a_key_that_disables_it(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(installed, "site_switched", make_collector("site_switched"))
    monkeypatch.setenv("SLURMSCOPE_COLLECTOR_SITE_SWITCHED", "false")

    assert ("site_switched_value",) not in scrape(monkeypatch, "site_switched")


def test_file_names_extensions_and_has_their_keys(installed: Path, tmp_path: Path) -> None:
    install(installed, "site_keyed", make_collector("site_keyed"))
    file = tmp_path / "cluster.toml"
    file.write_text('[extensions]\nload = ["site_keyed"]\n[collector.site_keyed]\nenabled = true\n')

    assert ("site_keyed",) == named_extensions([file], {})
    assert 0 == run_here("config", "check", "cluster", "--config.file", str(file)).returncode


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        (make_collector("jobs", "site_jobs"), "declares what exists already: collector jobs"),
        (make_collector("site_clash", "slurm_up"), "declares what exists already: slurm_up"),
    ],
    ids=["import error", "exit", "name of a collector", "name of a metric"],
)
def test_unusable_extension_is_reported_and_the_other_one_works(
    source: str, problem: str, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(installed, "site_broken", source)
    install(installed, "site_good", make_collector("site_good"))
    samples = scrape(monkeypatch, "site_broken", "site_good")

    assert 7.0 == samples["site_good_value",]
    assert 1 == samples["slurmscope_extension_errors_total", "site_broken"]
    assert 0 == samples["slurmscope_extension_errors_total", "site_good"]
    check = doctor(monkeypatch, "site_broken", "site_good")["extension site_broken"]
    assert ("failed", f"version 1.0: {problem}") == (check["status"], check["message"])


def test_extension_that_is_not_installed_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    check = doctor(monkeypatch, "no_such_extension")["extension no_such_extension"]

    assert "not installed: no installed package has it in slurmscope.extensions" == check["message"]


@pytest.mark.parametrize("broken", [{"read": "raise OSError('gone')"}, {"collect": "raise KeyError('subject')"}])
def test_failing_collector_loses_its_own_metrics_only(
    broken: dict[str, str], installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(installed, "site_failing", make_collector("site_failing", **broken))
    install(installed, "site_fine", make_collector("site_fine"))
    samples = scrape(monkeypatch, "site_failing", "site_fine")

    assert 7.0 == samples["site_fine_value",]
    assert 1 == samples["slurmscope_collector_success", "site_fine"]
    assert 0 == samples["slurmscope_collector_success", "site_failing"]
    assert ("site_failing_value",) not in samples


def test_collector_without_its_reading_loses_its_own_metrics_only(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_collector("site_needy").replace('Reading(name="subject", read=read)', '"no_such_reading"')
    install(installed, "site_needy", source)
    samples = scrape(monkeypatch, "site_needy")

    assert 0 == samples["slurmscope_collector_success", "site_needy"]
    assert 1 == samples["slurmscope_reading_errors_total", "no_such_reading", "failed"]


def test_feature_that_raises_is_counted_and_logged_once(installed: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = (
        "from slurmscope.exporter.feature import Feature, Running\n"
        "def families(_):\n    raise ValueError('no value')\n"
        "FEATURE = Feature(name='site_feature', open=lambda host: Running(families=families))\n"
    )
    install(installed, "site_raising", source)
    features = add_extensions((), Role.CLUSTER, ["site_raising"])
    opened = open_features(features, Role.CLUSTER, load((), flags={}, environment={}), {})
    errors = [family.samples for _ in range(2) for family in opened.families({}) if family.metric is EXTENSION_ERRORS]

    assert [{("site_raising",): 1.0}, {("site_raising",): 2.0}] == errors
    assert 1 == [record.message for record in caplog.records].count("extension failed")


def test_series_by_user_and_job_are_hidden_while_private_data_is_unknown(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "from slurmscope.exporter.collector import Collector, Role\n"
        "from slurmscope.exporter.feature import Feature, Running\n"
        "from slurmscope.metrics.family import Family, gauge\n"
        "LABELS = 'slurm_job', 'job_id', 'user', 'uid', 'account', 'rack'\n"
        "FIRST, SECOND = (tuple(gauge(f'site_{kind}_by_{label}', 'Ours.', label) for label in LABELS)\n"
        "    for kind in ('collected', 'featured'))\n"
        "COLLECTOR = Collector(name='site_private', role=Role.CLUSTER, help='Ours.', needs=(), metrics=FIRST,\n"
        "    collect=lambda _options: (Family(metric, {('7',): 1.0}) for metric in FIRST))\n"
        "def families(_):\n    return (Family(metric, {('7',): 1.0}) for metric in SECOND)\n"
        "FEATURE = Feature(name='site_private', metrics=SECOND, open=lambda host: Running(families=families))\n"
    )
    install(installed, "site_private", source)
    # There is no scontrol, so that PrivateData is not known.
    monkeypatch.setenv("SLURMSCOPE_SLURM_BIN_PATH", str(installed))

    def shown() -> list[str]:
        return sorted(name for name, *_ in scrape(monkeypatch, "site_private") if name.startswith("site_"))

    assert ["site_collected_by_rack", "site_featured_by_rack"] == shown()
    monkeypatch.setenv("SLURMSCOPE_SLURM_PRIVATE_DATA", "ignore")
    assert 12 == len(shown())


@pytest.mark.parametrize("result", ["[Family(VALUE, (each() for each in [lambda: 1 / 0]))]", "[None]"])
def test_feature_whose_families_are_unusable_loses_only_these(
    result: str, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "from slurmscope.exporter.feature import Feature, Running\n"
        "from slurmscope.metrics.family import Family, gauge\n"
        "VALUE = gauge('site_lazy_value', 'A value.')\n"
        f"def families(_):\n    return {result}\n"
        "FEATURE = Feature(name='site_lazy', metrics=(VALUE,), open=lambda host: Running(families=families))\n"
    )
    install(installed, "site_lazy", source)
    install(installed, "site_good", make_collector("site_good"))
    samples = scrape(monkeypatch, "site_lazy", "site_good")

    assert 7 == samples["site_good_value",]
    assert 1 == samples["slurmscope_extension_errors_total", "site_lazy"]
    assert ("site_lazy_value",) not in samples


@pytest.mark.parametrize(("right", "wrong"), [("metrics=(VALUE,)", "metrics=(VALUE)"), ("read=read),)", "read=read))")])
def test_collector_that_is_declared_wrongly_is_not_used_and_the_others_are(
    right: str, wrong: str, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert right in COLLECTOR
    install(installed, "site_wrong", make_collector("site_wrong").replace(right, wrong))
    install(installed, "site_good", make_collector("site_good"))
    samples = scrape(monkeypatch, "site_wrong", "site_good")

    assert 7 == samples["site_good_value",]
    assert 1 == samples["slurmscope_extension_errors_total", "site_wrong"]
    assert "TypeError" in str(doctor(monkeypatch, "site_wrong")["extension site_wrong"]["message"])


def test_collector_gets_the_reading_that_its_own_feature_opens(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_collector("site_own").replace('Reading(name="subject", read=read)', '"subject"') + (
        "from slurmscope.exporter.feature import Feature, Running\n"
        "from slurmscope.exporter.reading import SharedReading\n"
        "def open_(host):\n"
        "    return Running(readings=(SharedReading('subject', lambda: 7.0, interval_seconds=5.0),))\n"
        "FEATURE = Feature(name='site_own', collectors=(COLLECTOR,), open=open_)\n"
    )
    install(installed, "site_own", source)
    samples = scrape(monkeypatch, "site_own")

    assert 7 == samples["site_own_value",]
    assert 1 == samples["slurmscope_collector_success", "site_own"]


def test_nobody_waits_long_for_a_reading_that_a_feature_opens(installed: Path) -> None:
    source = (
        "import threading\n"
        "from slurmscope.exporter.feature import Feature, Running\n"
        "from slurmscope.exporter.reading import SharedReading\n"
        "READING = SharedReading('slow', threading.Event().wait, interval_seconds=5.0)\n"
        "FEATURE = Feature(name='site_slow', open=lambda host: Running(readings=(READING,)))\n"
    )
    install(installed, "site_slow", source)
    features = add_extensions((), Role.CLUSTER, ["site_slow"])
    opened = open_features(features, Role.CLUSTER, load((), flags={}, environment={}), {})

    assert PATIENCE_SECONDS == opened.readings["slow"].patience_seconds


def test_feature_that_opens_nothing_usable_is_counted(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        "from slurmscope.exporter.feature import Feature\n"
        "FEATURE = Feature(name='site_empty', open=lambda host: None)\n"
    )
    install(installed, "site_empty", source)
    assert 1 == scrape(monkeypatch, "site_empty")["slurmscope_extension_errors_total", "site_empty"]


def test_nobody_waits_long_for_a_slow_reading() -> None:
    release = threading.Event()
    reading = SharedReading("slow", release.wait, interval_seconds=1.0, patience_seconds=0.05)
    reading.request()
    snapshot = reading.wait(float("inf"))
    release.set()

    assert "still being read" == snapshot.error


def test_rule_that_raises_finds_nothing(installed: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = (
        "from slurmscope.jobs.rule import Match, Rule, Severity, Subject\n"
        "def fail(summary, values):\n    raise ZeroDivisionError\n"
        "def rule(id, check):\n"
        "    return Rule(id=id, title='T', subject=Subject.CPU, severity=Severity.INFO, needs='n', advice='a',\n"
        "        check=check)\n"
        "RULES = (rule('site_raises', fail), rule('site_finds', lambda s, v: Match(explanation='Found.')),\n"
        "         rule('cpu_idle', fail))\n"
    )
    install(installed, "site_ruled", source)
    rules = site_rules(("site_ruled",))
    summary = make_report().summary
    found = {finding.rule for _ in range(2) for finding in judge(summary, None, rules)}

    assert ["site_raises", "site_finds"] == [rule.id for rule in rules]
    assert "site_finds" in found
    assert "site_raises" not in found
    assert 1 == [record.message for record in caplog.records].count("rule failed")


@pytest.mark.parametrize(
    ("changed", "check"),
    [
        ("", "'Found.'"),
        ("", "Match(explanation=None)"),
        ("", "Match(explanation='Found.', numbers={'hours': float('nan')})"),
        ("", "Match(explanation='Found.', severity='warning')"),
        ("severity='warning'", "Match(explanation='Found.')"),
        ("thresholds=None", "None"),
        ("thresholds=('hours',)", "None"),
        ("min_run_seconds='1h'", "None"),
    ],
)
def test_rule_with_wrong_types_costs_no_job_its_other_findings(installed: Path, changed: str, check: str) -> None:
    source = (
        "from slurmscope.jobs.rule import Match, Rule, Severity, Subject\n"
        "declared = dict(id='site_wrong', title='T', subject=Subject.CPU, severity=Severity.INFO, needs='n')\n"
        f"RULES = Rule(**declared | dict(advice='a', check=lambda summary, values: {check}, {changed}))\n"
    )
    install(installed, "site_wrong", source)
    summary = make_report().summary

    assert judge(summary) == judge(summary, None, site_rules(("site_wrong",)))
    assert changed == "" or not next(iter(check_site_rules(("site_wrong",)))).is_good


SECTIONS = """
from slurmscope.jobs.report import ReportSection
def section(id, make, title="Cooling", head=("Loop", "Supply")):
    return ReportSection(id=id, title=title, head=head, make=make)
def fail(summary):
    yield ("a", "b")
    raise ZeroDivisionError
SECTIONS = (
    section("cooling", lambda summary: [("north <b>", f"{summary.record.cpus}.5 C")]),
    section("cooling", lambda summary: [("second of the ID", "-")]),
    section("raises", fail), section("short", lambda summary: [("a",)]), section("number", lambda summary: [("a", 1)]),
    section("text", lambda summary: ["ab"]), section("headless", lambda summary: [()], head=()),
    section("nothing", lambda summary: ()),
)
"""


@pytest.fixture
def report_with_section(installed: Path) -> JobReport:
    """Make the report of a job with four cores on a site that has the extension above."""
    install(installed, "site_tables", SECTIONS)
    maker = ReportMaker(None, sections=site_sections(("site_tables",)))
    return maker.make([make_record()])[0]


def test_section_that_fails_is_left_out_and_logged_once(installed: Path, caplog: pytest.LogCaptureFixture) -> None:
    install(installed, "site_tables", SECTIONS)
    make = site_sections(("site_tables",))
    found = [make(make_report().summary) for _ in range(2)][1]

    assert [("cooling", "Cooling", (("north <b>", "4.5 C"),))] == [(each.id, each.title, each.rows) for each in found]
    failed = [record.__dict__["fields"]["section"] for record in caplog.records]
    assert ["headless", "number", "raises", "short", "text"] == sorted(failed)


def test_section_is_in_every_form_of_the_report(report_with_section: JobReport) -> None:
    encoded = encode_report(report_with_section)
    archived = decode_report(encoded.body, encoded.curves)

    assert archived.site_sections == report_with_section.site_sections
    text, html = render_text(archived), render_html(archived)
    assert "Cooling" in text
    assert re.search(r"north <b> +4\.5 C", text)
    assert "<h2>Cooling</h2>" in re.sub(r"<h2 [^>]*>", "<h2>", html)
    assert "north &lt;b&gt;" in html
    assert ["4.5 C"] == [
        row[1] for section in json.loads(render_json(archived))["site_sections"] for row in section["rows"]
    ]
    sections = source_sections(archived)
    assert "site" in {tab.name for tab in list_tabs(archived, sections)}
    assert ["site"] == [tab_of(section) for section in sections]
    assert "site" not in {tab.name for tab in list_tabs(make_report(), source_sections(make_report()))}


def test_documented_section_lists_the_nodes(installed: Path) -> None:
    (source,) = re.findall(r"```python\n(from slurmscope.jobs.report .*?)```", DOCUMENTATION.read_text(), re.DOTALL)
    install(installed, "site_racks", source)
    summary = make_report(make_record(nodes=("r01n1", "r02n7"))).summary
    (made,) = site_sections(("site_racks",))(summary)

    assert (("r01n1", "r01"), ("r02n7", "r02")) == made.rows


def test_doctor_lists_sections(installed: Path) -> None:
    install(installed, "site_tables", SECTIONS)

    assert "section cooling" in next(check_site_rules(("site_tables",))).message


COUNTED = """
import sys
from slurmscope.cli.options import make_exporter
make_exporter(sys.argv[1], {}).load()
print(*sorted(name for name in sys.modules if "extensions" in name or name == "importlib.metadata"))
"""


@pytest.mark.parametrize("role", ["node", "cluster"])
def test_nothing_is_imported_for_extensions_that_nobody_named(role: str) -> None:
    argv = [sys.executable, "-c", COUNTED, role]
    done = subprocess.run(argv, capture_output=True, text=True, env=plain_environment(), check=True)

    assert "\n" == done.stdout
