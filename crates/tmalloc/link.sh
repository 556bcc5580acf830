#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Links one of the two shared libraries as it is installed, out of the static library that cargo built: rustc's own version
# script exports the functions of both, without versions, and GNU ld takes only one.
#
#   crates/tmalloc/link.sh target/release/libtmalloc.a OUTPUT
#   crates/tmalloc/link.sh target/release/libtmalloc_preload.a OUTPUT
set -euo pipefail
[ $# -eq 2 ] || { echo "link.sh: usage: link.sh LIBRARY.a OUTPUT" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
case $(basename "$1") in
libtmalloc_preload.a) name=libtmalloc-preload.so map=$here/preload/preload.map ;;
*) name=libtmalloc.so.0 map=$here/tmalloc.map ;;
esac
# The part of libgcc that unwinds comes along: a program that has no use for it would load a library for it at each start.
"${CC:-cc}" -shared -o "$2" -Wl,-soname,"$name" -Wl,--version-script="$map" -Wl,--gc-sections \
    -Wl,-z,relro,-z,now,-z,nodelete \
    -Wl,--strip-debug -Wl,--whole-archive "$1" -Wl,--no-whole-archive -lgcc_eh -lgcc -lpthread -ldl -lc
