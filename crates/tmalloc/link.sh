#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Links libtmalloc.so with versions on its symbols, out of the static library that cargo built: rustc's own version script
# has none, and GNU ld takes only one.
#
#   crates/tmalloc/link.sh target/release/libtmalloc.a OUTPUT
set -euo pipefail
[ $# -eq 2 ] || { echo "link.sh: usage: link.sh LIBRARY.a OUTPUT" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
"${CC:-cc}" -shared -o "$2" -Wl,-soname,libtmalloc.so.0 -Wl,--version-script="$here/tmalloc.map" -Wl,--gc-sections \
    -Wl,-z,relro,-z,now,-z,nodelete \
    -Wl,--strip-debug -Wl,--whole-archive "$1" -Wl,--no-whole-archive -lgcc_s -lpthread -ldl -lc
