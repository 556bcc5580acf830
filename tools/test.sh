#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Runs checks and tests and ends with one line, `N passed, N failed[, N skipped]`; see summary.awk for what counts.
#
#   tools/test.sh [all|lint|unit|host|lab|bare]
#
#   lint   format, clippy, shellcheck, C warnings, documentation
#   unit   unit and documentation tests: no root, seconds
#   host   integration tests on this machine: as root, real eBPF, one at a time
#   lab    integration tests inside stock Debian kernels, and checks with a real systemd, under qemu (lab/README.md)
#   bare   build and checks in bare roots of Debian and Ubuntu (lab/bare.sh): as root, not in 'all'
#
# The whole output is in target/test.log; the terminal sees each check, each suite and every failure.
set -uo pipefail
shopt -s nullglob globstar
cd "$(dirname "$0")/.." || exit 1

export CARGO_TERM_COLOR=never
[ ! -x "${HOME:-/root}/.cargo/bin/cargo" ] || PATH=${HOME:-/root}/.cargo/bin:$PATH
# Where setup.sh found a compiler, and what it unpacked instead of installing it.
export PATH=$PWD/target/tools/rust:$PATH:$PWD/target/tools/usr/bin
mkdir -p target
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
        echo "plimsoll-check: $name: passed" >>"$log"
        printf 'ok      %-12s %4d s\n' "$name" $((SECONDS - began))
    else
        since "$start"
        echo "plimsoll-check: $name: failed" >>"$log"
        printf 'FAILED  %-12s %4d s\n' "$name" $((SECONDS - began))
        return 1
    fi
}

# One run of test binaries by a command. Skipped tests and totals are shown as they come, failures in full at the end.
suite() {
    local name=$1 start began=$SECONDS status
    shift
    start=$(log_lines)
    echo "plimsoll-suite: $name: begin" >>"$log"
    printf 'suite   %s\n' "$name"
    "$@" 2>&1 </dev/null | tee -a "$log" |
        grep --line-buffered -E '^ *(Running|Doc-tests) |^test result: |^test .* FAILED$|^SKIPPED: |^AGAIN: |^error|^lab: '
    status=${PIPESTATUS[0]}
    # A log that ends without a line break would hide the next line from the summary.
    printf '\n%s\n' "plimsoll-suite: $name: exit $status" >>"$log"
    # Also of those that passed when they were run once more: why is to be known.
    since "$start" | awk '/^failures:$/ { show = 1 } /^test result: / { show = 0 } show || /^error/'
    if [ "$status" -ne 0 ]; then
        printf 'FAILED  %-12s %4d s (all output: %s)\n' "$name" $((SECONDS - began)) "$log"
    else
        printf 'ok      %-12s %4d s\n' "$name" $((SECONDS - began))
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

c_sources=(bpf/**/*.[ch] lab/**/*.[ch] crates/**/*.[ch])
fuzz_sources=(fuzz/src/**/*.rs fuzz/fuzz_targets/**/*.rs)
scripts=(.ci/run tools/*.sh crates/**/*.sh lab/**/*.sh bench/**/*.sh packaging/**/*.sh)

lint() {
    check_rustfmt rustfmt cargo-fmt cargo fmt --all --check -- --color never
    # A workspace of its own, which needs a nightly compiler to build but not to be formatted.
    [ ${#fuzz_sources[@]} -eq 0 ] ||
        check_rustfmt rustfmt-fuzz rustfmt rustfmt --check --color never --edition 2024 "${fuzz_sources[@]}"
    [ ${#c_sources[@]} -eq 0 ] || check clang-format clang-format --dry-run -Werror "${c_sources[@]}"
    check shellcheck shellcheck "${scripts[@]}"
    check_clippy
    check c-warnings tools/check-c.sh
    check rustdoc env RUSTDOCFLAGS=-Dwarnings cargo doc --locked --workspace --no-deps
}

unit() {
    suite unit cargo_test --lib --bins
    suite doc cargo_test --doc
}

# Integration tests measure, fill memory and watch the whole machine: one at a time, and as root. Without a way to
# become root they run all the same; each then says why it skips.
host() {
    local triple
    if [ "$(id -u)" -ne 0 ]; then
        cargo test --locked --workspace --test '*' --no-run >>"$log" 2>&1 </dev/null
        if sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v -p 'The integration tests need root. Password for %p: '; }; then
            triple=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
            export "CARGO_TARGET_${triple}_RUNNER=$PWD/tools/as-root.sh"
        fi
    fi
    RUST_TEST_THREADS=1 suite host cargo_test --test '*'
}

# One guest per kernel of lab/kernels.conf, and one with a real systemd, side by side as far as there are CPUs: most tests
# wait more than they work. The kernels need no root; one that cannot be had is skipped where somebody works offline, and a
# failure in CI. The guest with systemd needs root and a whole Debian from the archive: without them it is skipped.
lab() {
    local series output status command
    mapfile -t kernels < <(awk '/^[0-9]/ { print $1 }' lab/kernels.conf)
    kernels+=(systemd)
    mkdir -p target/lab
    # A background job would outlive an interrupted run.
    trap 'end_guests; exit 130' INT TERM
    for series in "${kernels[@]}"; do
        while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
        command=(lab/run.sh "$series")
        [ "$series" != systemd ] || command=(lab/systemd.sh)
        setsid "${command[@]}" >"target/lab/$series.log" 2>&1 </dev/null &
        guests[$series]=$!
    done
    for series in "${kernels[@]}"; do
        output=target/lab/$series.log
        wait "${guests[$series]}"
        status=$?
        unset "guests[$series]"
        if [ "$status" -eq 3 ] && { [ "${CI:-}" != true ] || [ "$series" = systemd ]; }; then
            printf 'SKIPPED: lab-%s: %s\n' "$series" "$(sed -n '$s/^lab: //p' "$output")" | tee -a "$log"
            echo "plimsoll-check: lab-$series: skipped" >>"$log"
        else
            suite "lab-$series" replay "$output" "$status"
        fi
    done
    trap - INT TERM
}

# One after the other: a build takes all CPUs.
bare() {
    local distribution output status began
    mkdir -p target/lab
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

# The processes of the guests still running, by the session that each was started in.
declare -A guests=()
end_guests() {
    local leader
    for leader in "${guests[@]}"; do kill -TERM -- "-$leader" 2>/dev/null; done
}

case ${1:-all} in
all)
    lint
    unit
    host
    lab
    ;;
lint | unit | host | lab | bare) "$1" ;;
*)
    echo "test.sh: unknown part '$1': use all, lint, unit, host, lab or bare" >&2
    exit 2
    ;;
esac
awk -f tools/summary.awk "$log"
