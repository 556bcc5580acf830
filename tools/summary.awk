# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Reads the log of tools/test.sh and prints what a run ends with: a line for the checks, for each of them that took its time and
# for each suite, with its seconds and totals; the slowest test binaries; each test that passed at the second try only, by name;
# and last `N passed, N failed` or `N passed, N failed, N skipped`. Exits 1 when anything failed, or when nothing ran at all.
#
#   plimsoll-check: NAME: passed|failed|skipped [after N s]    one check (format, lints, ...): counts as one
#   plimsoll-suite: NAME: begin             a run of cargo test starts
#   plimsoll-suite: NAME: exit N after N s  ... and ends; non-zero without a counted failure counts as one
#   plimsoll-run: ended after N s           all of it: what runs beside each other is counted once
#   test result: ...                        libtest's totals of one test binary, and its seconds
#   SKIPPED: TEST: WHY                      printed by a test that could not run; libtest counts it as passed
#   AGAIN: TEST: ...                        failed, which libtest counts, and passed when it was run once more

function close_binary() {
    # A binary that was started and gave no totals died (a signal, an abort, a test that called exit).
    if (open) failed++
    open = 0
    for (name in seen) delete seen[name]
}

function totals(passed, failed, skipped) {
    return (passed + 0) " passed, " (failed + 0) " failed" (skipped > 0 ? ", " skipped " skipped" : "")
}

# A line of the end.
function row(name, seconds, counts) {
    if (seconds == "") seconds = "?"
    return sprintf(counts == "" ? "%5s s  %s" : "%5s s  %-12s %s", seconds, name, counts)
}

# Prints the ten test binaries that took longest, of those that took a second.
function print_slowest(place, key, slowest) {
    for (place = 1; place <= 10; place++) {
        slowest = ""
        for (key in binary_seconds)
            if (binary_seconds[key] >= 1 && (slowest == "" || binary_seconds[key] > binary_seconds[slowest])) slowest = key
        if (slowest == "") return
        printf "slow: %5.0f s  %s\n", binary_seconds[slowest], slowest
        delete binary_seconds[slowest]
    }
}

/^plimsoll-check: .*: (passed|failed|skipped)( after [0-9]+ s)?$/ {
    if ($3 == "failed") checks_failed++
    # What its `SKIPPED:` line took away, as from a test that libtest counts as passed.
    else checks_passed++
    if ($3 == "skipped") checks_skipped++
    if ($4 == "after") check_seconds += $5
    if ($4 == "after" && $5 >= 5) {
        name = $2
        sub(/:$/, "", name)
        slow_checks[++slow_check_count] = sprintf("%5d s    %s", $5, name)
    }
}

/^plimsoll-suite: .*: begin$/ {
    suite = $2
    sub(/:$/, "", suite)
    passed_before = passed
    failed_before = failed
    skipped_before = skipped
    open = 0
}
/^ *Running .*\(.*\)$/ {
    close_binary()
    open = 1
    # Of unit tests the executable's, which has a hash at its end.
    binary = $2 == "unittests" ? $NF : $2
    sub(/^.*\//, "", binary)
    sub(/(\.[a-z]*|-[0-9a-f]*\))$/, "", binary)
}
/^ *Doc-tests / { close_binary(); open = 1; binary = $2 }

# `test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s`
/^test result: / {
    for (field = 2; field <= NF; field++) {
        if ($field ~ /^passed/) passed += $(field - 1)
        if ($field ~ /^failed/) failed += $(field - 1)
        if ($field ~ /^ignored/) skipped += $(field - 1)
    }
    if ($(NF - 1) == "in") binary_seconds[suite ", " binary] += $NF
    # An edition's merged doc tests print several totals under one heading: only the first closes it.
    open = 0
}

# Once a test, however often it says so.
/^SKIPPED: / {
    name = $2
    if (!(name in seen)) {
        seen[name] = 1
        skipped++
        passed--
    }
}

# Failed in an emulated machine, which the totals say, and passed when it was run once more.
/^AGAIN: / {
    name = $2
    sub(/:$/, "", name)
    again[++again_count] = suite ", " binary ": " name
    failed--
    passed++
}

/^plimsoll-suite: .*: exit [0-9]+( after [0-9]+ s)?$/ {
    close_binary()
    if ($4 != 0 && failed == failed_before) failed++
    rows[++row_count] = row(suite, $6, totals(passed - passed_before, failed - failed_before, skipped - skipped_before))
}

/^plimsoll-run: ended after [0-9]+ s$/ { run_seconds = $4 }

END {
    close_binary()
    passed += checks_passed
    failed += checks_failed
    if (checks_passed + checks_failed > 0)
        print row("checks", check_seconds + 0, totals(checks_passed - checks_skipped, checks_failed, checks_skipped))
    for (i = 1; i <= slow_check_count; i++) print slow_checks[i]
    for (i = 1; i <= row_count; i++) print rows[i]
    if (run_seconds != "") print row("all", run_seconds, "")
    print_slowest()
    for (i = 1; i <= again_count; i++) print "at the second try: " again[i]
    print totals(passed, failed, skipped)
    exit failed > 0 || passed + skipped == 0
}
