#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Compiles all C with every warning an error and throws the result away: the eBPF programs with clang for bpf, the
# workloads, the library's C and its example for this machine, each header shared with Rust on its own (it must stand alone).
#
# The eBPF programs need the headers of libbpf; they are taken from the one that cargo built, so that this needs no
# libbpf-dev and sees what the build sees. Run it after a build.
set -euo pipefail
shopt -s nullglob globstar
cd "$(dirname "$0")/.."

warnings=(-Wall -Wextra -Wshadow -Wformat=2 -Wstrict-prototypes -Wmissing-prototypes -Werror)
failures=0
compile() { "$@" -o /dev/null || failures=$((failures + 1)); }

# The newest include folder that a libbpf-sys build left behind.
libbpf_headers() {
    local found=(target/*/build/libbpf-sys-*/out/include)
    [ ${#found[@]} -gt 0 ] || return 0
    # shellcheck disable=SC2012 # cargo's own folder names: no odd characters
    ls -td "${found[@]}" | head -n 1
}

case $(uname -m) in
x86_64) arch=x86 ;;
aarch64) arch=arm64 ;;
riscv64) arch=riscv ;;
*) arch=$(uname -m) ;;
esac

programs=(bpf/**/*.bpf.c)
if [ ${#programs[@]} -gt 0 ]; then
    headers=$(libbpf_headers)
    if [ -z "$headers" ]; then
        echo "check-c: no libbpf headers under target/*/build/libbpf-sys-*: run 'make build' first" >&2
        exit 1
    fi
    for program in "${programs[@]}"; do
        # The tracing macros of libbpf declare the context of every program, used or not.
        compile clang -target bpf -g -O2 -mcpu=v3 "-D__TARGET_ARCH_$arch" "${warnings[@]}" -Wno-unused-parameter \
            -Wno-missing-prototypes -Ibpf -isystem "$headers" -c "$program"
    done
fi
for header in bpf/wire/*.h; do
    compile clang "${warnings[@]}" -fsyntax-only -Ibpf -x c "$header"
done
for workload in lab/workloads/*.c; do
    compile clang -std=c11 -D_GNU_SOURCE -O2 "${warnings[@]}" -Wconversion -c "$workload"
done
for source in crates/tmalloc/src/*.c crates/tmalloc/preload/src/*.c crates/tmalloc/examples/*.c; do
    compile clang -std=c11 -O2 "${warnings[@]}" -Wconversion -Icrates/tmalloc/include -c "$source"
done
[ "$failures" -eq 0 ] || { echo "check-c: $failures of the files above do not compile cleanly" >&2; exit 1; }
