# SPDX-License-Identifier: Apache-2.0
"""Packages install, upgrade, keep what was configured, and leave only data behind, on systems without slurmscope."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from lab.ports import free_port
from scripts.packages.contents import own_modules
from scripts.packages.deb import build_deb
from scripts.packages.pyz import build_pyz
from scripts.packages.roles import FOLDER, Package, common_package, role_packages
from scripts.packages.rpm import build_rpm
from tests.e2e.install_sandbox import run_as_root
from tests.e2e.minimal_root import make_root
from tests.requirements import require_program

SUITES = os.environ.get("DEBIAN_SUITES", "bookworm").split()
PYTHONS = {"bookworm": "3.11", "trixie": "3.13"}
OLD, NEW = "0.1.0rc1", "0.1.0"
# What is there before and after; dpkg and rpm keep books and logs, and useradd leaves copies of the files it changed.
LISTING = """
listing() {
    find /etc /usr /opt /srv /home /var ! -path '/var/lib/dpkg/*' ! -path '/var/lib/rpm/*' ! -path '/var/log/*' \\
        ! -path '/var/lib/apt/*' \\
        ! -path '/var/cache/*' ! -path "/var/tmp/*" ! -name '*-' ! -path '/etc/.pwd.lock' | sort
    cat /etc/passwd /etc/group
}
fetch() {
    python3 -c 'import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=30).read().decode())' "$1"
}
served() {
    for try in $(seq 40); do
        ! fetch "http://127.0.0.1:$PORT/metrics" 2>/dev/null || return 0
        sleep 1
    done
    cat /run/slurmscope-node.log
    return 1
}
mkdir -p /usr/local/bin /usr/share/licenses
listing >/run/before-packages
"""
USED = """
test -z "$(find /etc/systemd -name '*slurmscope*' -type l)"
slurmscope --version
slurmscope config check node
slurmscope config check cluster
slurmscope config check portal
# As administrators do it: HOME stays that of root, which the service may not enter.
test "$HOME" = /root && chmod 0700 /root
runuser -u slurmscope -- slurmscope config check portal
printf 'roles = ["node", "cluster"]\nreaders = ["127.0.0.1"]\n' >/tmp/answers.toml
slurmscope init --answers /tmp/answers.toml
test -e /etc/systemd/system/slurmscope-node.service.d/init.conf && test -e /etc/slurmscope/prometheus/scrape.yml
slurmscope files | grep -x slurmscope-node.service
grep -q /usr/bin/slurmscope /usr/share/slurmscope/prolog-slurmscope
test -e /usr/share/man/man1/slurmscope-node.1.gz
test "$(stat -c %a:%U:%G /etc/slurmscope/portal.toml)" = 640:root:slurmscope
sed -i "s/:9798/:$PORT/" /etc/slurmscope/node.toml
systemctl enable --now slurmscope-node
served | grep -F 'slurmscope_build_info{version="'
kill "$(cat /run/slurmscope-node.pid)"
"""
UPGRADED = """
grep ":$PORT" /etc/slurmscope/node.toml
slurmscope config check node
"""
DATA = """
install -d -o slurmscope -g slurmscope -m 0700 /var/lib/slurmscope
touch /var/lib/slurmscope/archive.db
"""
LEFT = """
test -e /var/lib/slurmscope/archive.db
getent passwd slurmscope
rm -r /var/lib/slurmscope
"""
NOTHING = """
listing | diff /run/before-packages -
"""


@pytest.fixture(scope="module")
def packages() -> Callable[..., tuple[Package, ...]]:
    """Return a function that describes the packages of a version for a Python, with the click of the tests."""
    import click
    import pynvml

    folder = Path(click.__file__).parent
    modules = {f"click/{path.name}": path.read_bytes() for path in sorted(folder.glob("*.py"))}
    modules |= {"pynvml.py": Path(pynvml.__file__).read_bytes(), **own_modules()}
    own = f"{sys.version_info.major}.{sys.version_info.minor}"

    def describe(version: str, python: str = own) -> tuple[Package, ...]:
        # A folder that the next release does not have, and its compiled module.
        dropped = {"slurmscope/dropped/module.py": b"NAME = 1\n"} if version == OLD else {}
        return (
            common_package(modules | dropped, version),
            *role_packages({"portal_library.py": b"NAME = 1\n"}, python),
        )

    return describe


def run(script: str, folder: Path, built: Path, base: Path = Path("/")) -> str:
    """Run a script where only the packages of a folder are visible."""
    if os.geteuid():
        pytest.skip("packages are installed by root")
    environment = {"PORT": str(free_port()), "DEBIAN_FRONTEND": "noninteractive"}
    done = run_as_root(LISTING + script, folder, clone=built, environment=environment, base=base)
    assert 0 == done.returncode, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def debs(packages: Callable[..., tuple[Package, ...]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two versions of the packages of all roles, for the Python of each suite."""
    require_program("dpkg-deb")
    folder = tmp_path_factory.mktemp("debs")
    for suite, version in product(SUITES, (OLD, NEW)):
        (folder / suite / version).mkdir(parents=True)
        for package in packages(version, PYTHONS[suite]):
            build_deb(package, version, folder / suite / version)
    return folder


@pytest.mark.parametrize("suite", SUITES)
def test_deb_is_installed_upgraded_and_purged(suite: str, debs: Path, tmp_path: Path) -> None:
    install = "apt-get install --yes --no-install-recommends"

    output = run(
        f"{install} ./{OLD}/slurmscope*.deb\n{USED}test -d /usr/lib/slurmscope/slurmscope/__pycache__\n"
        f"{install} ./{NEW}/slurmscope*.deb\n{UPGRADED}{DATA}"
        f"apt-get purge --yes 'slurmscope*'\n{LEFT}"
        f"userdel slurmscope\n{NOTHING}",
        tmp_path,
        debs / suite,
        make_root(suite),
    )

    assert ["slurmscope: kept data in /var/lib/slurmscope, and its user slurmscope"] == [
        line for line in output.splitlines() if line.startswith("slurmscope: kept")
    ]


def test_deb_without_data_leaves_nothing(debs: Path, tmp_path: Path) -> None:
    names = "slurmscope-node slurmscope-cluster slurmscope-portal slurmscope"
    suite = SUITES[0]

    run(f"dpkg -i {NEW}/*.deb\ndpkg --purge {names}\n{NOTHING}", tmp_path, debs / suite, make_root(suite))


@pytest.mark.parametrize("suite", SUITES)
def test_archive_serves_an_ordinary_user(
    suite: str, debs: Path, packages: Callable[..., tuple[Package, ...]], tmp_path: Path
) -> None:
    modules = {
        place.removeprefix(f"{FOLDER}/"): file.content
        for place, file in packages(NEW)[0].files.items()
        if place.startswith(FOLDER)
    }
    build_pyz(debs / "slurmscope.pyz", modules, ["/usr/bin/python3"])

    output = run(
        "useradd --create-home ada\ncp slurmscope.pyz /home/ada/ && cd /home/ada\n"
        'as_ada() { runuser -u ada -- env HOME=/home/ada /home/ada/slurmscope.pyz "$@"; }\n'
        'as_ada node --web.listen-address "127.0.0.1:$PORT" &\nserved | grep -F "slurmscope_build_info{version="\n'
        "as_ada run -- sh -c 'exit 7' && exit 1 || test $? = 7\n"
        "as_ada files --copy /home/ada/share && test -e /home/ada/share/slurmscope-node.service\n"
        'test -z "$(find / -xdev -user ada ! -path "/home/*" ! -path "/proc/*")"\n',
        tmp_path,
        debs,
        make_root(suite),
    )

    assert f'slurmscope_build_info{{version="{NEW}"' in output


def test_deb_has_the_same_bytes_each_time(packages: Callable[..., tuple[Package, ...]], tmp_path: Path) -> None:
    require_program("dpkg-deb")
    common = packages(NEW)[0]
    built = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        built.append(build_deb(common, NEW, tmp_path / name).read_bytes())

    assert built[0] == built[1]


def test_rpm_is_installed_upgraded_and_erased(
    packages: Callable[..., tuple[Package, ...]], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    require_program("rpmbuild")
    built = tmp_path_factory.mktemp("rpms")
    for version in (OLD, NEW):
        (built / version).mkdir()
        for package in packages(version):
            build_rpm(package, version, built / version)

    # Debian's packages are not in rpm's books, so rpm cannot find what is needed.
    run(
        f"rpm --force-debian --nodeps -i {OLD}/*.rpm\n{USED}test -d /usr/lib/slurmscope/slurmscope/__pycache__\n"
        f"rpm --force-debian --nodeps -U {NEW}/*.rpm\n{UPGRADED}{DATA}"
        "test -d /usr/lib/slurmscope/slurmscope/__pycache__\n"
        f"rpm -e slurmscope-node slurmscope-cluster slurmscope-portal slurmscope\n{LEFT}userdel slurmscope\n"
        f"rm -rf /etc/slurmscope\n{NOTHING}",
        tmp_path,
        built,
    )


def test_rpm_names_the_python_it_needs(packages: Callable[..., tuple[Package, ...]], tmp_path: Path) -> None:
    require_program("rpmbuild")
    built = build_rpm(packages(NEW)[0], NEW, tmp_path)

    done = subprocess.run(["rpm", "-qp", "--requires", built], capture_output=True, text=True, timeout=60, check=True)

    assert "(python3.11 or python3.12 or python3.13 or python3 >= 3.11)" in done.stdout.splitlines()


def test_rpm_of_the_portal_takes_no_other_python(packages: Callable[..., tuple[Package, ...]], tmp_path: Path) -> None:
    require_program("rpmbuild")
    built = build_rpm(packages(NEW, "3.12")[-1], NEW, tmp_path)

    query = ["rpm", "-qp", "--requires", str(built)]
    done = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True)

    assert "(python3.12 or (python3 >= 3.12 with python3 < 3.13))" in done.stdout.splitlines()
