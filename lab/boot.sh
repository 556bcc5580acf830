#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Boots a kernel under qemu, runs one command as root in this machine's own userland, and exits with the command's status.
#
#   lab/boot.sh [-i] [-t SECONDS] [-m MIB] [-a ARGUMENTS] [-d IMAGE] [-s MIB] KERNEL COMMAND
#
#   KERNEL     folder made by fetch-kernel.sh
#   COMMAND    for bash, run in the root of the tree; its output is this program's
#   -i         connect the terminal (Ctrl-C goes to the guest)
#   -t, -m     the longest it may run (600), the guest's memory (2560)
#   -a         more of the kernel's command line
#   -d         a disk that keeps what is on it, with the serial number plimsoll-kept
#   -s         how many MiB a second the disk to swap to takes (as many as this machine's)
#
# The guest sees this machine's files read-only, under their own names, with folders of its own where programs write
# (guest.sh); two CPUs (PLIMSOLL_LAB_CPUS sets another number), no network, and a disk of 768 MiB with the serial number
# plimsoll-swap. No KVM, no root. CPUs take turns on one thread; PLIMSOLL_LAB_THREADS=multi gives each its own (README.md says
# what that risks).
# The kernel's console is kept in KERNEL/console. Exits 124 when the guest does not end in time, 125 when it dies.
set -uo pipefail
tree=$(cd "$(dirname "$0")/.." && pwd)

die() {
    printf 'lab: %s\n' "$1" >&2
    exit "${2:-125}"
}

interactive=no seconds=600 mebibytes=2560 arguments='' disk=() rate=''
while getopts it:m:a:d:s: option; do
    # shellcheck disable=SC2054 # the commas are qemu's
    case $option in
    i) interactive=yes ;;
    t) seconds=$OPTARG ;;
    m) mebibytes=$OPTARG ;;
    a) arguments=$OPTARG ;;
    d) disk=(-drive "if=none,id=kept,file=$OPTARG,format=raw" -device virtio-blk-pci,drive=kept,serial=plimsoll-kept) ;;
    s) rate=,throttling.bps-total=$((OPTARG << 20)) ;;
    *) die "usage: lab/boot.sh [-i] [-t SECONDS] [-m MIB] [-a ARGUMENTS] [-d IMAGE] [-s MIB] KERNEL COMMAND" 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -eq 2 ] || die "usage: lab/boot.sh [-i] [-t SECONDS] [-m MIB] [-a ARGUMENTS] KERNEL COMMAND" 2
kernel=$(cd "$1" 2>/dev/null && pwd) || die "$1: no such folder" 2
command=$2

own=$(mktemp -d "$tree/target/lab/boot.XXXXXX") || die "no folder under $tree/target/lab can be made"
trap 'rm -rf "$own"' EXIT
initramfs=$own/initramfs
mkdir -p "$initramfs"/{bin,dev,lab,modules,proc,root,sys}
cp "$kernel/busybox" "$initramfs/bin/busybox"
cp "$kernel/busybox" "$initramfs/lab/busybox"
cp "$kernel"/modules/*.ko "$initramfs/modules"
cp "$tree/lab/init.sh" "$initramfs/init"
chmod 755 "$initramfs/init"
echo "$tree" >"$initramfs/lab/tree"
printf '%s\n' "$command" >"$initramfs/lab/command"
[ "$interactive" = no ] || : >"$initramfs/lab/interactive"
(cd "$initramfs" && find . | "$kernel/busybox" cpio -o -H newc 2>/dev/null) >"$own/initramfs.cpio" ||
    die "the initramfs cannot be written to $own"
truncate -s 768M "$own/swap"

console=$kernel/console
: >"$console"
# shellcheck disable=SC2054 # the commas are qemu's
qemu=(
    timeout --foreground --kill-after=10 "$seconds"
    qemu-system-x86_64 -nodefaults -no-user-config -no-reboot -display none -machine q35
    # A real x86-64 without the fifth level of page tables, which makes every miss of the emulated TLB dearer, and without fast
    # string moves: the kernel clears and copies by bytes where a CPU has them, and each is emulated (copies took four times as
    # long, a new page twice).
    -accel "tcg,thread=${PLIMSOLL_LAB_THREADS:-single},tb-size=512" -cpu max,la57=off,erms=off,fsrm=off \
        -smp "${PLIMSOLL_LAB_CPUS:-2}" -m "$mebibytes"
    -kernel "$kernel/vmlinuz" -initrd "$own/initramfs.cpio"
    # A hang is ended from outside; what should never happen is to end the guest, and to be seen.
    -append "console=ttyS0 loglevel=5 panic=-1 oops=panic no_timer_check $arguments"
    -fsdev "local,id=root,path=/,readonly=on,security_model=none,multidevs=remap"
    -device virtio-9p-pci,fsdev=root,mount_tag=root
    -drive "if=none,id=swap,file=$own/swap,format=raw,cache=unsafe$rate"
    -device virtio-blk-pci,drive=swap,serial=plimsoll-swap
    "${disk[@]}"
    -device virtio-rng-pci
    -serial "file:$console"
)
if [ "$interactive" = yes ]; then
    "${qemu[@]}" -chardev stdio,id=terminal,signal=off -serial chardev:terminal
    exit
fi
"${qemu[@]}" -chardev stdio,id=output -serial chardev:output 2>"$own/qemu" </dev/null |
    tee "$own/output" | grep --line-buffered --text -v '^plimsoll-lab: exit '
status=${PIPESTATUS[0]}
told=$(sed -n 's/^plimsoll-lab: exit \([0-9]*\)$/\1/p' "$own/output" | tail -n 1)
[ -z "$told" ] || exit "$told"

cat "$own/qemu" >&2
echo "lab: the last of the console of $(cat "$kernel/package"):" >&2
tail -n 40 "$console" >&2
[ "$status" -ne 124 ] || die "the guest did not end within $seconds s" 124
die "the guest ended and did not say how its command ended"
