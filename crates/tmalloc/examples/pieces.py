#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Takes memory in pieces until it is told no, through ctypes.

    ./pieces.py [LIBRARY [BYTES [PIECE]]]
"""
import ctypes
import os
import sys

library = ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else "libtmalloc.so.0", use_errno=True)
library.tmalloc.argtypes = [ctypes.c_size_t]
library.tmalloc.restype = ctypes.c_void_p
library.tfree.argtypes = [ctypes.c_void_p]
library.tfree.restype = None
library.tmalloc_headroom.restype = ctypes.c_size_t

wanted = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000_000
size = int(sys.argv[3]) if len(sys.argv) > 3 else 11 * 4096

print(f"headroom: {library.tmalloc_headroom()} bytes")
pieces = []
while len(pieces) * size < wanted:
    piece = library.tmalloc(size)
    if piece is None:
        print(f"tmalloc: {os.strerror(ctypes.get_errno())} after {len(pieces)} pieces of {size} bytes")
        break
    ctypes.memset(piece, 1, size)
    pieces.append(piece)
for piece in pieces:
    library.tfree(piece)
