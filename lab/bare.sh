#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Builds and checks Plimsoll on a bare machine, nothing by hand: in a root folder that has debootstrap's smallest set of
# packages, `make`, and the sources of packages that an installed system has.
#
#   lab/bare.sh SUITE      bookworm, trixie (Debian 12 and 13) or noble (Ubuntu 24.04)
#
# The root has the committed tree. From this machine come the settings of proxies, certificate authorities that were added
# here, Cargo's configuration and what Cargo downloaded before. All mounts are in a mount namespace of their own; root
# and build are removed afterwards, downloads stay in target/lab/bare.
#
# Prints one line 'test NAME ... ok' or '... FAILED' for each step and a line of totals, as libtest does; how long each took
# is in the lines 'lab:'. Needs root. Exits 1 when a step failed, 3 when what is needed cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."

. lab/archive.sh
suite=${1:-}
case $suite in
bookworm | trixie) archive=debian security=debian-security components=main script=sid ;;
noble) archive=ubuntu security=ubuntu components=main,universe script=gutsy ;;
*) die "usage: lab/bare.sh bookworm|trixie|noble" 2 ;;
esac
readonly own=$lab/bare/$suite registry=$lab/bare/registry
readonly root=$own/root tree=/usr/src/plimsoll

# The root is only ever removed while nothing is mounted in it.
remove_root() {
    ! grep -qF " $root/" /proc/self/mounts || die "not removed: something is mounted in $root"
    rm -rf --one-file-system "$root"
}

# The keys of Ubuntu's archive: this machine's, or those of Debian's package of them.
use_ubuntu_keyring() {
    local folder=$lab/apt/ubuntu-keyring name=usr/share/keyrings/ubuntu-archive-keyring.gpg
    if [ -s "/$name" ]; then
        keyring=/$name
        return
    fi
    [ -s "$keyring" ] || die "$keyring is missing: install debian-archive-keyring" 3
    { update "$folder" trixie && download "$folder" ubuntu-keyring; } ||
        die "no keys for Ubuntu's archive ($(grep -m 1 '^[EW]:' "$folder/log" || echo "see $folder/log"))" 3
    dpkg -x "$folder"/ubuntu-keyring_*.deb "$lab/keyring-ubuntu"
    keyring=$lab/keyring-ubuntu/$name
}

make_root() {
    local options=(--variant=minbase --include=make --components="$components" --force-check-gpg --keyring="$keyring")
    mkdir -p "$own/packages" "$registry"
    # shellcheck disable=SC2016 # for the shell inside
    unshare --mount --propagation private bash -c '. lab/archive.sh && bootstrap "$@"' bash "${options[@]}" \
        --cache-dir="$own/packages" "$suite" "$root" "$(mirror "$archive")" "$script" >>"$own/log" 2>&1 </dev/null ||
        die "no root of $suite: $(grep -m 1 '^[EW]:' "$own/log" || tail -n 1 "$own/log") ($own/log)" 3
    {
        echo "deb $(mirror "$archive") $suite ${components/,/ }"
        echo "deb $(mirror "$archive") $suite-updates ${components/,/ }"
        echo "deb $(mirror "$security") $suite-security ${components/,/ }"
    } >"$root/etc/apt/sources.list"
    apt-config dump | grep -E '^Acquire::((http|https)::Proxy(::[^ ]+)?|Check-[A-Za-z-]+) ' \
        >"$root/etc/apt/apt.conf.d/90caller" || true
}

# Puts the committed tree into the root, and what of this machine's it needs to reach crates.io.
furnish_root() {
    local cargo=${CARGO_HOME:-${HOME:-/root}/.cargo} file
    mkdir -p "$root$tree" "$root/usr/local/share/ca-certificates"
    # Run by root, over a tree that may be somebody else's.
    git -c safe.directory="$PWD" archive HEAD | tar -x -C "$root$tree" || die "git cannot read the tree" 3
    for file in /usr/local/share/ca-certificates/*.crt; do
        [ ! -e "$file" ] || cp "$file" "$root/usr/local/share/ca-certificates"
    done
    install -d -m 700 "$root/root/.cargo" "$root/root/.cargo/registry"
    for file in "$cargo"/config.toml "$cargo"/config; do
        [ ! -e "$file" ] || cp "$file" "$root/root/.cargo"
    done
    for file in "$cargo"/registry/{cache,index}; do
        [ ! -e "$file" ] || cp -a --no-clobber "$file" "$registry"
    done
}

# Runs a command in the tree in the root. /dev is debootstrap's own; the machine's /sys is shown, because doctor reads it.
inside() {
    local variables=() name
    for name in $(compgen -e | grep -iE '^((http|https|all|no)_proxy|ci|cargo_(net|http)_.*)$' | grep -v CAINFO); do
        variables+=("$name=${!name}")
    done
    # shellcheck disable=SC2016 # for the shell inside
    unshare --mount --propagation private bash -euc '
        root=$1 packages=$2 registry=$3
        shift 3
        mount -t proc proc "$root/proc"
        mount --rbind /sys "$root/sys"
        mount -o remount,bind,ro "$root/sys"
        mount -t tmpfs -o mode=1777,size=256m tmpfs "$root/dev/shm"
        mount --bind "$packages" "$root/var/cache/apt/archives"
        mount --bind "$registry" "$root/root/.cargo/registry"
        exec chroot "$root" "$@"' bash "$root" "$own/packages" "$registry" \
        /usr/bin/env -i HOME=/root LANG=C.UTF-8 TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        "${variables[@]}" /bin/sh -c 'cd "$0" && exec "$@"' "$tree" "$@"
}

# One command that has to succeed.
step() {
    local name=$1 began=$SECONDS begin status=0
    shift
    begin=$(wc -l <"$own/log")
    inside "$@" >>"$own/log" 2>&1 </dev/null || status=$?
    echo "lab: $suite: $name took $((SECONDS - began)) s, status $status"
    # What the tree's own tests skip in there is told, and not counted twice.
    tail -n "+$((begin + 1))" "$own/log" | sed -n "s/^SKIPPED: /lab: $suite: skipped inside: /p"
    if [ "$status" -eq 0 ]; then
        echo "test $suite::${name// /_} ... ok"
        return
    fi
    # Marked, because the totals of the tree's own tests in there are not this run's.
    tail -n "+$((begin + 1))" "$own/log" | tail -n 40 | sed 's/^/| /'
    echo "test $suite::${name// /_} ... FAILED"
    echo "test result: FAILED. $passed passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in ${SECONDS}s"
    exit 1
}

[ "$(id -u)" = 0 ] || die "making a root folder, with debootstrap, needs root" 3
command -v apt-get >/dev/null || die "apt-get is needed for the distribution's packages" 3
mkdir -p "$own"
exec 9>"$own/lock"
flock -n 9 || die "$own is in use"
trap remove_root EXIT
remove_root
: >"$own/log"
echo "     Running lab/bare.sh ($suite)"
[ "$archive" != ubuntu ] || use_ubuntu_keyring
make_root
furnish_root
echo "lab: $suite: the root took $SECONDS s"
passed=0
step "make build" make build
passed=1
step "plimsoll doctor" target/release/plimsoll doctor
passed=2
step "make check" make check
echo "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in ${SECONDS}s"
