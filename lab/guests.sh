#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Runs guests one after the other, or so many at a time as the file target/lab/guests says: it may change meanwhile.
#
#   lab/guests.sh [--all] SERIES...
#
#   SERIES   of kernels.conf, in the order to begin with, or 'systemd'
#   --all    all that kernels.conf has for `make test-all`
#
# What each prints is in target/lab/SERIES.log, and in target/lab/SERIES.status its exit status and how many seconds it took.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

lists=()
if [ "${1:-}" = --all ]; then
    lists=(--all)
    shift
fi

guest() {
    local series=$1 command=(lab/run.sh "$1" "${lists[@]}") began=$SECONDS
    [ "$series" != systemd ] || command=(lab/systemd.sh)
    "${command[@]}" >"target/lab/$series.log" 2>&1 </dev/null
    echo "$? $((SECONDS - began))" >"target/lab/$series.status"
}

for series in "$@"; do rm -f "target/lab/$series".{log,status}; done
for series in "$@"; do
    while [ "$(jobs -rp | wc -l)" -ge "$(cat target/lab/guests)" ]; do sleep 1; done
    guest "$series" &
done
wait
