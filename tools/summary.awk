# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Reads the log of tools/test.sh and prints `N passed, N failed` or `N passed, N failed, N skipped` as its last line; before it,
# how many passed at the second try only, if any did.
# Exits 1 when anything failed, or when nothing ran at all.
#
#   plimsoll-check: NAME: passed|failed|skipped    one check (format, lints, ...): counts as one
#   plimsoll-suite: NAME: begin             a run of cargo test starts
#   plimsoll-suite: NAME: exit N            ... and ends; non-zero without a counted failure counts as one
#   test result: ...                        libtest's totals of one test binary
#   SKIPPED: TEST: WHY                      printed by a test that could not run; libtest counts it as passed

function close_binary() {
    # A binary that was started and gave no totals died (a signal, an abort, a test that called exit).
    if (open) failed++
    open = 0
    for (name in seen) delete seen[name]
}

/^plimsoll-check: .*: passed$/ { passed++ }
/^plimsoll-check: .*: failed$/ { failed++ }
# What its `SKIPPED:` line took away, as from a test that libtest counts as passed.
/^plimsoll-check: .*: skipped$/ { passed++ }

/^plimsoll-suite: .*: begin$/ { failed_before = failed; open = 0 }
/^ *Running .*\(.*\)$/ || /^ *Doc-tests / { close_binary(); open = 1 }

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
/^AGAIN: / { again++; failed--; passed++ }

/^plimsoll-suite: .*: exit [0-9]+$/ {
    close_binary()
    if ($NF != 0 && failed == failed_before) failed++
}

END {
    close_binary()
    if (again > 0) printf "%d of those that passed did so at the second try\n", again
    printf "%d passed, %d failed", passed, failed
    if (skipped > 0) printf ", %d skipped", skipped
    printf "\n"
    exit failed > 0 || passed + skipped == 0
}
