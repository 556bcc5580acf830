#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Process 1 of a guest, started by init.sh: makes the folders that programs write to, runs the command that boot.sh left in
# /run/lab, tells its status and ends the machine. Bash collects the orphans, as an init must.
#
# Everything below / but these folders is the machine's own, read-only. What the command prints goes to the second serial
# port; the first is the kernel's console.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=linux LANG=C.UTF-8
ulimit -c 0

# The tree may lie below one of the folders that are about to be covered.
tree=$(cat /run/lab/tree)
mkdir /run/lab/kept
mount --bind "$tree" /run/lab/kept
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t tmpfs var-tmp /var/tmp
mount -t tmpfs var-lib /var/lib
[ -d "$tree" ] || { mkdir -p "$tree" && mount --bind /run/lab/kept "$tree"; }
mkdir -p /dev/shm /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t devpts devpts /dev/pts
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mount -t tracefs tracefs /sys/kernel/tracing
echo +memory +pids +cpu >/sys/fs/cgroup/cgroup.subtree_control
# Who stands still has as many pages as before: khugepaged makes a huge page of what is whole already, and not of a few.
echo 0 >/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none
# The freezer of v1, in a tree of its own, is what holds a killed process back.
mkdir /run/freezer && mount -t cgroup -o freezer freezer /run/freezer
ip link set lo up 2>/dev/null || /run/lab/busybox ip link set lo up

port=/dev/ttyS1
cd "$tree" || exit
if [ -e /run/lab/interactive ]; then
    stty sane -F $port
    setsid -c bash /run/lab/command <>$port >&0 2>&1
else
    stty -onlcr -F $port
    setsid bash /run/lab/command >$port 2>&1 </dev/null
fi
printf '\nplimsoll-lab: exit %d\n' $? >$port
# The port is read by a slower machine than a real one: what is still on its way would be lost.
stty -F $port >/dev/null
sync
# Waits without a program: none can be started any more once the disks are off, and a kernel whose init ends panics.
mkfifo /run/end
exec 3<>/run/end
echo o >/proc/sysrq-trigger
read -r -t 60 -u 3
