#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Runs one test binary, for at most $seconds_max seconds if that is set: the cargo runner of the integration tests, here and in
# guests.
#
# Emulation beside other work stops a process for longer than any deadline once in a while. So tests that failed, if they are
# few, are run once more, by themselves. What passes then is named in a line `AGAIN: TEST: ...`, by which tools/summary.awk
# counts it among those that passed, and how many there are of them: a test that is often among these is to be mended.
#
# Nothing goes through a pipe: the tests have processes of this machine killed, the largest first.
readonly again_max=3

# Without a limit there is no timeout, which would keep an interrupt from the tests.
try() { ${seconds_max:+timeout --kill-after=5 "$seconds_max"} "$@"; }

# What cargo gives each binary is for all of its tests: `--show-output`, and names when it runs some of them only.
list=$(mktemp) && second=$(mktemp) || exit
trap 'rm -f "$list" "$second"' EXIT
try "$@" --logfile "$list"
code=$?
[ "$code" -ne 124 ] || echo "lab: $1 did not end within $seconds_max s"
failed=()
# libtest's own: `ok NAME` or `failed NAME`.
while read -r result test; do
    [ "$result" != failed ] || failed+=("$test")
done <"$list"
if [ "$code" -eq 101 ] && [ ${#failed[@]} -gt 0 ] && [ ${#failed[@]} -le $again_max ]; then
    code=0
    for test in "${failed[@]}"; do
        if try "$1" --color never --exact "$test" >"$second" 2>&1; then
            echo "AGAIN: $test: failed, and passed when it was run once more"
        else
            code=$?
            sed 's/^test result: /second try: /' "$second"
        fi
    done
fi
exit "$code"
