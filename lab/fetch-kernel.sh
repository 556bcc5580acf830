#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Makes one kernel of kernels.conf ready to boot and prints its folder.
#
#   lab/fetch-kernel.sh SERIES
#
# The folder, target/lab/kernels/SERIES, holds `package` (name and version), `vmlinuz`, `busybox` (static) and `modules/`
# (unpacked, numbered in the order of loading). It stays until kernels.conf or the list of modules changes.
#
# Packages come from Debian's archive as archive.sh says. Exits 3 when it cannot be reached.
set -euo pipefail
cd "$(dirname "$0")/.."
. lab/archive.sh
# The root folder over 9p, something to write over it, a disk to swap to, zram, who asked for too much in one piece.
readonly modules=(virtio_pci 9pnet_virtio 9p overlay virtio_blk zram ext4 binder_linux)

# Prints PACKAGE=VERSION: as pinned, or the newest of the series that the lists have.
choose() {
    local folder=$1 series=$2 package=$3 version=$4 pattern
    if apt-cache -c "$folder/apt.conf" madison "$package" | awk -F ' *\\| *' '{ print $2 }' | grep -qxF "$version"; then
        echo "$package=$version"
        return
    fi
    pattern="^linux-image-${series//./\\.}\.[0-9.]+(-[0-9]+)?(\+deb[0-9.]+)?-amd64$"
    package=$(apt-cache -c "$folder/apt.conf" pkgnames linux-image- | grep -E "$pattern" | sort -V | tail -n 1)
    [ -n "$package" ] || return 1
    version=$(apt-cache -c "$folder/apt.conf" show "$package" | awk '/^Version: / { print $2; exit }')
    echo "$package=$version"
}

# The packages that hold the kernel and its modules: itself, or since 7.2 some that it depends on.
parts() {
    local folder=$1 choice=$2
    echo "$choice"
    apt-cache -c "$folder/apt.conf" depends --no-recommends --no-suggests "${choice%%=*}" |
        sed -n 's/^ *Depends: \(linux-\(base\|binary\|modules\)-.*\)/\1/p' | sed "s/\$/=${choice#*=}/"
}

# Takes what booting needs out of the unpacked packages.
gather() {
    local unpacked=$1 kernel=$2 tree release image module number=0
    # Which of the two it is changed with the packages; both names work for the tools.
    [ -d "$unpacked/lib" ] || ln -s usr/lib "$unpacked/lib"
    tree=$(echo "$unpacked"/lib/modules/*)
    release=${tree##*/}
    image=$(compgen -G "$unpacked/boot/vmlinuz-*" || compgen -G "$tree/vmlinuz") || die "no kernel in $unpacked"
    mkdir -p "$kernel/modules"
    cp "$image" "$kernel/vmlinuz"
    cp "$unpacked"/*/busybox "$kernel/busybox" 2>/dev/null || cp "$unpacked/usr/bin/busybox" "$kernel/busybox"
    PATH=$PATH:/usr/sbin:/sbin
    depmod -b "$unpacked" "$release" 2>/dev/null
    for module in "${modules[@]}"; do
        # Prints what it depends on first; nothing for what is built in.
        modprobe -d "$unpacked" -S "$release" --show-depends "$module" | awk '$1 == "insmod" { print $2 }'
    done | awk '!seen[$0]++' >"$kernel/order"
    while read -r module; do
        number=$((number + 1))
        module_to "$module" "$kernel" "$(printf '%s/modules/%02d-%s' "$kernel" $number "$(basename "${module%%.ko*}").ko")"
    done <"$kernel/order"
    rm "$kernel/order"
}

module_to() {
    case $1 in
    *.ko) cp "$1" "$3" ;;
    *.ko.xz) "$2/busybox" xzcat "$1" >"$3" ;;
    *.ko.zst) zstd -dcq "$1" >"$3" ;;
    *) die "$1: packed in a way that is not known here" ;;
    esac
}

fetch() {
    local series=$1 suites package version folder kernel choice stamp partial
    read -r suites package version < <(awk -v series="$series" '$1 == series { print $2, $3, $4 }' lab/kernels.conf) ||
        die "no kernel '$series' in lab/kernels.conf" 2
    folder=$lab/apt/$series
    kernel=$lab/kernels/$series
    stamp="$package=$version ${modules[*]}"
    if [ "$(cat "$kernel/wanted" 2>/dev/null)" = "$stamp" ]; then
        echo "$kernel"
        return
    fi
    command -v apt-get >/dev/null || die "apt-get is needed to download Debian's kernels" 3
    [ -s "$keyring" ] || die "$keyring is missing: install debian-archive-keyring" 3
    # shellcheck disable=SC2086 # one word per suite
    update "$folder" ${suites//,/ } || {
        grep -q NO_PUBKEY "$folder/log" && renew_keyring && update "$folder" ${suites//,/ }
    } || die "Debian's archive: no list of ${suites//,/, } ($(grep -m 1 '^[EW]:' "$folder/log" || echo "see $folder/log"))" 3
    choice=$(choose "$folder" "$series" "$package" "$version") || die "no kernel $series in ${suites//,/, }" 3
    # shellcheck disable=SC2046 # one word per package
    download "$folder" $(parts "$folder" "$choice") busybox-static ||
        die "$choice: $(grep -m 1 '^E:' "$folder/log" || echo "see $folder/log")" 3
    partial=$(mktemp -d "$lab/unpack.XXXXXX")
    # shellcheck disable=SC2064 # now, while the name is known
    trap "rm -rf '$partial'" EXIT
    unpack "$folder" "$partial/root"
    gather "$partial/root" "$partial/kernel"
    echo "${choice/=/ }" >"$partial/kernel/package"
    echo "$stamp" >"$partial/kernel/wanted"
    rm -rf "$kernel" "$folder"
    mkdir -p "$lab/kernels"
    mv "$partial/kernel" "$kernel"
    echo "$kernel"
}

unpack() {
    local package
    for package in "$1"/*.deb; do
        dpkg -x "$package" "$2"
    done
}

[ $# -eq 1 ] || die "usage: lab/fetch-kernel.sh SERIES" 2
mkdir -p "$lab"
# One at a time: two runs would write the same folder.
exec 9>"$lab/fetch.lock"
flock 9
fetch "$1"
