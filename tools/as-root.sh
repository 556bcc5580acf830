#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Runs a command as root: directly, or through sudo. It is the cargo runner of the tests that need eBPF and other
# users' processes.
# sudo drops the two search paths whatever it is told to keep, so they are handed over by name.
set -euo pipefail

[ "$(id -u)" -ne 0 ] || exec "$@"
exec sudo -n -E env "PATH=$PATH" "LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}" "$@"
