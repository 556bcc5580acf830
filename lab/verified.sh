#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Renews bpf/verified.txt, the instructions that the verifier goes through for each program, by the load gate's own counts.
#
#   lab/verified.sh              on every kernel of kernels.conf, and here where this kernel has a column
#   lab/verified.sh 6.12 here    on these; the other columns stay
#
# Every shape on every kernel: some three minutes each. Here it needs root. Where a program does not load, nothing is renewed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
# The one that counts and does not judge.
readonly file=bpf/verified.txt test=every_program_loads_in_every_shape_of_its_settings
export PLIMSOLL_TEST_ALL=1

die() {
    printf 'lab: %s\n' "$1" >&2
    exit 1
}

gate_here() {
    local binary
    # All of the tree: a part of it would have other features, and be built anew.
    binary=$(cargo test --locked --workspace --no-run 2>&1 | sed -n 's/^ *Executable tests\/load_gate.rs (\(.*\))$/\1/p')
    tools/as-root.sh "$binary" --show-output "$test"
}

# Prints COMPILER, or SERIES PROGRAM COUNT of each count, as the file has them.
compiler() { sed -n 's/^compiler: //p' $file; }
counts() {
    awk '$1 == "program" { for (i = 2; i <= NF; i++) series[i] = $i; rows = 1; next }
        rows { for (i = 2; i <= NF; i++) if ($i != "-") print series[i], $1, $i }' $file
}

kernels=("$@")
if [ $# -eq 0 ]; then
    mapfile -t kernels < <(awk '/^[0-9]/ { print $1 }' lab/kernels.conf)
    here=$(uname -r | sed 's/^\([0-9]*\.[0-9]*\).*/\1/')
    if counts | grep -q "^$here "; then kernels+=(here); else echo "lab: no column for this machine's $here: left out"; fi
fi
mkdir -p target/lab
found=$(mktemp target/lab/verified.XXXXXX) || exit
trap 'rm -f "$found"' EXIT
for kernel in "${kernels[@]}"; do
    log=target/lab/verified-$kernel.log
    echo "lab: $kernel"
    if [ "$kernel" = here ]; then gate_here; else lab/run.sh "$kernel" load_gate -- "$test"; fi >"$log" 2>&1 ||
        die "not all loads on $kernel: see $log"
    sed -n 's/^verified: \([0-9.]* [^ ]* [0-9]*\) .*/\1/p' "$log" | grep . >>"$found" || die "no counts on $kernel: see $log"
done
# The same for all: it was built once.
made_by="clang $(clang --version | sed -n 's/.*version \([0-9]*\).*/\1/p')"
renewed=$(cut -d ' ' -f 1 "$found" | sort -uV | paste -sd ' ')
kept=$(counts | cut -d ' ' -f 1 | sort -uV | grep -vxF "$(tr ' ' '\n' <<<"$renewed")" | paste -sd ' ')
if [ -n "$kept" ] && [ "$(compiler)" != "$made_by" ]; then
    die "the columns $kept were counted with $(compiler), not $made_by: renew all, on such machines, or none"
fi
{
    cut -d ' ' -f 1-3 "$found"
    counts | awk -v renewed=" $renewed " 'index(renewed, " " $1 " ") == 0'
} | sort -u | sort -k 1,1V -k 2,2 >"$found.all"
cat >"$file.new" <<END
# How many instructions the kernel's verifier may go through for each program, by kernel: the most of all shapes of its settings.
# '-': not loaded there. The load gate (crates/cli/tests/load_gate.rs) allows 10 % or 500 more. To renew it: lab/verified.sh
compiler: $made_by
END
awk '
    !($1 in column) { column[$1] = ++columns; series[columns] = $1 }
    !($2 in known) { known[$2] }
    { count[$2, $1] = $3 }
    END {
        printf "%-32s", "program"
        for (i = 1; i <= columns; i++) printf "%8s", series[i]
        printf "\n"
        fflush()
        for (name in known) {
            line = sprintf("%-32s", name)
            for (i = 1; i <= columns; i++) line = line sprintf("%8s", (name, series[i]) in count ? count[name, series[i]] : "-")
            print line | "LC_ALL=C sort"
        }
    }' "$found.all" >>"$file.new"
rm -f "$found.all"
mv "$file.new" $file
echo "lab: $file is renewed for $renewed${kept:+; as before for $kept}"
