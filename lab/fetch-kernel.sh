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
# Packages come from Debian's archive through apt with sources, lists and cache of its own: this machine's package state
# is neither read nor changed, nothing is installed. apt verifies the signature of each suite against the keys of package
# debian-archive-keyring, and each package against the signed lists. Exits 3 when the archive cannot be reached.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly lab=$PWD/target/lab
# The keys that this machine trusts for Debian's archive.
keyring=${PLIMSOLL_LAB_KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}
# The root folder over 9p, something to write over it, a disk to swap to, zram.
readonly modules=(virtio_pci 9pnet_virtio 9p overlay virtio_blk zram ext4)

die() {
    printf 'lab: %s\n' "$1" >&2
    exit "${2:-1}"
}

# Prints the address of Debian's archive ('debian' or 'debian-security'): the mirror that this machine uses, if it does.
mirror() {
    local found=""
    if command -v apt-get >/dev/null; then
        # shellcheck disable=SC2016 # a format of apt's
        found=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' |
            awk -v name="/$1/" 'index($0, name) && substr($0, length - length(name) + 1) == name { print; exit }') || true
    fi
    printf '%s\n' "${found:-http://deb.debian.org/$1/}"
}

# Writes the private configuration: $1 is its folder, the rest are suites.
write_sources() {
    local folder=$1 suite archive
    shift
    mkdir -p "$folder"/{lists,archives}/partial
    for suite in "$@"; do
        archive=debian
        [[ $suite != *-security ]] || archive=debian-security
        echo "deb [arch=amd64 signed-by=$keyring] $(mirror "$archive") $suite main"
    done >"$folder/sources.list"
    # Read after the machine's own settings, so that a proxy stays and hooks and extra indexes go.
    cat >"$folder/apt.conf" <<END
#clear APT::Update;
#clear DPkg::Post-Invoke;
#clear DPkg::Pre-Install-Pkgs;
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::AllowWeakRepositories "false";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::DEP-11-icons-small::DefaultEnabled "false";
Dir::Etc::sourcelist "$folder/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "$folder";
Dir::State::lists "$folder/lists";
Dir::State::status "/dev/null";
Dir::Cache "$folder";
Dir::Cache::archives "$folder/archives";
END
}

# Fetches the lists of the suites: succeeds when one of them came and was signed.
update() {
    local folder=$1
    rm -rf "$folder/lists"
    write_sources "$@"
    apt-get -c "$folder/apt.conf" update >"$folder/log" 2>&1 </dev/null || true
    compgen -G "$folder/lists/*_Packages*" >/dev/null
}

# A keyring older than a suite's key is renewed by the package of a suite whose key it does know.
renew_keyring() {
    local folder=$lab/apt/keyring
    update "$folder" bookworm trixie && download "$folder" debian-archive-keyring || return 1
    rm -rf "$lab/keyring"
    dpkg -x "$folder"/debian-archive-keyring_*.deb "$lab/keyring"
    keyring=$lab/keyring/usr/share/keyrings/debian-archive-keyring.gpg
    [ -s "$keyring" ]
}

# Downloads packages into the private folder $1, verified by apt.
download() {
    local folder=$1
    shift
    rm -f "$folder"/*.deb
    (cd "$folder" && apt-get -c "$folder/apt.conf" download "$@") >>"$folder/log" 2>&1 </dev/null
}

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
