#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Takes memory:  take.py ANONYMOUS_MIB [SHARED_MIB [OWN_ADJUSTMENT]]
#
# First the anonymous memory. Then, once its oom_score_adj is not its own any more, the shared memory, which no line counts.
# With an adjustment of its own instead: sets that first, and once it was raised, lowers itself to less.
import mmap
import signal
import sys
import time

signal.alarm(400)
FILE = "/proc/self/oom_score_adj"


def adjustment():
    with open(FILE) as file:
        return int(file.read())


def adjust(value):
    with open(FILE, "w") as file:
        file.write(str(value))


def raised(own):
    for _ in range(600):
        if adjustment() != own:
            return adjustment()
        time.sleep(0.1)
    sys.exit("it was not raised within a minute")


anonymous = int(sys.argv[1])
shared = int(sys.argv[2]) if len(sys.argv) > 2 else 0
own = int(sys.argv[3]) if len(sys.argv) > 3 else None
if own is not None:
    adjust(own)
before = adjustment()
memory = bytearray(b"x") * (anonymous << 20)
if own is not None:
    print("raised", raised(before), flush=True)
    adjust(own // 2)
    print("own", adjustment(), flush=True)
    sys.exit()
if shared:
    raised(before)
    pages = mmap.mmap(-1, shared << 20)
    for megabyte in range(shared):
        pages.write(b"x" * (1 << 20))
time.sleep(400)
