# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Reads the log of tools/test.sh and prints what a run ends with: a line for the checks and for each suite, with its seconds and
# totals; each test that passed at the second try only, by name; and last `N passed, N failed` or `N passed, N failed, N skipped`.
# Exits 1 when anything failed, or when nothing ran at all.
#
#   plimsoll-check: NAME: passed|failed|skipped [after N s]    one check (format, lints, ...): counts as one
#   plimsoll-suite: NAME: begin             a run of cargo test starts
#   plimsoll-suite: NAME: exit N after N s  ... and ends; non-zero without a counted failure counts as one
#   test result: ...                        libtest's totals of one test binary
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

# Keeps a line for the end.
function row(name, seconds, counts) {
    if (seconds == "") seconds = "?"
    rows[++row_count] = sprintf("%5s s  %-12s %s", seconds, name, counts)
}

/^plimsoll-check: .*: (passed|failed|skipped)( after [0-9]+ s)?$/ {
    if ($3 == "failed") checks_failed++
    # What its `SKIPPED:` line took away, as from a test that libtest counts as passed.
    else checks_passed++
    if ($3 == "skipped") checks_skipped++
    if ($4 == "after") check_seconds += $5
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
    binary = $2
    sub(/^.*\//, "", binary)
    sub(/\.[a-z]*$/, "", binary)
}
/^ *Doc-tests / { close_binary(); open = 1 }

# `test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s`
/^test result: / {
    for (field = 2; field <= NF; field++) {
        if ($field ~ /^passed/) passed += $(field - 1)
        if ($field ~ /^failed/) failed += $(field - 1)
        if ($field ~ /^ignored/) skipped += $(field - 1)
    }
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
    row(suite, $6, totals(passed - passed_before, failed - failed_before, skipped - skipped_before))
}

END {
    close_binary()
    passed += checks_passed
    failed += checks_failed
    if (checks_passed + checks_failed > 0)
        printf "%5d s  %-12s %s\n", check_seconds, "checks", totals(checks_passed - checks_skipped, checks_failed, checks_skipped)
    for (i = 1; i <= row_count; i++) print rows[i]
    for (i = 1; i <= again_count; i++) print "at the second try: " again[i]
    print totals(passed, failed, skipped)
    exit failed > 0 || passed + skipped == 0
}
