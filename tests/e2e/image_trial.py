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
apt-get update -qq && apt-get install -y -qq --no-install-recommends podman crun uidmap slirp4netns
mkdir -p /etc/containers
printf '[storage]\ndriver = "vfs"\nrunroot = "/run/containers"\ngraphroot = "/var/lib/containers"\n' \
    >/etc/containers/storage.conf
printf '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n' >/etc/containers/containers.conf
# In this name space only: crun takes no hybrid layout, and no systemd runs the timer of the health check.
umount --lazy /sys/fs/cgroup/unified || true
tar -C "$BASE" -c . | podman import - docker.io/library/debian:bookworm-slim
podman build --isolation chroot --network host --pull=never --format docker --tag slurmscope \
    --file deploy/container/Containerfile "$DEBS"
podman image inspect slurmscope | grep -A 9 '"Healthcheck"' | grep -F '"/usr/share/slurmscope/container/healthy"'
useradd --create-home slurmscope
install -d -o slurmscope -g slurmscope -m 0700 /var/lib/slurmscope
install -d /etc/slurmscope
cat >/run/trial <<'END'
set -euxo pipefail
kind=$1 own_port=$2
shift 2
cd
user=$(id -u slurmscope):$(id -g slurmscope)
# The lab is in a folder of its own, with its munge; control groups of this machine are left alone.
common="--read-only --tmpfs /tmp --cap-drop all --security-opt no-new-privileges --user $user $*
    -v $LAB:$LAB:ro -e SLURM_CONF
    -v /etc/passwd:/etc/passwd:ro -v /etc/group:/etc/group:ro
    -v /etc/slurmscope:/etc/slurmscope:ro -v /var/lib/slurmscope:/var/lib/slurmscope
    --network host --cgroups disabled"
check=/usr/share/slurmscope/container/healthy
podman run --rm $common slurmscope doctor cluster
podman run --detach --name slurmscope-cluster --health-cmd "$check http://127.0.0.1:$own_port" $common \
    slurmscope cluster --web.listen-address "127.0.0.1:$own_port"
for try in $(seq 60); do
    page=$(curl -fsS "http://127.0.0.1:$own_port/metrics") && break
    sleep 1
done
echo "$page" | grep -x 'slurm_up 1' || { podman logs slurmscope-cluster; exit 1; }
podman healthcheck run slurmscope-cluster
echo "$kind $(podman inspect --format '{{.State.Health.Status}}' slurmscope-cluster)"
! podman exec slurmscope-cluster $check http://127.0.0.1:1
# Neither by its user nor by root.
! podman exec slurmscope-cluster touch /usr/file
! podman exec --user 0 slurmscope-cluster touch /usr/file
echo "$kind UID $(stat -c %u /proc/"$(podman inspect --format '{{.State.Pid}}' slurmscope-cluster)")"
podman stop --time 10 slurmscope-cluster
END
bash /run/trial root "$PORT"
podman image inspect --format 'SIZE {{.Size}}' slurmscope
podman save --format docker-archive --output /run/image.tar slurmscope
chmod 0644 /run/image.tar
echo "slurmscope:200000:65536" | tee /etc/subuid >/etc/subgid
sed -i '/root = /d' /etc/containers/storage.conf
mknod /run/tun c 10 200 && chmod 0666 /run/tun && mount --bind /run/tun /dev/net/tun
as_user() {
    install -d -o slurmscope -m 0700 /run/rootless
    setpriv --reuid slurmscope --regid slurmscope --init-groups \
        env HOME=/home/slurmscope XDG_RUNTIME_DIR=/run/rootless "$@"
}
cd /
as_user podman load --input /run/image.tar
as_user bash /run/trial rootless "$ROOTLESS_PORT" --userns keep-id
# The image's own check, of port 9092 in a network of its own.
user=$(id -u slurmscope):$(id -g slurmscope)
as_user podman run --detach --name own --cgroups disabled --userns keep-id --user "$user" --read-only --tmpfs /tmp \
    --network slirp4netns -p "127.0.0.1:$PORT:9092" slurmscope cluster
for try in $(seq 60); do curl -fsS "http://127.0.0.1:$PORT/-/healthy" && break || sleep 1; done
as_user podman healthcheck run own || { as_user podman logs own; exit 1; }
echo "own check $(as_user podman inspect --format '{{.State.Health.Status}}' own)"
as_user podman stop --time 10 own
echo "USER $(id -u slurmscope)"
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
        "ROOTLESS_PORT": str(free_port()),
    }

    done = run_as_root(SCRIPT, tmp_path, clone=ROOT, environment=environment, visible=[clean_lab.folder, debs, base])

    output = done.stdout[-6000:] + done.stderr[-8000:]
    assert 0 == done.returncode, output
    lines = done.stdout.splitlines()
    (user,) = [line.removeprefix("USER ") for line in lines if line.startswith("USER ")]
    assert 2 == lines.count("slurm_up 1"), output
    assert {"root healthy", "rootless healthy", "own check healthy"} <= set(lines), output
    # Whom munge reports to Slurm.
    assert {f"root UID {user}", f"rootless UID {user}"} <= set(lines), output
