#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Read in the guest by the commands of run.sh: `run NAME PATH ARGUMENT...` runs one test binary for at most $seconds_max
# seconds; $status is that of the last that failed.
#
# Emulation beside other work stops a guest for longer than any deadline once in a while. So tests that failed, if they are
# few, are run once more, by themselves. What passes then is named in a line `AGAIN: TEST: ...`, by which tools/summary.awk
# counts it among those that passed, and how many there are of them: a test that is often among these is to be mended.
#
# Nothing goes through a pipe: the tests have processes of this machine killed, the largest first.
status=0
readonly again_max=3

try() { timeout --kill-after=5 "${seconds_max:?}" "$@"; }

run() {
    local name=$1 path=$2 log=/tmp/lab-tests code result test failed=()
    shift 2
    rm -f "$log"
    printf '     Running tests/%s.rs (%s)\n' "$name" "$path"
    try "$path" --color never --show-output --logfile "$log" "$@"
    code=$?
    [ "$code" -ne 0 ] || return 0
    [ "$code" -ne 124 ] || echo "lab: tests/$name.rs did not end within $seconds_max s"
    # libtest's own: `ok NAME` or `failed NAME`.
    [ ! -e "$log" ] || while read -r result test; do
        [ "$result" != failed ] || failed+=("$test")
    done <"$log"
    if [ "$code" -eq 101 ] && [ ${#failed[@]} -gt 0 ] && [ ${#failed[@]} -le $again_max ]; then
        code=0
        for test in "${failed[@]}"; do
            if try "$path" --color never --exact "$test" >"$log" 2>&1; then
                echo "AGAIN: $test: failed, and passed when it was run once more"
            else
                code=$?
                sed 's/^test result: /second try: /' "$log"
            fi
        done
    fi
    # shellcheck disable=SC2034 # the commands end with it
    [ "$code" -eq 0 ] || status=$code
}
