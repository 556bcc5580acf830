#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Boots a small Debian under qemu with systemd as its init, installs the packages of packaging/deb.sh there, and checks what
# only systemd can show: the unit itself, the last defence (memory.max of a user's slice), upgrade, removal and purge.
#
#   lab/systemd.sh [SERIES [PATTERN...]]   a kernel of kernels.conf, 6.12 if none is named; only the checks so named
#
# The two CPUs take turns on one thread, as in boot.sh.
#
# The Debian is made by debootstrap from the archive that this machine uses, signatures verified, and kept in
# target/lab/systemd; the guest reads it and writes to its own memory. Prints one line 'test NAME ... ok' or '... FAILED' for
# each check and a line of totals, as libtest does. Needs root (debootstrap). Exits 1 when a check failed, 3 when what is needed cannot be had,
# 124 when the guest does not end in time.
set -euo pipefail
cd "$(dirname "$0")/.."

. lab/archive.sh
readonly own=$lab/systemd
readonly suite=bookworm
# What a server with users has, what the files of docs/login-node.md need, Python for the programs that take memory, and other
# killers.
readonly packages=systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,libelf1,zlib1g,procps,python3,jq,openssh-server,earlyoom,systemd-oomd
readonly seconds_max=1500

# Makes the Debian, once; another list of packages makes it anew.
make_root() {
    local root=$1
    [ "$(cat "$root/.made-of" 2>/dev/null)" != "$suite $packages" ] || return 0
    rm -rf "$root" "$root.new"
    bootstrap --variant=minbase --include="$packages" "$suite" "$root.new" >"$own/debootstrap.log" 2>&1 </dev/null ||
        die "debootstrap failed: see $own/debootstrap.log" 3
    chroot "$root.new" useradd --create-home --shell /bin/bash --uid 1000 alice
    # Nothing reaches for the network, and nobody logs in.
    local unit
    for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer serial-getty@ttyS0.service getty@tty1.service; do
        ln -sf /dev/null "$root.new/etc/systemd/system/$unit"
    done
    # Each is started by the check that is about it, and not because a unit is relieved by it: the package arranges that.
    local relieved
    for relieved in -.slice.d/10-oomd-root-slice-defaults.conf user@.service.d/10-oomd-user-service-defaults.conf; do
        mkdir -p "$root.new/etc/systemd/system/${relieved%/*}"
        ln -s /dev/null "$root.new/etc/systemd/system/$relieved"
    done
    chroot "$root.new" systemctl --quiet disable earlyoom.service ssh.service systemd-oomd.{socket,service} >>"$own/debootstrap.log" 2>&1
    rm -rf "$root.new"/var/cache/apt/archives/*.deb "$root.new"/var/lib/apt/lists/*
    echo "$suite $packages" >"$root.new/.made-of"
    mv "$root.new" "$root"
}

# Puts this tree's packages and checks into it. The second packages are the same but for their version.
make_packages() {
    local root=$1 package tree=$own/packages/tree
    command -v dh >/dev/null || die "debhelper is missing: run tools/setup.sh test" 3
    packaging/deb.sh "$own/packages" debug >"$own/packages.log" 2>&1 || {
        cat "$own/packages.log" >&2
        die "no packages"
    }
    rm -rf "$root/lab"
    mkdir -p "$root/lab/first" "$root/lab/second"
    for package in plimsoll libtmalloc0; do
        cp "$own/packages/$package"_*.deb "$root/lab/first"
        rm -rf "$tree"
        dpkg-deb --raw-extract "$own/packages/$package"_*.deb "$tree"
        sed -i 's/\(0plimsoll\)1\b/\12/' "$tree/DEBIAN/control"
        dpkg-deb -Zgzip --root-owner-group --build "$tree" "$root/lab/second/$package.deb" >>"$own/packages.log"
    done
}

# A program by a libsystemd that knows memory pressure, which came with 254: this Debian's own is older, its backports' is not.
make_listener() {
    local folder=$lab/apt/backports
    if [ ! -s "$folder/libsystemd/libsystemd.so.0" ]; then
        # shellcheck disable=SC2016 # for the shell inside, where $suite is another
        bash -c '. lab/archive.sh && update "$1" bookworm bookworm-backports && download "$1" libsystemd0/bookworm-backports' \
            bash "$folder" || die "no libsystemd from bookworm-backports: see $folder/log" 3
        rm -rf "$folder/unpacked"
        dpkg -x "$folder"/libsystemd0_*.deb "$folder/unpacked"
        install -D -m 644 "$folder"/unpacked/usr/lib/*/libsystemd.so.0 "$folder/libsystemd/libsystemd.so.0"
    fi
    install -D -m 644 "$folder/libsystemd/libsystemd.so.0" "$1/lab/libsystemd.so.0"
    "${CC:-cc}" -O1 -Wall -Wextra -Werror -o "$1/lab/listen" lab/systemd/listen.c "$1/lab/libsystemd.so.0" \
        -Wl,-rpath,/lab -Wl,--allow-shlib-undefined || die "lab/systemd/listen.c does not build"
}

install_own() {
    local root=$1
    # As tools/test.sh, and by the same command: built alone it would be another file, and a guest does not like to see this
    # machine's files change.
    exec 8>"$lab/build.lock"
    flock 8
    cargo test --locked --workspace --no-run >"$own/build.log" 2>&1 </dev/null || {
        cat "$own/build.log" >&2
        die "plimsoll does not build"
    }
    exec 8>&-
    make_packages "$root"
    make_listener "$root"
    install -D -m 644 lab/systemd/plimsoll-lab.service "$root/etc/systemd/system/plimsoll-lab.service"
    mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
    install -m 755 lab/systemd/checks.sh lab/systemd/take.py lab/systemd/crowd.py "$root/lab"
    install -m 644 packaging/README.md "$root/lab/packaging.md"
    install -m 644 docs/login-node.md "$root/lab"
    printf '%s\n' "${@:2}" >"$root/lab/patterns"
    ln -sf ../plimsoll-lab.service "$root/etc/systemd/system/multi-user.target.wants/plimsoll-lab.service"
}

make_initramfs() {
    local kernel=$1 initramfs=$2
    rm -rf "$initramfs"
    mkdir -p "$initramfs"/{bin,dev,modules,proc,sys,root}
    cp "$kernel/busybox" "$initramfs/bin/busybox"
    cp "$kernel"/modules/*.ko "$initramfs/modules"
    install -m 755 lab/init.sh "$initramfs/init"
    (cd "$initramfs" && find . | "$kernel/busybox" cpio -o -H newc 2>/dev/null) >"$initramfs.cpio"
}

[ "$(id -u)" = 0 ] || die "making a Debian, with debootstrap, needs root" 3
command -v qemu-system-x86_64 >/dev/null || die "qemu-system-x86_64 is missing" 3
kernel=$(lab/fetch-kernel.sh "${1:-6.12}") || exit 3
mkdir -p "$own"
echo "     Running lab/systemd/checks.sh ($(cat "$kernel/package"))"
make_root "$own/root"
install_own "$own/root" "${@:2}"
make_initramfs "$kernel" "$own/initramfs"
: >"$own/serial"
# shellcheck disable=SC2054 # the commas are qemu's
qemu=(
    timeout --foreground --kill-after=10 "$seconds_max"
    qemu-system-x86_64 -nodefaults -no-user-config -no-reboot -display none -machine q35
    -accel "tcg,thread=${PLIMSOLL_LAB_THREADS:-single},tb-size=512" -cpu max,la57=off -smp 2 -m 1536
    -kernel "$kernel/vmlinuz" -initrd "$own/initramfs.cpio"
    -append "console=ttyS0 loglevel=5 panic=-1 systemd.show_status=0"
    -fsdev "local,id=root,path=$own/root,readonly=on,security_model=none,multidevs=remap"
    -device virtio-9p-pci,fsdev=root,mount_tag=root
    -device virtio-rng-pci
    -serial "file:$own/console" -serial "file:$own/serial"
)
status=0
"${qemu[@]}" </dev/null || status=$?
tr -d '\r' <"$own/serial" | tee "$own/output"
[ "$status" -ne 124 ] || die "the guest did not end within $seconds_max s: see $own/console" 124
grep -qx 'plimsoll-lab: end' "$own/output" || die "the guest ended before its checks did: see $own/console" 125
passed=$(grep -c '^test .* ok$' "$own/output") || true
failed=$(grep -c '^test .* FAILED$' "$own/output") || true
result=ok
[ "$failed" -eq 0 ] || result=FAILED
# As lab/run.sh: a kernel that complains fails the run.
if complaints=$(tools/splats.sh --emulated <"$own/console"); then
    printf 'lab: the kernel complains: %s\n' "$complaints" "see $own/console"
    failed=$((failed + 1)) result=FAILED
fi
echo "test result: $result. $passed passed; $failed failed; 0 ignored; 0 measured; 0 filtered out; finished in ${SECONDS}s"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
