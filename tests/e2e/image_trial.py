# SPDX-License-Identifier: Apache-2.0
"""podman builds the image and runs it as the installation guide says, against a real cluster; run by ``make trial``.

podman comes from Debian, into an overlay of this machine that is thrown away. The base image is a minimal Debian that
is imported under the name of Debian's own, so that no registry is needed. Not in ``make test``: containers need
privileges that a machine for tests may lack.
"""

from __future__ import annotations

from pathlib import Path

from lab import SlurmLab
from lab.ports import free_port
from scripts.packages.__main__ import main as build_packages
from tests.e2e.install_sandbox import run_as_root
from tests.e2e.minimal_root import make_root

ROOT = Path(__file__).parents[2]
SCRIPT = r"""
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq && apt-get install -y -qq --no-install-recommends podman crun
mkdir -p /etc/containers
printf '[storage]\ndriver = "vfs"\nrunroot = "/run/containers"\ngraphroot = "/var/lib/containers"\n' \
    >/etc/containers/storage.conf
printf '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n' >/etc/containers/containers.conf
# In this name space only: crun takes no hybrid layout, and no systemd runs the timer of the health check.
umount --lazy /sys/fs/cgroup/unified || true
tar -C "$BASE" -c . | podman import - docker.io/library/debian:bookworm-slim
podman build --isolation chroot --network host --pull=never --format docker --tag slurmscope \
    --file deploy/container/Containerfile "$DEBS"
useradd --system --user-group --no-create-home slurmscope
install -d -o slurmscope -g slurmscope -m 0700 /var/lib/slurmscope
install -d /etc/slurmscope
user=$(id -u slurmscope):$(id -g slurmscope)
# The lab is in a folder of its own, with its munge; control groups of this machine are left alone.
common="--read-only --tmpfs /tmp --cap-drop all --security-opt no-new-privileges --user $user
    -v $LAB:$LAB:ro -e SLURM_CONF
    -v /etc/passwd:/etc/passwd:ro -v /etc/group:/etc/group:ro
    -v /etc/slurmscope:/etc/slurmscope:ro -v /var/lib/slurmscope:/var/lib/slurmscope
    --network host --cgroups disabled --no-healthcheck"
podman run --rm $common slurmscope doctor cluster
podman run --detach --name slurmscope-cluster $common slurmscope cluster --web.listen-address "127.0.0.1:$PORT"
for try in $(seq 60); do
    page=$(curl -fsS "http://127.0.0.1:$PORT/metrics") && break
    sleep 1
done
echo "$page" | grep -x 'slurm_up 1' || { podman logs slurmscope-cluster; exit 1; }
! podman exec slurmscope-cluster touch /root/file /usr/file
echo "UID $(podman exec slurmscope-cluster id -u)"
podman image inspect --format 'SIZE {{.Size}}' slurmscope
podman stop --time 10 slurmscope-cluster
"""


def test_image_is_built_and_serves_the_metrics_of_a_cluster(clean_lab: SlurmLab, tmp_path: Path) -> None:
    debs = tmp_path / "debs"
    assert 0 == build_packages(["deb", "--output", str(debs), "--portal-python", "3.11"])
    base = make_root("bookworm")
    environment = {
        **clean_lab.environment,
        "BASE": str(base),
        "DEBS": str(debs),
        "LAB": str(clean_lab.folder),
        "PORT": str(free_port()),
    }

    done = run_as_root(SCRIPT, tmp_path, clone=ROOT, environment=environment, visible=[clean_lab.folder, debs, base])

    output = done.stdout[-6000:] + done.stderr[-8000:]
    assert 0 == done.returncode, output
    assert "slurm_up 1" in done.stdout.splitlines(), output
    assert "UID 0" not in done.stdout.splitlines(), output
