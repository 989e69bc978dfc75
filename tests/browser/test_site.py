# SPDX-License-Identifier: Apache-2.0
"""The site of the documentation builds, and its own search finds what administrators look for."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

ROOT = Path(__file__).parents[2]
HITS = 3

QUESTIONS = {
    "firewall": "faq.html#which-ports-does-the-firewall-need",
    "supported operating systems": "faq.html#which-operating-systems-python-and-slurm-releases-are-supported",
    "ubuntu 22.04": "install.html#packages",
    "different versions": "faq.html#may-agents-exporter-and-portal-have-different-versions",
    "ldap": "faq.html#how-do-people-sign-in-oidc-saml-ldap-kerberos",
    "oidc": "faq.html#how-do-people-sign-in-oidc-saml-ldap-kerberos",
    "delete user data": "operations.html#delete-the-data-of-a-user",
    "retention": "faq.html#how-long-are-jobs-kept-the-retention",
    "replace node_exporter": "faq.html#does-it-replace-node_exporter",
    "dcgm": "faq.html#does-it-replace-dcgm-and-dcgm-exporter",
    "amd": "faq.html#are-amd-and-intel-gpus-shown",
    "diskless": "faq.html#does-it-work-on-diskless-nodes",
    "prometheus disk": "faq.html#how-much-disk-does-prometheus-need",
    "alertmanager": "faq.html#how-do-alerts-reach-people-does-it-need-an-alertmanager",
    "apptainer": "faq.html#are-jobs-in-containers-measured",
    "run in container": "faq.html#can-slurmscope-itself-run-in-a-container",
    "jwt": "operations.html#a-token-for-slurmrestd",
    "privatedata": "faq.html#what-about-a-cluster-with-privatedata",
    "several clusters": "scaling.html#several-clusters",
    "not measured": "faq.html#why-does-a-report-say-not-measured",
    "backup restore": "operations.html#back-up-and-restore",
    "uninstall": "faq.html#how-do-i-uninstall-it",
    "http proxy": "operations.html#proxies",
    "selinux": "operations.html#selinux",
    "address already in use": "troubleshooting.html#exporters-and-agents",
    "grafana dashboard": "dashboards.html#dashboards",
    "switch off rule": "faq.html#how-do-i-change-or-switch-off-a-rule",
    "who sees whose jobs": "faq.html#who-sees-whose-jobs",
    "keep dashboards": "faq.html#can-i-keep-my-dashboards",
    "slurmctld down": "faq.html#what-happens-when-slurmctld-slurmdbd-or-prometheus-is-down",
    "podman": "install.html#in-a-container",
}
"""What people type into the search, and the section that answers it."""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Keep the output of tests clean."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Build the site as ``make site`` does, serve it, and give its address."""
    built = subprocess.run(
        [sys.executable, "-m", "scripts.site"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert 0 == built.returncode, built.stdout + built.stderr
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(ROOT / "dist" / "site"))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def page(browser: Browser, site: str) -> Iterator[Page]:
    """Open the first page with its search; requests to other hosts fail the test."""
    foreign: list[str] = []
    with browser.new_page(viewport={"width": 1280, "height": 900}) as page:
        page.on(
            "request", lambda request: None if request.url.startswith((site, "blob:")) else foreign.append(request.url)
        )
        page.goto(f"{site}/index.html")
        page.keyboard.press("/")
        yield page
    assert [] == foreign


@pytest.mark.parametrize(("words", "answer"), QUESTIONS.items(), ids=[re.sub(r"\W", "-", name) for name in QUESTIONS])
def test_answer_is_among_the_first_hits(page: Page, words: str, answer: str) -> None:
    search = page.get_by_role("dialog", name="Search").get_by_role("combobox")
    search.fill("")
    expect(page.get_by_role("option")).to_have_count(0)
    search.fill(words)
    # All hits of this search, not of the one before: their addresses repeat the words.
    hits = page.locator(f"a[role=option][href*='h={words.replace(' ', '+')}']")
    hits.first.wait_for()

    found = [urlsplit(str(hit.get_attribute("href"))) for hit in hits.all()[:HITS]]

    assert answer in [f"{url.path.lstrip('/')}#{url.fragment}" for url in found]
