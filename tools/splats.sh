#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Prints the lines of a kernel's log, read from standard input, by which the kernel says that something in it is wrong. Succeeds
# when there is one.
#
#   tools/splats.sh [--emulated]
#
# --emulated: without lockups and stalls, which are what a busy machine does to an emulated one.
set -uo pipefail

complaints='cut here|BUG:|Oops|Kernel panic|general protection fault|unable to handle|KASAN|KCSAN|KFENCE|UBSAN'
# Not each: at boot it says so of mitigations, too.
complaints+='|WARNING: (CPU|possible|suspicious|inconsistent|bad|kernel|lock|stack)'
complaints+='|detected stall|self-detected stall|hard LOCKUP|blocked for more than [0-9]+ seconds'
late='detected stall|self-detected stall|lockup|blocked for more than'

case ${1:-} in
'') grep --text -E "$complaints" ;;
--emulated) grep --text -E "$complaints" | grep --text -viE "$late" ;;
*)
    echo "splats.sh: unknown argument '$1'" >&2
    exit 2
    ;;
esac
