#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Installs what building Plimsoll needs and does not find. With 'deb' also what makes Debian packages, with 'check' what
# formats and lints, with 'test' all that tests and benches run. Finds everything: prints nothing, asks for nothing, takes a fraction of a second. make runs it.
#
#   tools/setup.sh [build|deb|check|test]
#
# It takes the first of these: the Rust compiler that is there, if it is new enough; the distribution's packages of one,
# whatever they are called (rustc, rustc-web, rustc-1.97), if they are; the distribution's rustup. Where a distribution
# installs compilers side by side, target/tools/rust leads to the folder of the chosen one: make and test.sh look there
# first.
#
# On Debian and Ubuntu the packages come through apt, with sudo where the caller is not root. Elsewhere it says what
# is missing and stops. Nothing is ever piped from the network into a shell.
set -euo pipefail

# Without symbolic links, as make calls it.
root=$(cd "$(dirname "$0")/.." && pwd -P)
purpose=${1:-build}
tools=$root/target/tools
rust_version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml")
toolchain=$(sed -n 's/^channel = "\(.*\)"/\1/p' "$root/rust-toolchain.toml")
apt_updated=no
# A compiler of the distribution that apt would install only in place of other packages.
in_the_way=""

say() { printf 'setup: %s\n' "$*"; }
die() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

# Succeeds when the command exists.
has() { command -v "$1" >/dev/null 2>&1; }

# Succeeds when any of the paths exists: callers pass unquoted patterns.
any_file() {
    local path
    for path in "$@"; do
        [ -e "$path" ] && return 0
    done
    return 1
}

# Runs a command as root: directly, or through sudo (which never asks when nobody is there to answer).
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif ! has sudo; then
        die "root is needed to run '$*', and there is no sudo: run it as root, then try again"
    elif [ -t 0 ]; then
        sudo "$@"
    else
        sudo -n "$@" || die "root is needed to run '$*': allow sudo without a password, or run it as root"
    fi
}

# Package lists may be absent (containers) or old; fetched at most once, and only when something is missing.
apt_update() {
    [ "$apt_updated" = no ] || return 0
    say "fetching package lists (apt-get update)"
    as_root apt-get update -qq || die "apt-get update failed: check the network and /etc/apt, then try again"
    apt_updated=yes
}

apt_install() {
    apt_update
    say "installing: $*"
    # --no-remove: a set-up step must never take away what somebody else installed.
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends --no-remove "$@" \
        >"$tools/apt.log" 2>&1 </dev/null || {
        tail -n 15 "$tools/apt.log" >&2
        die "could not install: $* (the lines above are the end of $tools/apt.log)"
    }
}

# One line per missing Debian package, by what it is needed for; no output when nothing is missing.
missing_packages() {
    has cc || echo gcc
    any_file /usr/include/*/sys/types.h /usr/include/sys/types.h || echo libc6-dev
    has clang || echo clang
    has pkg-config || echo pkg-config
    any_file /usr/include/libelf.h || echo libelf-dev
    any_file /usr/include/zlib.h || echo zlib1g-dev
    any_file /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem \
        "${SSL_CERT_FILE:-/none}" || echo ca-certificates
    # bindgen loads this library by itself; the distribution's clang brings it, a clang from elsewhere may not.
    ! has clang || [ -n "${LIBCLANG_PATH:-}" ] || any_file /usr/lib/llvm-*/lib/libclang*.so* /usr/lib/*/libclang*.so* \
        /usr/lib64/libclang*.so* /usr/lib/libclang*.so* /usr/local/lib/libclang*.so* || echo libclang-dev
    [ "$purpose" != build ] || return 0
    # Packages are made where they can be installed.
    ! has dpkg || [ "$purpose" = check ] || has dh || echo debhelper
    [ "$purpose" != deb ] || return 0
    has clang-format || echo clang-format
    has shellcheck || echo shellcheck
    # A test stops a process with the program kill, which the shell's own would hide here.
    has ps || echo procps
    [ "$purpose" = test ] || return 0
    ! has dpkg || has lintian || echo lintian
    has stress-ng || echo stress-ng
    has python3 || echo python3
    # A desktop session without a screen.
    has weston || echo weston
    has Xwayland || echo xwayland
    has dbus-daemon || echo dbus
    has tmux || echo tmux
    # Whoever reads a report does it in a browser. Not everywhere is there a package of one.
    has chromium-headless-shell || has chromium || has chromium-browser || has google-chrome ||
        ! apt-cache show chromium-headless-shell >/dev/null 2>&1 || echo chromium-headless-shell
    # File systems whose files are opened by their inodes, each on a disk in a file.
    has mkfs.btrfs || echo btrfs-progs
    has mkfs.xfs || echo xfsprogs
    has mkfs.f2fs || echo f2fs-tools
    has mksquashfs || echo squashfs-tools
    has mkfs.erofs || echo erofs-utils
    # The lab's guests run this machine's own programs.
    [ "$(uname -m)" = x86_64 ] || return 0
    has qemu-system-x86_64 || echo qemu-system-x86
    has depmod || any_file /sbin/depmod /usr/sbin/depmod || echo kmod
    any_file /usr/share/keyrings/debian-archive-keyring.gpg || echo debian-archive-keyring
}

install_packages() {
    local missing before=""
    missing=$(missing_packages | sort -u | tr '\n' ' ')
    # Looks again afterwards: what one package should have brought may still be missing.
    while [ -n "$missing" ]; do
        if ! has apt-get; then
            die "missing (Debian package names): $missing- install what your distribution calls them, then try again"
        elif [ "$missing" = "$before" ]; then
            die "installed, and still not found: $missing- look into $tools/apt.log"
        fi
        # shellcheck disable=SC2086 # one word per package
        apt_install $missing
        hash -r
        before=$missing
        missing=$(missing_packages | sort -u | tr '\n' ' ')
    done
}

# earlyoom, nohang and vmtouch are comparators in the benches. The packages of the first two would start services that
# kill processes of this machine, so they are only unpacked under target/, never installed.
fetch_comparator() {
    local name=$1
    if has "$name" || any_file "$tools"/usr/bin/"$name" "$tools"/usr/sbin/"$name"; then
        return 0
    fi
    if ! has apt-get; then
        say "$name not found: the benches leave it out"
        return 0
    fi
    apt_update
    say "unpacking $name under target/tools (not installed: no service of it must start)"
    (
        cd "$tools"
        rm -f "$name"_*.deb
        apt-get download -qq "$name" >"$tools/apt.log" 2>&1 && dpkg -x "$name"_*.deb "$tools"
    ) || {
        tail -n 5 "$tools/apt.log" >&2
        say "$name could not be fetched: the benches leave it out"
    }
}

# promtool checks what the daemon serves and the alert rules. Of its package, 19 MB, nothing else is needed: it would start
# a server.
fetch_promtool() {
    if has promtool || any_file "$tools"/usr/bin/promtool; then
        return 0
    fi
    if ! has apt-get; then
        say "promtool not found: the tests leave it out"
        return 0
    fi
    apt_update
    say "unpacking promtool under target/tools (not installed: no service of its package must start)"
    (
        cd "$tools"
        rm -f prometheus_*.deb
        apt-get download -qq prometheus >"$tools/apt.log" 2>&1 &&
            dpkg --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool &&
            rm -f prometheus_*.deb
    ) || {
        tail -n 5 "$tools/apt.log" >&2
        say "promtool could not be fetched: the tests leave it out"
    }
}

# jemalloc and mimalloc are comparators too. They are only unpacked: nothing on this machine should come to prefer them.
# $1: what the library's file is called, as a pattern; $2: what its package is called, as a regular expression, because
# the name holds the library's version.
fetch_library() {
    local file=$1 name
    # shellcheck disable=SC2086 # a pattern
    if any_file "$tools"/usr/lib/*/$file /usr/lib/*/$file /usr/lib64/$file /usr/local/lib/$file; then
        return 0
    fi
    if ! has apt-get; then
        say "$file not found: the benches leave it out"
        return 0
    fi
    apt_update
    name=$(apt-cache search --names-only "$2" | awk '{ print $1 }' | sort -V | tail -n 1)
    say "unpacking ${name:-$file} under target/tools (not installed: no program here should use it by itself)"
    (
        cd "$tools"
        [ -n "$name" ]
        rm -f "$name"_*.deb
        apt-get download -qq "$name" >"$tools/apt.log" 2>&1 && dpkg -x "$name"_*.deb "$tools"
    ) || say "$file could not be fetched: the benches leave it out"
}

# Prints the version of a cargo, of the one in PATH if none is named; nothing when it does not work here.
cargo_version() { (cd "$root" && "${1:-cargo}" --version 2>/dev/null | awk '{ print $2 }') || true; }

# Succeeds when version $1 is at least $2.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

cargo_is_new_enough() {
    local found
    found=$(cargo_version "$@")
    [ -n "$found" ] && at_least "$found" "$rust_version"
}

# Takes the cargo in PATH if it is new enough. Otherwise the newest of those that are installed side by side, each in a
# folder that only its rustc-1.NN in PATH leads to.
choose_cargo() {
    local command folder
    if cargo_is_new_enough; then
        # An earlier choice is no longer needed.
        rm -f "$tools/rust"
        return 0
    fi
    while read -r command; do
        folder=$(dirname "$(readlink -f "$(command -v "$command")")")
        if cargo_is_new_enough "$folder/cargo"; then
            ln -sfn "$folder" "$tools/rust"
            PATH=$tools/rust:$PATH
            return 0
        fi
    done < <(compgen -c rustc- | sort -rV)
    return 1
}

# Prints the version of the package that apt would install, without the distribution's part; nothing if there is none.
offered() { LC_ALL=C apt-cache policy "$1" | sed -n 's/^ *Candidate: \([0-9]*:\)\{0,1\}\([0-9][0-9.]*\).*/\2/p'; }

# Prints the packages of compilers that are new enough and have a cargo: rustc itself before any other, then the newest.
offered_compilers() {
    local name version
    for name in $(apt-cache pkgnames rustc | grep -xE 'rustc(-[a-z0-9.]+)?'); do
        version=$(offered "$name")
        if [ -n "$version" ] && at_least "$version" "$rust_version" && [ -n "$(offered "cargo${name#rustc}")" ]; then
            echo "$version $name"
        fi
    done | awk '{ print $2 == "rustc" ? 0 : 1, $0 }' | sort -k 1,1n -k 2,2rV | awk '{ print $3 }'
}

# Succeeds when apt can install the packages and keep all that is installed.
installs_beside() { apt-get install -s -qq --no-install-recommends --no-remove "$@" >/dev/null 2>&1; }

install_compiler() {
    local name pair
    has apt-get || return 1
    apt_update
    for name in $(offered_compilers); do
        pair=("$name" "cargo${name#rustc}")
        if installs_beside "${pair[@]}"; then
            apt_install "${pair[@]}"
            hash -r
            choose_cargo && return 0
        else
            in_the_way=${in_the_way:-${pair[*]}}
        fi
    done
    return 1
}

# Installs the distribution's rustup when it has one.
install_rustup() {
    local found=$1 fetch="" sudo=""
    if has apt-get && [ -n "$(offered rustup)" ] && installs_beside rustup; then
        apt_install rustup
        hash -r
        return 0
    fi
    [ "$(id -u)" -eq 0 ] || sudo="sudo "
    if [ -n "$in_the_way" ]; then
        cat >&2 <<END
setup: Rust >= $rust_version is needed, found ${found:-none}. Packages of this distribution are new enough, but would replace
setup: others that are installed. Look at what this command would remove, then run it and try again:
    ${sudo}apt-get install $in_the_way
END
        exit 1
    fi
    if ! has wget; then
        if has curl; then fetch="curl -o"; else fetch="${sudo}apt-get install -y wget && wget -O"; fi
    fi
    cat >&2 <<END
setup: Rust >= $rust_version is needed, found ${found:-none}, and this distribution has no package of it, nor of rustup.
setup: Install rustup yourself with these commands (read the script before the last one), then try again:
    ${fetch:-wget -O} rustup-init.sh https://sh.rustup.rs
    sh rustup-init.sh -y --default-toolchain none
END
    exit 1
}

# rustup has the toolchain of rust-toolchain.toml. Asked of rustup itself: its cargo would start the download in silence.
has_toolchain() { rustup toolchain list | grep "^$toolchain-" >/dev/null; }

fetch_toolchain() {
    say "fetching the Rust toolchain $toolchain (rust-toolchain.toml) through rustup"
    rustup toolchain install "$toolchain" --no-self-update --profile minimal -c clippy -c rustfmt ||
        die "rustup could not fetch the Rust toolchain $toolchain: check the network, then try again"
}

ensure_cargo() {
    if ! has rustup; then
        if choose_cargo || install_compiler; then return 0; fi
        install_rustup "$(cargo_version)"
    fi
    rm -f "$tools/rust"
    has_toolchain || fetch_toolchain
    cargo_is_new_enough || die "$(command -v cargo || echo cargo) is version $(cargo_version), needed >= $rust_version:" \
        "rustup has a newer one; remove the older cargo or put rustup's folder before it in PATH"
}

# Prints the packages of the named parts that the distribution has for the compiler in use: rust-web-clippy and rustfmt-web
# for that of cargo-web. Those for another compiler do not fit.
lint_packages() {
    local owner ending part name
    owner=$(dpkg -S "$(readlink -f "$(command -v cargo)")" 2>/dev/null) || return 0
    owner=${owner%%:*}
    ending=${owner#cargo}
    for part in "$@"; do
        case $part in
        clippy) name=rust$ending-clippy ;;
        *) name=$part$ending ;;
        esac
        if [ -n "$(offered "$name")" ] && installs_beside "$name"; then echo "$name"; fi
    done
}

# clippy works with the compiler that it was built with, and with no other.
clippy_fits() {
    (
        cd "$root"
        [[ $(rustc --version 2>/dev/null) =~ ^rustc\ 1\.([0-9]+)\. ]] &&
            [[ $(cargo clippy --version 2>/dev/null) =~ ^clippy\ 0\.1\.${BASH_REMATCH[1]}([^0-9]|$) ]]
    )
}

# clippy and rustfmt are parts of their own in rustup's minimal profile and in some distributions.
ensure_rust_lints() {
    local missing=() packages
    clippy_fits || missing+=(clippy)
    (cd "$root" && cargo fmt --version) >/dev/null 2>&1 || missing+=(rustfmt)
    [ ${#missing[@]} -gt 0 ] || return 0
    if has rustup; then
        say "adding to the Rust toolchain: ${missing[*]}"
        rustup component add --toolchain "$toolchain" "${missing[@]}"
    elif has apt-get; then
        apt_update
        mapfile -t packages < <(lint_packages "${missing[@]}")
        [ ${#packages[@]} -eq 0 ] || apt_install "${packages[@]}"
        [ ${#packages[@]} -eq ${#missing[@]} ] ||
            say "no package of ${missing[*]} for $(command -v cargo), or not of each: what is missing is skipped"
    else
        die "missing: ${missing[*]} (parts of the Rust toolchain); install them, then try again"
    fi
}

case $purpose in
build | deb | check | test) ;;
*) die "unknown purpose '$purpose': use build, deb, check or test" ;;
esac
# make looks there first; which compiler it is to lead to is asked anew.
PATH=${PATH//"$tools/rust:"/}
# Cargo in the home folder wins, as in the shells that rustup sets up; make and sudo do not read their profile.
[ ! -x "${HOME:-/root}/.cargo/bin/cargo" ] || PATH=${HOME:-/root}/.cargo/bin:$PATH
mkdir -p "$tools"
install_packages
ensure_cargo
[ "$purpose" = build ] || [ "$purpose" = deb ] || ensure_rust_lints
if [ "$purpose" = test ]; then
    fetch_comparator earlyoom
    fetch_comparator nohang
    fetch_comparator vmtouch
    fetch_promtool
    fetch_library 'libjemalloc.so.2' '^libjemalloc2$'
    fetch_library 'libmimalloc.so.[0-9]' '^libmimalloc[0-9.]+$'
fi
