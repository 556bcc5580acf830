#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Runs a bench that uses up the machine's memory in a guest of 1 GiB.
#
#   lab/bench.sh SERIES NAME [ARGUMENT...]   a kernel of kernels.conf; what `plimsoll bench` takes, of suite or frag
#
# The files lie on an ext4 of their own. What the guard recorded of each run of the suite is in target/lab/bench/kept afterwards,
# with the traces that `plimsoll simulate` takes. Exits 3 when what is needed cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly seconds_max=14400 own=$PWD/target/lab/bench
# A second, of the disk to swap to: a tenth of what a good one takes, as all else here.
readonly swap_mebibytes=40

die() {
    printf 'lab: %s\n' "$1" >&2
    exit "${2:-1}"
}

[ $# -ge 2 ] || die "usage: lab/bench.sh SERIES NAME [ARGUMENT...]" 2
command -v qemu-system-x86_64 >/dev/null || die "qemu-system-x86_64 is missing: run tools/setup.sh test" 3
PATH=$PATH:/usr/sbin:/sbin
command -v mkfs.ext4 >/dev/null || die "mkfs.ext4 is missing" 3
kernel=$(lab/fetch-kernel.sh "$1") || exit 3
shift
cargo build --locked --release --package plimsoll || exit
rm -rf "$own"
mkdir -p "$own/kept"
# The guest does not like to see this machine's files change.
cp target/release/plimsoll "$own"
truncate -s 2560M "$own/image"
mkfs.ext4 -q "$own/image"
status=0
lab/boot.sh -t $seconds_max -m "${PLIMSOLL_LAB_MEBIBYTES:-1024}" -d "$own/image" -s $swap_mebibytes "$kernel" "
    disk=\$(grep -lx plimsoll-kept /sys/block/*/serial) && disk=/dev/\$(basename \"\${disk%/serial}\")
    mkdir -p /run/kept && mount -t ext4 \"\$disk\" /run/kept && chmod 755 /run/kept || exit 90
    PATH=\$PATH:$(printf '%q' "$PWD/target/tools/usr/bin"):$(printf '%q' "$PWD/target/tools/usr/sbin")
    $(printf '%q' "$own/plimsoll") bench ${*@Q} --data /run/kept" || status=$?
debugfs -R "rdump / $own/kept" "$own/image" 2>/dev/null
rm -f "$own"/kept/{read,large,page} "$own/image"
exit $status
