#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
# Be process 1 of the guest: build a machine out of the host's files, run one command in it, switch off.
#
# The "desk" is a folder of the host, for this run only: the command and the folders to share lie there, output and
# exit status are put there. The machine is below /machine and the command sees nothing outside it.
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys

switch_off() {
  sync
  # With qemu's -no-reboot this is the quickest way out, and it needs no ACPI.
  reboot -f
}

give_up() {
  echo "guest: $*"
  switch_off
}

for module in /modules/*.ko; do insmod "$module" || give_up "the kernel refuses $module"; done

nine=trans=virtio,version=9p2000.L,msize=512000,access=any
mount -t 9p -o "$nine,cache=none" desk /desk || give_up "no desk"
# The host may change its files meanwhile, and nobody here minds: caching them is what makes Python start quickly.
mount -t 9p -o "ro,$nine,cache=loose" host /host || give_up "no files of the host"
mount -t tmpfs -o mode=755,size=75% tmpfs /changes && mkdir /changes/files /changes/work || give_up "no tmpfs"
machine=/machine
mount -t overlay -o lowerdir=/host,upperdir=/changes/files,workdir=/changes/work overlay $machine || give_up "no overlay"

mount -t proc -o nosuid,nodev,noexec proc $machine/proc
mount -t sysfs -o nosuid,nodev,noexec sysfs $machine/sys
mount -t devtmpfs -o mode=755,nosuid dev $machine/dev
mkdir -p $machine/dev/pts $machine/dev/shm
mount -t devpts -o mode=620,gid=5,ptmxmode=666 devpts $machine/dev/pts
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs $machine/dev/shm
mount -t tmpfs -o mode=755,nosuid,nodev tmpfs $machine/run
ln -sf /proc/self/fd $machine/dev/fd
for pair in 0:stdin 1:stdout 2:stderr; do ln -sf "fd/${pair%%:*}" "$machine/dev/${pair#*:}"; done

groups=$machine/sys/fs/cgroup
mount -t cgroup2 -o nosuid,nodev,noexec,nsdelegate,memory_recursiveprot cgroup2 $groups || give_up "no cgroup v2"
# The tree that systemd would make: a cgroup with processes has no children, so everybody moves into a leaf.
mkdir $groups/init.scope $groups/system.slice $groups/system.slice/guest.service
echo $$ >$groups/init.scope/cgroup.procs
for folder in $groups $groups/system.slice; do
  for controller in cpuset cpu io memory pids; do
    echo "+$controller" >$folder/cgroup.subtree_control || give_up "no controller $controller in $folder"
  done
done

number=0
while IFS= read -r folder; do
  mkdir -p "$machine$folder" && mount -t 9p -o "$nine,cache=mmap" "share$number" "$machine$folder" ||
    give_up "cannot share $folder"
  number=$((number + 1))
done </desk/shares

hostname guest
ip link set lo up
# Programs that want addresses of configured families only, as Slurm's do, do not count 127.0.0.1 as one. This is out
# of the range that is kept for documentation. The guest's own name must not stand for it: slurmctld would listen there.
ip address add 192.0.2.1/32 dev lo
echo '127.0.0.1 localhost guest' >$machine/etc/hosts
ulimit -Hn 524288

cut -d ' ' -f 1 /proc/uptime >/desk/boot_seconds
(
  echo 0 >$groups/system.slice/guest.service/cgroup.procs
  exec sh /desk/command </dev/null >/desk/stdout 2>/desk/stderr
)
echo $? >/desk/status
switch_off
