#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=dash
#
# /init of the lab's initramfs, run by the static busybox beside it: loads modules, mounts the root folder that qemu shares
# read-only, and hands over: to guest.sh where that is the machine's own, else to the init of the Debian that it is.
PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for module in /modules/*.ko; do
    insmod "$module" || echo "lab: $module does not load"
done
# The folder does not change while the guest runs: what was read stays valid.
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro root /root || exec poweroff -f
if [ ! -e /lab/tree ]; then
    # With memory to write to over it.
    mkdir /low /over
    mount -o move /root /low
    mount -t tmpfs -o size=256m over /over
    mkdir /over/upper /over/work
    mount -t overlay -o lowerdir=/low,upperdir=/over/upper,workdir=/over/work overlay /root || exec poweroff -f
    umount /proc /sys
    mount -o move /dev /root/dev
    exec switch_root /root /sbin/init
fi
# The root itself is memory, with the machine's folders mounted into it: no look-up of a place of the guest's own has to ask 9p,
# which is a server as any other to those who wait for none.
mkdir /low
mount -o move /root /low
mount -t tmpfs root /root
for place in /low/*; do
    if [ -h "$place" ]; then
        cp -d "$place" /root
    elif [ -d "$place" ]; then
        mkdir "/root/${place##*/}"
        mount -o bind "$place" "/root/${place##*/}"
    fi
done
for place in proc sys dev; do
    mount -o move "/$place" "/root/$place"
done
mount -t tmpfs run /root/run
cp -r /lab /root/run/lab
exec switch_root /root /bin/bash "$(cat /lab/tree)/lab/guest.sh"
