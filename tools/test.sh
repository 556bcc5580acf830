#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Runs checks and tests. Its last lines are the seconds of each step, the slowest test binaries, each test that passed at the
# second try only, and last `N passed, N failed[, N skipped]`; see summary.awk for what counts.
#
#   tools/test.sh [check|test|all|lint|unit|host|lab|bare]
#
#   check  formats, clippy, shellcheck, and all tests that need no root and watch no machine: policy, decoding, the simulator,
#          the rules of the tree
#   test   check, C warnings, documentation, integration tests on this machine, and in guests what only a guest can show
#   all    test, with everything that a guest can run on each kernel, checks with a real systemd, and bare roots
#
#   lint   formats, clippy, shellcheck, C warnings, documentation
#   unit   the tests of check
#   host   integration tests on this machine: as root, real eBPF, one at a time
#   lab    integration tests inside stock Debian kernels under qemu (lab/README.md), as in test
#   bare   build and checks in bare roots of Debian and Ubuntu (lab/bare.sh): as root, in 'all' only
#
# The whole output is in target/test.log; the terminal sees each check, each suite and every failure.
set -uo pipefail
shopt -s nullglob globstar
cd "$(dirname "$0")/.." || exit 1

export CARGO_TERM_COLOR=never
[ ! -x "${HOME:-/root}/.cargo/bin/cargo" ] || PATH=${HOME:-/root}/.cargo/bin:$PATH
# Where setup.sh found a compiler, and what it unpacked instead of installing it.
export PATH=$PWD/target/tools/rust:$PATH:$PWD/target/tools/usr/bin
# CI builds everything once, and has no use for what would make the next build quicker.
[ "${CI:-}" != true ] || export CARGO_INCREMENTAL=0
mkdir -p target/lab
log=target/test.log
: >"$log" || exit 1

# Prints what the log gained since line $1.
since() { tail -n "+$(($1 + 1))" "$log"; }
log_lines() { wc -l <"$log"; }

# One check: its output is shown only when it fails. Succeeds when the check does.
check() {
    local name=$1 start began=$SECONDS
    shift
    start=$(log_lines)
    if "$@" >>"$log" 2>&1 </dev/null; then
        echo "plimsoll-check: $name: passed after $((SECONDS - began)) s" >>"$log"
        printf 'ok      %-12s %4d s\n' "$name" $((SECONDS - began))
    else
        since "$start"
        echo "plimsoll-check: $name: failed after $((SECONDS - began)) s" >>"$log"
        printf 'FAILED  %-12s %4d s\n' "$name" $((SECONDS - began))
        return 1
    fi
}

# One run of test binaries by a command. Skipped tests and totals are shown as they come, failures in full at the end.
suite() {
    local name=$1 start began=$SECONDS status seconds
    shift
    start=$(log_lines)
    echo "plimsoll-suite: $name: begin" >>"$log"
    printf 'suite   %s\n' "$name"
    "$@" 2>&1 </dev/null | tee -a "$log" |
        grep --line-buffered -E '^ *(Running|Doc-tests) |^test result: |^test .* FAILED$|^SKIPPED: |^AGAIN: |^error|^lab: '
    status=${PIPESTATUS[0]}
    seconds=$((SECONDS - began))
    # Of a guest that ran before: what it took then.
    [ "$1" != replay ] || seconds=$4
    # A log that ends without a line break would hide the next line from the summary.
    printf '\n%s\n' "plimsoll-suite: $name: exit $status after $seconds s" >>"$log"
    # Also of those that passed when they were run once more: why is to be known.
    since "$start" | awk '/^failures:$/ { show = 1 } /^test result: / { show = 0 } show || /^error/'
    if [ "$status" -ne 0 ]; then
        printf 'FAILED  %-12s %4d s (all output: %s)\n' "$name" "$seconds" "$log"
    else
        printf 'ok      %-12s %4d s\n' "$name" "$seconds"
    fi
}

# --show-output: libtest would otherwise swallow what a passing test says, and with it why it skipped.
cargo_test() { cargo test --locked --workspace --no-fail-fast "$@" -- --show-output; }

# Each version of Rust has formats and lints of its own: only those of the pinned one decide.
pinned_rust=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
found_rust=$(rustc --version 2>/dev/null | awk '{ print $2 }')

# Says that a check does not count, and why.
skip() {
    printf 'SKIPPED: %s: %s, rustc is %s and not %s (rust-toolchain.toml)\n' "$1" "$2" "$found_rust" "$pinned_rust" |
        tee -a "$log"
}

# A format of Rust: $2 is the program, which may not be there, the rest the command.
check_rustfmt() {
    local name=$1 program=$2 why="findings are not counted"
    shift 2
    if [ "$found_rust" = "$pinned_rust" ]; then
        check "$name" "$@"
    else
        command -v "$program" >/dev/null || why="there is no $program here"
        "$@" >>"$log" 2>&1 </dev/null
        echo "plimsoll-check: $name: skipped" >>"$log"
        skip "$name" "$why"
    fi
}

# clippy works with the compiler that it was built with, and no other: 0.1.96 with 1.96.
check_clippy() {
    if [ "$found_rust" = "$pinned_rust" ]; then
        check clippy cargo clippy --locked --workspace --all-targets -- -D warnings
    elif [[ ! $(cargo clippy --version 2>/dev/null) =~ ^clippy\ 0\.${found_rust%.*}([^0-9]|$) ]]; then
        echo "plimsoll-check: clippy: skipped" >>"$log"
        skip clippy "there is no clippy of this compiler here"
    elif check clippy cargo clippy --locked --workspace --all-targets; then
        skip clippy "findings are not counted"
    fi
}

c_sources=(bpf/**/*.[ch] lab/**/*.[ch] crates/**/*.[ch] testkit/**/*.[ch])
fuzz_sources=(fuzz/src/**/*.rs fuzz/fuzz_targets/**/*.rs)
scripts=(.ci/run tools/*.sh crates/**/*.sh lab/**/*.sh bench/**/*.sh packaging/**/*.sh)

formats() {
    check_rustfmt rustfmt cargo-fmt cargo fmt --all --check -- --color never
    # A workspace of its own, which needs a nightly compiler to build but not to be formatted.
    [ ${#fuzz_sources[@]} -eq 0 ] ||
        check_rustfmt rustfmt-fuzz rustfmt rustfmt --check --color never --edition 2024 "${fuzz_sources[@]}"
    [ ${#c_sources[@]} -eq 0 ] || check clang-format clang-format --dry-run -Werror "${c_sources[@]}"
    check shellcheck shellcheck "${scripts[@]}"
}

style() {
    formats
    check_clippy
}

# Both need what cargo built.
documents() {
    check c-warnings tools/check-c.sh
    check rustdoc env RUSTDOCFLAGS=-Dwarnings cargo doc --locked --workspace --no-deps
}

# Prints `--test NAME` for each integration test of the folders named, as cargo finds them.
integration_tests() {
    local folder found
    for folder in "$@"; do
        for found in "$folder"/tests/*.rs "$folder"/tests/*/main.rs; do
            found=${found%/main.rs}
            found=${found##*/}
            printf -- '--test\n%s\n' "${found%.rs}"
        done
    done
}

# Those that need no root, change nothing and do not mind others beside them. A name is one package's only.
bare_tests() { integration_tests crates/policy crates/report crates/wire testkit xtask; }

unit() {
    local bare
    mapfile -t bare < <(bare_tests)
    suite unit cargo_test --lib --bins "${bare[@]}"
    suite doc cargo_test --doc
}

# Integration tests measure, fill memory and watch the whole machine: one at a time, and as root. Without a way to
# become root they run all the same; each then says why it skips.
host() {
    local triple root=() rest runner=$PWD/tools/twice.sh
    mapfile -t rest < <(integration_tests crates/* bench testkit xtask | paste - - | grep -vxFf <(bare_tests | paste - -) | tr '\t' '\n')
    if [ "$(id -u)" -ne 0 ]; then
        cargo test --locked --workspace "${rest[@]}" --no-run >>"$log" 2>&1 </dev/null
        if sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v -p 'The integration tests need root. Password for %p: '; }; then
            root=(tools/as-root.sh)
            runner="$PWD/tools/as-root.sh $runner"
        fi
    fi
    follow_kernel "${root[@]}"
    triple=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
    (
        export RUST_TEST_THREADS=1 "CARGO_TARGET_${triple}_RUNNER=$runner"
        suite host cargo_test "${rest[@]}"
    )
    judge_kernel
}

# A background job would outlive an interrupted run.
following='' guests='' linting=''
stop_background() {
    [ -z "$following" ] || kill "$following"
    # What it started ends by itself within a minute.
    [ -z "$linting" ] || kill "$linting"
    # Their session.
    [ -z "$guests" ] || kill -TERM -- "-$guests"
} 2>/dev/null
trap 'stop_background; exit 130' INT TERM

# What this machine's kernel, and nobody else, writes into its log from now on goes into a file. $@: what makes root of it.
follow_kernel() {
    local reader=("$@" dmesg --kernel)
    if "${reader[@]}" >/dev/null 2>&1 </dev/null; then
        "${reader[@]}" --follow-new >target/kernel.log 2>/dev/null </dev/null &
        following=$!
    fi
}

judge_kernel() {
    if [ -z "$following" ] || ! kill "$following" 2>/dev/null; then
        echo "SKIPPED: kernel-log: this machine's kernel log cannot be read" | tee -a "$log"
        echo "plimsoll-check: kernel-log: skipped" >>"$log"
        return
    fi
    wait "$following" 2>/dev/null
    following=''
    check kernel-log no_splats target/kernel.log
}

no_splats() { ! tools/splats.sh <"$1"; }

# Clippy and documents behind the tests of this machine, which wait more than they work. Cargo does one thing at a time until
# tests run.
lint_behind() {
    until sed -n '/^plimsoll-suite: host: begin/,$p' "$log" | grep -qE '^ *Running |^plimsoll-suite: host: exit'; do sleep 1; done
    local log=target/lint.log
    : >"$log"
    renice -n 19 "$BASHPID" >/dev/null
    check_clippy
    documents
}

collect_lint() {
    wait "$linting"
    linting=''
    cat target/lint.log >>"$log"
    cat target/lint.shown
}

# The newest has most to run, and begins.
mapfile -t kernels < <(awk '/^[0-9]/ { print $1 }' lab/kernels.conf | tac)

# The guests: one per kernel of lab/kernels.conf and, with --all, one with a real systemd. They run in the background,
# while other tests do; as many at a time as target/lab/guests says.
start_guests() {
    series_to_run=("${kernels[@]}")
    [ "${1:-}" != --all ] || series_to_run+=(systemd)
    setsid lab/guests.sh "$@" "${series_to_run[@]}" >target/lab/guests.log 2>&1 </dev/null &
    guests=$!
}

# The kernels need no root; one that cannot be had is skipped where somebody works offline, and a failure in CI. The guest with
# systemd needs root and a whole Debian from the archive: without them it is skipped.
collect_guests() {
    local series output status seconds
    wait "$guests"
    guests=''
    for series in "${series_to_run[@]}"; do
        output=target/lab/$series.log
        read -r status seconds <"target/lab/$series.status" || { status=1 seconds=0; }
        if [ "$status" -eq 3 ] && { [ "${CI:-}" != true ] || [ "$series" = systemd ]; }; then
            printf 'SKIPPED: lab-%s: %s\n' "$series" "$(sed -n '$s/^lab: //p' "$output")" | tee -a "$log"
            echo "plimsoll-check: lab-$series: skipped" >>"$log"
        else
            suite "lab-$series" replay "$output" "$status" "$seconds"
        fi
    done
}

# One after the other: a build takes all CPUs.
bare() {
    local distribution output status began
    for distribution in bookworm trixie noble; do
        output=target/lab/bare-$distribution.log
        began=$SECONDS
        lab/bare.sh "$distribution" >"$output" 2>&1 </dev/null
        status=$?
        if [ "$status" -eq 3 ]; then
            printf 'SKIPPED: bare-%s: %s\n' "$distribution" "$(sed -n '$s/^lab: //p' "$output")" | tee -a "$log"
            echo "plimsoll-check: bare-$distribution: skipped" >>"$log"
        else
            suite "bare-$distribution" replay "$output" "$status" $((SECONDS - began))
        fi
    done
}

# What a command wrote before, and the status it ended with.
replay() {
    cat "$1"
    return "$2"
}

# One CPU is left to the tests of this machine, as most of them wait more than they work.
allow_guests() { echo $(($(nproc) > $1 + 1 ? $(nproc) - $1 : 1)) >target/lab/guests; }

lab() {
    allow_guests 0
    start_guests "$@"
    collect_guests
}

# Builds all of it once and runs it.
everything() {
    local series
    # Downloads while others compile.
    for series in "${kernels[@]}"; do
        lab/fetch-kernel.sh "$series"
    done >target/lab/fetch.log 2>&1 </dev/null &
    formats
    # The guests look at these files, which must not change any more once they run.
    check build cargo test --locked --workspace --no-run
    allow_guests 1
    start_guests "$@"
    unit
    lint_behind >target/lint.shown 2>&1 </dev/null &
    linting=$!
    host
    collect_lint
    allow_guests 0
    collect_guests
}

case ${1:-test} in
check)
    style
    unit
    ;;
test) everything ;;
all)
    everything --all
    bare
    ;;
lint)
    style
    documents
    ;;
unit | host | lab | bare) "$1" ;;
*)
    echo "test.sh: unknown part '$1': use check, test, all, lint, unit, host, lab or bare" >&2
    exit 2
    ;;
esac
echo "plimsoll-run: ended after $SECONDS s" >>"$log"
awk -f tools/summary.awk "$log"
