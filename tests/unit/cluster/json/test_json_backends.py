# SPDX-License-Identifier: Apache-2.0
"""slurmrestd is asked in a version it serves, with the token of the moment, and its refusals are told apart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmscope.cluster.json.backends import VERSIONS, Slurmrestd
from slurmscope.cluster.squeue import StartWindow
from slurmscope.core.errors import ConfigError, MalformedAnswer, ServerError, ServerRefused, SlurmRefused
from slurmscope.http.client.address import parse_address
from slurmscope.slurm.command import SlurmSettings, parse_header_word, parse_version
from tests.fakes.scripted_server import GENEROUS_SECONDS, FakeSlurmrestd, scripted_server, scripted_tls_server

FIXTURES = Path(__file__).parents[3] / "fixtures" / "slurmrestd"
NOW = 1_794_700_600.0
WINDOW = StartWindow(0, 0)
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdW4iOiJhbGljZSJ9.c2VjcmV0"


class Server:
    """A slurmrestd that serves fixtures of some versions."""

    def __init__(self, fake: FakeSlurmrestd, url: str, folder: Path) -> None:
        self.fake = fake
        self.url = url
        self.token_file = folder / "token"

    def serve(self, *versions: str) -> None:
        """Serve these versions and no others from now on."""
        self.fake.answers = {
            f"/slurm/{version}/{what}/{flags}": (200, (FIXTURES / version / f"{what}.json").read_bytes())
            for version in versions
            for what, flags in (("jobs", "?flags=ALL" if version >= "v0.0.40" else ""), ("nodes", ""))
        }

    def say(self, status: int, body: bytes) -> None:
        """Give this answer to everything in the newest version."""
        self.fake.answers = {f"/slurm/{VERSIONS[0]}/nodes/": (status, body)}

    def client(self, **settings: object) -> Slurmrestd:
        """Make a client of this server."""
        known: dict[str, object] = {"rest_url": parse_address(self.url), "timeout": GENEROUS_SECONDS}
        return Slurmrestd(SlurmSettings(**(known | settings)))  # type: ignore[arg-type]

    def client_with_token(self, **settings: object) -> Slurmrestd:
        """Make a client that has a token."""
        self.token_file.write_text(TOKEN)
        return self.client(rest_token_file=self.token_file, **settings)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    fake = FakeSlurmrestd()
    with scripted_server(fake.handle, tmp_path / "s") as url:
        yield Server(fake, url, tmp_path)


@pytest.mark.parametrize("version", VERSIONS)
def test_newest_version_that_both_know_is_found_and_remembered(server: Server, version: str) -> None:
    older = VERSIONS[VERSIONS.index(version) :]
    server.serve(*older)
    client = server.client()

    jobs, nodes = client.read_jobs(WINDOW, NOW), client.read_nodes()

    assert (13, 3) == (sum(group.jobs for group in jobs.groups), len(nodes.nodes))
    assert NOW == jobs.taken_at_seconds
    assert VERSIONS.index(version) + 2 == len(server.fake.paths)
    assert f"/slurm/{version}/nodes/" == server.fake.paths[-1]


def test_version_that_went_away_is_searched_again(server: Server) -> None:
    server.serve("v0.0.41")
    client = server.client()
    client.read_nodes()
    server.serve("v0.0.44")

    assert 3 == len(client.read_nodes().nodes)
    client.read_nodes()
    assert "/slurm/v0.0.44/nodes/" == server.fake.paths[-1] == server.fake.paths[-2]


def test_set_version_is_the_only_one(server: Server) -> None:
    server.serve("v0.0.45", "v0.0.39")

    server.client(rest_version="v0.0.39").read_nodes()
    with pytest.raises(ServerError, match=r"does not support v0\.0\.38; see --slurm\.rest-version"):
        server.client(rest_version="v0.0.38").read_nodes()

    assert ["/slurm/v0.0.39/nodes/", "/slurm/v0.0.38/nodes/"] == server.fake.paths


def test_server_of_other_versions_is_reported(server: Server) -> None:
    with pytest.raises(ServerError, match=r"does not support any of v0\.0\.38 to v0\.0\.45"):
        server.client().read_nodes()


def test_details_of_jobs_are_not_requested(server: Server) -> None:
    server.serve("v0.0.40")

    server.client(rest_version="v0.0.40").read_jobs(WINDOW, NOW)

    assert ["/slurm/v0.0.40/jobs/?flags=ALL"] == server.fake.paths


def test_without_a_token_no_header_is_sent(server: Server) -> None:
    server.serve(VERSIONS[0])

    server.client().read_nodes()

    assert (None, None) == (server.fake.header("X-SLURM-USER-TOKEN"), server.fake.header("X-SLURM-USER-NAME"))


def test_token_and_user_are_sent(server: Server) -> None:
    server.serve(VERSIONS[0])

    server.client_with_token(rest_user="alice").read_nodes()

    assert (TOKEN, "alice") == (server.fake.header("X-SLURM-USER-TOKEN"), server.fake.header("X-SLURM-USER-NAME"))


def test_new_token_is_used_at_once(server: Server) -> None:
    server.serve(VERSIONS[0])
    client = server.client_with_token()
    client.read_nodes()

    # As scontrol token prints it, written aside and renamed.
    renewed = server.token_file.with_suffix(".new")
    renewed.write_text("SLURM_JWT=renewed\n")
    renewed.replace(server.token_file)
    client.read_nodes()

    assert "renewed" == server.fake.header("X-SLURM-USER-TOKEN")


@pytest.mark.parametrize("status", [401, 403])
def test_refused_token_is_a_refusal_and_never_shown(server: Server, status: int) -> None:
    server.say(status, f"bad token {TOKEN}".encode())

    with pytest.raises(
        ServerRefused, match=r"answered 40[13]: bad token TOKEN; see --slurm\.rest-token-file"
    ) as caught:
        server.client_with_token().read_nodes()

    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("status", [500, 502, 503])
def test_failure_that_slurm_reports_of_is_reported(server: Server, status: int) -> None:
    server.say(status, (FIXTURES / "v0.0.45" / "controller-down.json").read_bytes())

    with pytest.raises(SlurmRefused, match="Unable to query jobs: Unable to contact slurm controller"):
        server.client().read_nodes()


@pytest.mark.parametrize("status", [204, 302, 418, 500])
def test_other_status_is_reported(server: Server, status: int) -> None:
    server.say(status, b"" if status == 204 else b"<html>\nno</html>")

    with pytest.raises(ServerError, match=rf"answered {status}: (an empty body|<html>\\nno</html>)") as caught:
        server.client().read_nodes()

    assert "failed" == caught.value.reason


def test_page_of_somebody_else_is_malformed(server: Server) -> None:
    server.say(200, b"<html>Welcome to nginx!</html>")

    with pytest.raises(MalformedAnswer):
        server.client().read_nodes()


def test_address_must_be_given() -> None:
    with pytest.raises(ConfigError, match=r"needs --slurm\.rest-url"):
        Slurmrestd(SlurmSettings())


def test_token_is_not_sent_to_a_server_that_is_not_trusted(tmp_path: Path) -> None:
    fake = FakeSlurmrestd()

    with scripted_tls_server(fake.handle, tmp_path) as (url, _):
        client = Server(fake, url, tmp_path).client_with_token()
        with pytest.raises(ServerRefused, match=r"certificate of .* is not trusted"):
            client.read_nodes()

    assert [] == fake.requests


def test_settings_of_slurmrestd_are_words() -> None:
    assert ("", "alice") == (parse_header_word(""), parse_header_word("alice"))
    assert ("", "v0.0.42") == (parse_version(""), parse_version("v0.0.42"))
    for wrong in ("a b", "a\nb", "é", "x" * 257, 7):
        with pytest.raises(ValueError, match="is not"):
            parse_header_word(wrong)
    for wrong in ("42", "v0.0.42/../", "v1.0.0", 42):
        with pytest.raises(ValueError, match="is not"):
            parse_version(wrong)
