#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Makes Debian packages of what is built: plimsoll, libtmalloc0, libtmalloc-dev. `make deb` runs it.
#
#   packaging/deb.sh [FOLDER [PROFILE [REVISION]]]
#
# FOLDER: where they go (target/debian); what was there before goes. PROFILE: of cargo, release or debug. REVISION: of the
# same version of Plimsoll, 1 if not named; a package of Debian's own would be newer than any of ours. Needs debhelper
# (tools/setup.sh deb), and no root.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly folder=${1:-target/debian} profile=${2:-release} revision=${3:-1}
readonly work=$folder/build
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
command -v dh >/dev/null || { echo "deb.sh: debhelper is missing: run tools/setup.sh deb" >&2; exit 3; }
for built in plimsoll deps/libtmalloc.a deps/libtmalloc_preload.a; do
    [ -e "target/$profile/$built" ] || { echo "deb.sh: target/$profile/$built is missing: run 'make build' first" >&2; exit 1; }
done

# Prints the licences of the crates that are linked into one of ours, each text once, with who has it.
notices() {
    local name version licence source file texts
    texts=$(mktemp -d)
    echo "What is linked into this package besides Plimsoll's own code."
    echo
    while read -r name version licence; do
        printf '%s %s: %s\n' "$name" "$version" "$licence"
        for source in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"$name-${version#v}"; do
            for file in "$source"/{LICEN[CS]E,COPYING,NOTICE,UNLICENSE,COPYRIGHT,license}*; do
                [ ! -f "$file" ] || echo "$name ${file##*/}" >>"$texts/$(sha256sum <"$file" | cut -c 1-64)"
                [ ! -f "$file" ] || cp -n "$file" "$texts/$(sha256sum <"$file" | cut -c 1-64).text"
            done
        done
    done < <(cargo tree --locked --offline -p "$1" -e normal,no-proc-macro --prefix none --format '{p} {l}' |
        grep -vE '\(\*\)$|\(/' | LC_ALL=C sort -u)
    for file in "$texts"/*.text; do
        printf '\n%s\n' "$(printf '=%.0s' {1..78})"
        paste -s -d , "${file%.text}" | sed 's/,/, /g' | fold -s -w 78
        echo
        cat "$file"
    done
    rm -r "$texts"
}

rm -rf "$folder"
mkdir -p "$work/debian/plimsoll.notices" "$work/debian/libtmalloc.notices"
cp packaging/debian/* "$work/debian"
sed 's/^$/./; s/^/ /' LICENSE-MIT | sed '1,2d; 1i License: Expat' >>"$work/debian/copyright"
notices plimsoll >"$work/debian/plimsoll.notices/third-party-notices"
notices plimsoll-preload >"$work/debian/libtmalloc.notices/third-party-notices"
echo "debian/plimsoll.notices/*" >"$work/debian/plimsoll.docs"
echo "debian/libtmalloc.notices/*" | tee "$work/debian/libtmalloc0.docs" >"$work/debian/libtmalloc-dev.docs"
# The time of the tree's last commit, where it is known: the same tree makes the same packages.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
cat >"$work/debian/changelog" <<END
plimsoll ($version-0plimsoll$revision) unstable; urgency=medium

  * Plimsoll $version, as changelog.gz beside this file tells.

 -- $(sed -n 's/^Maintainer: //p' packaging/debian/control)  $(date -R -u -d "@$SOURCE_DATE_EPOCH")
END
(cd "$work" && PLIMSOLL=$OLDPWD PROFILE=$profile debian/rules binary) >"$folder/log" 2>&1 </dev/null || {
    tail -n 20 "$folder/log" >&2
    echo "deb.sh: the lines above are the end of $folder/log" >&2
    exit 1
}
rm -r "$work"
ls "$folder"/*.deb
