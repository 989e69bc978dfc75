# SPDX-License-Identifier: Apache-2.0
"""What we give people to deploy the portal is valid and tight, lets in no stranger, and loses no mail."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from slurmscope.cli import slurmscope
from slurmscope.core.config import load
from slurmscope.portal.settings import PROXY, PortalSettings, check_settings, portal_sections
from tests.requirements import require_program

DEPLOY = Path(__file__).parents[2] / "deploy"
EXAMPLE = DEPLOY / "portal.toml"
UNITS = ("slurmscope-portal.service", "slurmscope-digest.service")
MAIL_PROGRAM = DEPLOY / "mail-slurmscope"
PROXIES = {"nginx-portal.conf": "proxy_set_header X-Remote-User", "apache-portal.conf": "RequestHeader"}
SUBJECT = 'Slurm Job_id=7 Name=$(id) "a b" Ended'
MOST_EXPOSURE = 25
"""In tenths, as systemd counts from 0 (none) to 10."""


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run systemd's own checker."""
    argv = [require_program("systemd-analyze"), *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def unit_values(unit: str, key: str) -> list[str]:
    return re.findall(rf"(?m)^{key}=(.*)$", (DEPLOY / unit).read_text(encoding="utf-8"))


def read_settings(file: Path) -> PortalSettings:
    config = load(tuple(portal_sections()), flags={}, environment={}, files=[file])
    return config.of(PortalSettings)


@pytest.mark.parametrize("unit", UNITS)
def test_unit_leaves_little_to_attack(unit: str) -> None:
    done = analyze("security", "--offline=yes", f"--threshold={MOST_EXPOSURE}", DEPLOY / unit)
    assert 0 == done.returncode, done.stdout + done.stderr


def test_units_have_no_unknown_keys(tmp_path: Path) -> None:
    for unit in (*UNITS, "slurmscope-digest.timer"):
        # systemd looks whether the program is there.
        text = re.sub(r"(?m)^(ExecStart=)\S+", rf"\1{sys.executable}", (DEPLOY / unit).read_text(encoding="utf-8"))
        (tmp_path / unit).write_text(text, encoding="utf-8")

    checked = analyze("verify", "--man=no", *(tmp_path / unit for unit in (*UNITS, "slurmscope-digest.timer")))

    assert [] == [line for line in checked.stderr.splitlines() if "slurmscope-" in line]


@pytest.mark.parametrize("unit", UNITS)
def test_unit_starts_a_command_that_is_understood(unit: str) -> None:
    (line,) = unit_values(unit, "ExecStart")
    program, command, *arguments = line.split()

    # The help is shown when everything before it was understood.
    done = CliRunner().invoke(slurmscope, [command, *arguments, "--help"])

    assert ("slurmscope", 0) == (Path(program).name, done.exit_code)
    assert "/etc/slurmscope/portal.toml" == arguments[-1]


def test_timer_comes_once_a_week() -> None:
    (when,) = unit_values("slurmscope-digest.timer", "OnCalendar")
    told = analyze("calendar", "--iterations=2", "--base-time=2026-03-01 00:00:00 UTC", when)

    # 1 March 2026 is a Sunday.
    assert 0 == told.returncode, told.stderr
    assert "Mon 2026-03-02 06:00:00" in told.stdout
    assert "Mon 2026-03-09 06:00:00" in told.stdout


def test_portal_keeps_its_archive_from_the_group_that_opens_its_socket() -> None:
    assert [["0700"], ["0750"], ["0077"]] == [
        unit_values("slurmscope-portal.service", key) for key in ("StateDirectoryMode", "RuntimeDirectoryMode", "UMask")
    ]


def test_socket_and_archive_of_the_example_are_where_the_unit_may_write() -> None:
    example = tomllib.loads(EXAMPLE.read_text(encoding="utf-8"))

    assert ["slurmscope"] == unit_values("slurmscope-portal.service", "RuntimeDirectory")
    assert ["slurmscope"] == unit_values("slurmscope-portal.service", "StateDirectory")
    assert "unix:/run/slurmscope/portal.sock" == example["portal"]["listen-address"]
    assert example["archive"]["url"].startswith("sqlite:////var/lib/slurmscope/")


def test_example_lets_people_in_by_the_proxy_and_nobody_else() -> None:
    settings = read_settings(EXAMPLE)

    check_settings(settings)
    assert (PROXY, ("unix",), (), ()) == (settings.mode, settings.proxy_peers, settings.support, settings.admins)


def test_examples_that_are_commented_out_are_valid(tmp_path: Path) -> None:
    # "#key = value" is an example, "# Words" are words.
    text, changes = re.subn(r"(?m)^#(?=[a-z])", "", EXAMPLE.read_text(encoding="utf-8"))
    (tmp_path / "portal.toml").write_text(text, encoding="utf-8")

    assert changes >= 10
    check_settings(read_settings(tmp_path / "portal.toml"))


@pytest.mark.parametrize("name", PROXIES)
def test_proxy_opens_the_socket_of_the_example_and_tells_the_name_in_its_header(name: str) -> None:
    text, settings = (DEPLOY / name).read_text(encoding="utf-8"), read_settings(EXAMPLE)

    assert str(settings.listen_address) in text
    assert settings.proxy_header in text
    assert re.search(r"(?i)authorization", text)


def test_every_place_of_nginx_that_reaches_the_portal_replaces_the_name() -> None:
    text = (DEPLOY / "nginx-portal.conf").read_text(encoding="utf-8")
    places = re.findall(r"(?s)location [^{]*\{(.*?)\n    \}", text)

    assert 3 == len(places) == text.count("proxy_pass ")
    for place in places:
        assert re.search(r'(?m)^ *proxy_set_header X-Remote-User (\$remote_user|"");$', place)
        assert re.search(r"(?m)^ *proxy_set_header Host \$http_host;$", place)
        assert re.search(r"(?m)^ *proxy_set_header X-Forwarded-For \$proxy_add_x_forwarded_for;$", place)


@pytest.mark.parametrize(
    ("path", "needs_token"),
    [
        ("/api/v2/jobs", True),
        ("/mail/4711", True),
        ("/metrics", True),
        ("/healthz", True),
        ("/pdf/4711", False),
        ("/mailbox", False),
    ],
)
def test_scripts_reach_these_paths_with_a_token(path: str, needs_token: bool) -> None:
    nginx = (DEPLOY / "nginx-portal.conf").read_text(encoding="utf-8")
    places = re.findall(r"location (= |~ |)(\S+) \{(.*?)\n    \}", nginx, re.DOTALL)
    matches: dict[str, Callable[[str, str], object]] = {
        "= ": str.__eq__,
        "~ ": lambda path, place: re.search(place, path),
        "": str.startswith,
    }
    # Exact places come first, then regular expressions, then prefixes.
    taken = next(body for how in matches for kind, place, body in places if kind == how and matches[how](path, place))
    apache = (DEPLOY / "apache-portal.conf").read_text(encoding="utf-8")
    signed_in, open_to_tokens = re.findall(r'<LocationMatch "(.*)">', apache)

    assert needs_token == ('X-Remote-User ""' in taken) == ("auth_basic" not in taken)
    assert (not needs_token, needs_token) == (bool(re.search(signed_in, path)), bool(re.search(open_to_tokens, path)))


def mail_program(
    folder: Path, *, slurmscope_ends_with: int, recipient: str = "ada", subject: str = SUBJECT
) -> subprocess.CompletedProcess[str]:
    """Run the script as slurmctld does, over programs that write down what they were given."""
    for name, code in (("slurmscope", slurmscope_ends_with), ("mail", 0)):
        program = folder / name
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >"{folder}/{name}.given"\necho chatter\nexit {code}\n')
        program.chmod(0o755)
    text = MAIL_PROGRAM.read_text(encoding="utf-8")
    text = text.replace("/opt/slurmscope/bin/slurmscope", f"{folder}/slurmscope")
    script = folder / "script"
    script.write_text(text.replace("/usr/bin/mail", f"{folder}/mail"), encoding="utf-8")
    argv = ["/bin/sh", str(script), "-s", subject, recipient]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env={})


def test_mail_program_hands_over_what_slurm_said(tmp_path: Path) -> None:
    done = mail_program(tmp_path, slurmscope_ends_with=0)

    given = ["mail", "--config.file", "/etc/slurmscope/mail.toml", "-s", SUBJECT, "ada"]
    assert given == (tmp_path / "slurmscope.given").read_text().splitlines()
    assert (0, "", False) == (done.returncode, done.stdout, (tmp_path / "mail.given").exists())


def test_mail_goes_the_usual_way_when_slurmscope_cannot_send_it(tmp_path: Path) -> None:
    done = mail_program(tmp_path, slurmscope_ends_with=2)

    given = ["-s", SUBJECT, "ada"]
    assert given == (tmp_path / "mail.given").read_text().splitlines()
    assert 0 == done.returncode


@pytest.mark.parametrize(
    "recipient",
    [
        "-Xshell touch here", "|id>out", "ada,|id", "/some/file", "ada,/some/file", "+folder", "ada,+folder", "ada,-X",
        "", "ada,", ",", "ada b", "ada\nb", "a;id", "$(id)", "`id`", "~/file", "%s|id", "\u00e4da", "a\\b", "!id",
        ":file", "@",
    ],
)  # fmt: skip
def test_recipient_that_is_no_address_reaches_no_program(tmp_path: Path, recipient: str) -> None:
    done = mail_program(tmp_path, slurmscope_ends_with=2, recipient=recipient)

    assert (1, "mail-slurmscope: the recipient is not a mail address\n") == (done.returncode, done.stderr)
    assert [] == [path.name for path in tmp_path.glob("*.given")]


@pytest.mark.parametrize(
    "recipient", ["ada", "ada@example.org", "a.d+x@example.org,bob", "user_1", "u=x%y@h-1.example"]
)
def test_addresses_are_mailed(tmp_path: Path, recipient: str) -> None:
    mail_program(tmp_path, slurmscope_ends_with=2, recipient=recipient)

    assert recipient == (tmp_path / "mail.given").read_text().splitlines()[-1]


def test_mail_program_takes_what_slurm_gives_and_nothing_else(tmp_path: Path) -> None:
    done = subprocess.run(
        [MAIL_PROGRAM, "-s", "x", "-a", "ada"], capture_output=True, text=True, timeout=60, check=False
    )

    assert (1, "mail-slurmscope: usage: mail-slurmscope -s SUBJECT RECIPIENT\n") == (done.returncode, done.stderr)


def test_line_ends_in_a_job_name_add_no_mail_header(tmp_path: Path) -> None:
    mail_program(tmp_path, slurmscope_ends_with=2, subject="Slurm Job_id=7 Name=x\nBcc: eve@example.org\r\n Ended")

    assert ["-s", "Slurm Job_id=7 Name=x Bcc: eve@example.org   Ended", "ada"] == (
        (tmp_path / "mail.given").read_text().splitlines()
    )


def test_mail_program_can_be_run() -> None:
    assert MAIL_PROGRAM.stat().st_mode & 0o111
