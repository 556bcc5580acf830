#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Resets a machine right after a kill, and looks after the next boot whether the history has each kill that it told of before.
#
#   lab/reset.sh [SERIES [ROUNDS]]   a kernel of kernels.conf, 6.12 if none is named; so many resets (3)
#
# The reset is the kernel's own (sysrq b): it syncs nothing. What the guest has not written to its disk, an ext4 on an image, is
# lost. What it has written is not, though the image itself is not synced: a disk that loses its cache is not what this shows.
#
# Takes target/debug/plimsoll as it is. Prints one line 'test NAME ... ok' or '... FAILED' for each round and a line of totals, as
# libtest does. Exits 1 when a round failed, 3 when what is needed cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."

# Kills before each reset.
readonly kills=3
readonly seconds_max=600

die() {
    printf 'lab: %s\n' "$1" >&2
    exit "${2:-1}"
}

# What a guest runs first: the disk is where the state is, and a daemon guards.
prelude() {
    cat <<END
shopt -s expand_aliases
disk=\$(grep -lx plimsoll-kept /sys/block/*/serial) && disk=/dev/\$(basename "\${disk%/serial}")
mkdir -p /run/kept && mount -t ext4 "\$disk" /run/kept || exit 90
alias plimsoll='$PWD/target/debug/plimsoll --socket /run/plimsoll.sock'
plimsoll daemon --state /run/kept/plimsoll --pin /sys/fs/bpf/plimsoll 2>/run/daemon.log &
for _ in {1..300}; do plimsoll status >/run/status 2>&1 && break; sleep 0.2; done
plimsoll status >/run/status || { cat /run/daemon.log; exit 91; }
victims() { plimsoll history --json | tr -d ' \n' | grep -o '"victims":\[{"pid":[0-9]*' | grep -o '[0-9]*\$'; }
END
}

# Kills processes one after the other, tells of each when the history does, and resets the machine.
kill_and_reset() {
    prelude
    cat <<END
plimsoll limit set 60777 32M || exit 92
for ((one = 0; one < $kills; one++)); do
    before=\$(victims | wc -l)
    setpriv --reuid 60777 --clear-groups python3 -c 'bytearray(b"x" * (256 << 20))'
    for _ in {1..300}; do victims >/run/now; [ "\$(wc -l </run/now)" -gt "\$before" ] && break; done
done
sed 's/^/told /' /run/now
stty -F /dev/ttyS1 >/dev/null
echo b >/proc/sysrq-trigger
END
}

look() {
    prelude
    printf 'victims | sed "s/^/kept /"\n'
}

command -v qemu-system-x86_64 >/dev/null || die "qemu-system-x86_64 is missing: run tools/setup.sh test" 3
PATH=$PATH:/usr/sbin:/sbin
command -v mkfs.ext4 >/dev/null || die "mkfs.ext4 is missing" 3
[ -x target/debug/plimsoll ] || die "target/debug/plimsoll is missing: build it first" 3
kernel=$(lab/fetch-kernel.sh "${1:-6.12}") || exit 3
own=$(mktemp -d target/lab/reset.XXXXXX)
trap 'rm -rf "$own"' EXIT
truncate -s 64M "$own/image"
mkfs.ext4 -q "$own/image"
failed=0
rounds=${2:-3}
for ((round = 1; round <= rounds; round++)); do
    # It never ends as a guest should.
    lab/boot.sh -t $seconds_max -m 1024 -d "$own/image" "$kernel" "$(kill_and_reset)" >"$own/before" 2>&1 || true
    lab/boot.sh -t $seconds_max -m 1024 -d "$own/image" "$kernel" "$(look)" >"$own/after" 2>&1 || true
    told=$(sed -n 's/^told //p' "$own/before" | tr -d '\r' | sort) kept=$(sed -n 's/^kept //p' "$own/after" | tr -d '\r' | sort)
    result=ok
    if [ "$(wc -l <<<"$told")" -lt "$((kills * round))" ] || [ -n "$(comm -23 <(cat <<<"$told") <(cat <<<"$kept"))" ]; then
        result=FAILED failed=$((failed + 1))
        tail -n 30 "$own/before" "$own/after"
    fi
    printf 'test reset_%d_kept_all_of_%d_kills ... %s\n' "$round" "$(wc -l <<<"$told")" $result
done
result=ok
[ $failed -eq 0 ] || result=FAILED
echo "test result: $result. $((rounds - failed)) passed; $failed failed; 0 ignored; 0 measured; 0 filtered out; finished in ${SECONDS}s"
[ $failed -eq 0 ]
