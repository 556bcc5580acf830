#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Builds the integration tests and runs them inside one kernel of kernels.conf.
#
#   lab/run.sh SERIES                        what kernels.conf says for `make test`
#   lab/run.sh SERIES --all                  what kernels.conf says for `make test-all`
#   lab/run.sh SERIES kill_choice access     these test binaries; a name may be a pattern ('accounting_*')
#   lab/run.sh SERIES all                    all that a guest can run
#   lab/run.sh SERIES lab_workingset@small   on a small machine
#   lab/run.sh SERIES kill_choice -- eight   with libtest's own arguments
#   lab/run.sh SERIES sys -- process::       the unit tests of crates/sys
#   lab/run.sh SERIES --command 'COMMAND'    a command as root in the tree, in the guest
#   lab/run.sh SERIES --shell                a shell there
#
# The output is libtest's, with a line 'Running tests/NAME.rs' before each binary, much as cargo prints it. Exits 3 when the
# kernel cannot be had or qemu is missing.
set -uo pipefail
shopt -s extglob
cd "$(dirname "$0")/.." || exit 1

# What emulation costs here: deadlines of the tests grow by this factor (crates/cli/tests/support).
readonly slowness=10
# For one guest, and for one binary.
readonly seconds_max=2700 binary_seconds_max=600
readonly everything='access accounting_* daemon_death daemon_lifecycle desktop_session doctor_demo expedite false_crossing flipping frag hidden_memory kernel_kills kill_* lab_!(suite) last_defence load_gate machine_guard measured_lines selection shared_memory strict sys triggers workingset workingset_programs'
# In MiB, of a guest; and of one whose memory is filled, which takes its time: these binaries have a guest of their own.
readonly mebibytes=2560 filled_mebibytes=1024
# Of the smallest machine there is: NAME@small.
readonly small_mebibytes=512
readonly filling='lab_memory lab_workingset workingset workingset_programs'
# Each in one of its own: it leaves memory in pieces, and it goes by what a disk to swap to can take a second, in MiB.
readonly apart='lab_fragmentation lab_suite' swap_mebibytes=40

die() {
    printf 'lab: %s\n' "$1" >&2
    exit "${2:-1}"
}

# Prints $4 for each executable that cargo made of a folder's targets of this kind and name: \1 is the name, \2 the path.
built() {
    sed -n "s|^.*\"manifest_path\":\"[^\"]*/$1/Cargo.toml\",\"target\":{\"kind\":\[\"$2\"\][^}]*\"name\":\"$3\".*\"executable\":\"\([^\"]*\)\".*|$4|p"
}

# Prints NAME PATH of each integration test of the command line, and of the unit tests of crates/sys, built.
test_binaries() {
    local log=target/lab/build-$series.log
    # All of the tree, as tools/test.sh builds it: a part of it would have other features, and be built anew.
    cargo test --locked --workspace --no-run --message-format json-render-diagnostics >"$log.json" 2>"$log" </dev/null || {
        cat "$log" >&2
        die "the tests do not build"
    }
    built crates/cli test '\([^"]*\)' '\1 \2' <"$log.json"
    built crates/sys lib '\(plimsoll_sys\)' 'sys \2' <"$log.json"
}

# Prints the guest's commands: each binary of the list that one of the patterns names, where and as cargo would run it; of those
# that fill the memory ($1 is 'filling'), the one that is to be apart ($1 is its name), or of the others ('modest').
test_commands() {
    local kind=$1 binaries=$2 arguments=$3 name path pattern wanted its
    shift 3
    while read -r name path; do
        wanted=no its=modest
        for pattern in "$@"; do
            # shellcheck disable=SC2053 # a pattern it is
            [[ $name != $pattern ]] || wanted=yes
        done
        [[ " $filling " != *" $name "* ]] || its=filling
        [[ " $apart " != *" $name "* ]] || its=$name
        [ "$wanted-$its" = "yes-$kind" ] || continue
        printf 'run %q %q %s\n' "$name" "$path" "$arguments"
    done <<<"$binaries"
}

# What the guest runs before the commands.
prelude() {
    cat <<END
cd $(printf '%q' "$PWD/crates/cli") || exit
export PLIMSOLL_TEST_SLOWNESS=$slowness PLIMSOLL_TEST_ALL=${PLIMSOLL_TEST_ALL:-} RUST_TEST_THREADS=1 RUST_BACKTRACE=0
export PATH=\$PATH:$(printf '%q' "$PWD/target/tools/usr/bin") seconds_max=$binary_seconds_max
status=0
# run NAME PATH ARGUMENT...: one test binary; \$status is that of the last that failed.
run() {
    printf '     Running tests/%s.rs (%s)\n' "\$1" "\$2"
    ../../tools/twice.sh "\${@:2}" --color never --show-output || status=\$?
}
END
}

# Runs commands, if there are any, in a guest of so many MiB, booted with these options; $status is that of the last guest that
# failed.
run_guest() {
    local commands=$2 code complaints
    [ -n "$commands" ] || return 0
    lab/boot.sh -t $seconds_max -m "${PLIMSOLL_LAB_MEBIBYTES:-$1}" "${@:3}" "$kernel" \
        "$(prelude; printf '%s\n' "$commands"; echo "exit \$status")"
    code=$?
    # A lockup is what a busy machine does to an emulated one; anything else is the programs' doing until shown otherwise.
    if complaints=$(tools/splats.sh --emulated <"$kernel/console"); then
        # The next guest has a console of its own.
        cp "$kernel/console" "$kernel/console.$1"
        printf 'lab: the kernel complains: %s\n' "$complaints" "see $kernel/console.$1"
        [ "$code" -ne 0 ] || code=1
    fi
    [ "$code" -eq 0 ] || status=$code
}

[ $# -ge 1 ] || die "usage: lab/run.sh SERIES [--all | TEST... [-- ARGUMENT...] | --command COMMAND | --shell]" 2
series=$1
shift
[ "$(uname -m)" = x86_64 ] || die "the guest runs this machine's programs: that needs x86-64, not $(uname -m)" 3
command -v qemu-system-x86_64 >/dev/null || die "qemu-system-x86_64 is missing: run tools/setup.sh test" 3
kernel=$(lab/fetch-kernel.sh "$series") || exit
case ${1:-} in
--shell) exec lab/boot.sh -i -t 86400 "$kernel" 'exec bash -i' ;;
--command)
    [ $# -eq 2 ] || die "--command takes one argument" 2
    exec lab/boot.sh "$kernel" "$2"
    ;;
esac
patterns=() small=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    patterns+=("$1")
    shift
done
[ $# -eq 0 ] || shift
# Patterns are for test_commands, not for the shell, and `read` expands none.
column=5
[ "${patterns[*]}" != --all ] || column=6 patterns=()
if [ ${#patterns[@]} -eq 0 ]; then
    IFS=, read -ra patterns < <(awk -v series="$series" -v column=$column '$1 == series { print $column }' lab/kernels.conf)
fi
for pattern in "${!patterns[@]}"; do
    if [ "${patterns[pattern]}" = all ]; then
        read -ra all <<<"$everything"
        unset "patterns[$pattern]"
        patterns+=("${all[@]}")
        export PLIMSOLL_TEST_ALL=1
    fi
done
for pattern in "${!patterns[@]}"; do
    if [[ ${patterns[pattern]} = *@small ]]; then
        small+=("${patterns[pattern]%@small}")
        unset "patterns[$pattern]"
    fi
done
# What a guest, which writes nothing here, would have to build; one run at a time.
exec 8>target/lab/build.lock
flock 8
make --silent -C lab/workloads "OUT=$PWD/target/tmp/workloads" || die "the workloads do not build"
binaries=$(test_binaries) || exit
commands=$(test_commands modest "$binaries" "${*@Q}" "${patterns[@]}")
filling_commands=$(test_commands filling "$binaries" "${*@Q}" "${patterns[@]}")
apart_commands=()
for name in $apart; do
    apart_commands+=("$(test_commands "$name" "$binaries" "${*@Q}" "${patterns[@]}")")
done
small_commands=$(for kind in modest filling; do test_commands $kind "$binaries" "${*@Q}" "${small[@]}"; done)
[ -n "$commands$filling_commands$small_commands$(printf %s "${apart_commands[@]}")" ] || die "no test binary is called: ${patterns[*]} ${small[*]}" 2
exec 8>&-
echo "lab: $(cat "$kernel/package")"
began=$SECONDS status=0
run_guest $mebibytes "$commands"
run_guest $filled_mebibytes "$filling_commands"
for commands in "${apart_commands[@]}"; do
    run_guest $filled_mebibytes "$commands" -s $swap_mebibytes
done
run_guest $small_mebibytes "$small_commands"
echo "lab: $series took $((SECONDS - began)) s"
exit "$status"
