# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# What the lab downloads, and whom it trusts with it; its scripts source this in the folder of the tree.
#
# Packages come from a distribution's archive through apt with sources, lists and cache of its own: this machine's package
# state is neither read nor changed, nothing is installed. apt verifies the signature of each suite against the keys of
# $keyring, and each package against the signed lists.

readonly lab=$PWD/target/lab
# The keys that this machine trusts for Debian's archive.
keyring=${PLIMSOLL_LAB_KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}

die() {
    printf 'lab: %s\n' "$1" >&2
    exit "${2:-1}"
}

# Prints the address of an archive ('debian', 'debian-security', 'ubuntu'): the mirror that this machine uses, if it does.
mirror() {
    local found="" host=deb.debian.org
    [ "$1" != ubuntu ] || host=archive.ubuntu.com
    if command -v apt-get >/dev/null; then
        # shellcheck disable=SC2016 # a format of apt's
        found=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' |
            awk -v name="/$1/" 'index($0, name) && substr($0, length - length(name) + 1) == name { print; exit }') || true
    fi
    printf '%s\n' "${found:-http://$host/$1/}"
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

# Makes a root folder with debootstrap: the machine's, or one that is unpacked for this and not installed. The arguments
# are debootstrap's.
bootstrap() {
    local folder=$lab/debootstrap
    if command -v debootstrap >/dev/null; then
        debootstrap "$@"
        return
    fi
    if [ ! -x "$folder/usr/sbin/debootstrap" ]; then
        mkdir -p "$folder"
        (cd "$folder" && apt-get download debootstrap) && dpkg -x "$folder"/debootstrap_*.deb "$folder" || return 1
    fi
    # It looks for its own parts where the package would have put them.
    DEBOOTSTRAP_DIR=$folder/usr/share/debootstrap "$folder/usr/sbin/debootstrap" "$@"
}
