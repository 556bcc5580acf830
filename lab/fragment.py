# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Fragments the memory of a guest of the lab, and asks for large blocks there. For a guest only: it takes all memory.

    python3 lab/fragment.py [whole]

Fills memory, gives one page in twelve of it to pipes, which the kernel cannot move, and frees one page of every two of two
thirds: about 30 % of memory is free then, in single pages. With `whole` it has memory compacted instead. Then it does what
it is told, a word a line, and answers each with a line of JSON:

    ask ORDER N [MS]
                   asks N times for a block of this order that cannot be moved, and keeps them: F_SETPIPE_SZ allocates an
                   array of 40 bytes for each page of the pipe with GFP_KERNEL_ACCOUNT (fs/pipe.c, 6.1 to 7.2). MS
                   milliseconds pass after each
    unix BYTES N   sends so much through a local stream socket N times, and receives it
    binder N       maps 4 MiB of Android's binder N times (CONFIG_ANDROID_BINDER_IPC)
    state          what there is
"""
import ctypes, fcntl, json, mmap, os, random, resource, socket, sys, time

PAGE = 4096
CHUNK = 2 << 20
SETPIPE_SZ = 1031
DONTNEED, NOHUGEPAGE, NORESERVE = 4, 15, 0x4000
LIBC = ctypes.CDLL(None, use_errno=True)


def put(path, value):
    with open(path, "w") as file:
        file.write(value)


def numbers(path, separator=None):
    with open(path) as file:
        pairs = (line.split(separator) for line in file)
        return {pair[0]: int(pair[1].split()[0]) for pair in pairs if len(pair) > 1}


def free_blocks():
    counts = [0] * 16
    with open("/proc/buddyinfo") as file:
        for line in file:
            for order, count in enumerate(line.split()[4:]):
                counts[order] += int(count)
    return counts


def suitable(order):
    return sum(count << at for at, count in enumerate(free_blocks()) if at >= order) >> order


def advise(address, length, advice):
    if LIBC.madvise(ctypes.c_void_p(address), ctypes.c_size_t(length), advice):
        raise OSError(ctypes.get_errno(), "madvise")


def kept_free():
    """What kswapd wants to be free, and what low zones keep from programs, in pages."""
    pages = 0
    with open("/proc/zoneinfo") as file:
        for words in map(str.split, file):
            if words[0] == "high":
                pages += int(words[1])
            elif words[0] == "protection:":
                pages += max(int(word.strip("(),")) for word in words[1:])
    return pages


def fill():
    """Anonymous memory, until little more than kswapd wants is free: its address, and how much there is."""
    size = numbers("/proc/meminfo", ":")["MemTotal"] * 1024 // CHUNK * CHUNK
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE
    area = mmap.mmap(-1, size + CHUNK, flags)
    base = ctypes.addressof(ctypes.c_char.from_buffer(area))
    base = (base + CHUNK - 1) // CHUNK * CHUNK
    advise(base, size, NOHUGEPAGE)
    done = 0
    while done < size and suitable(0) > kept_free() + (6 << 20) // PAGE:
        ctypes.memset(base + done, 1, CHUNK)
        done += CHUNK
    return area, base, done


def spoil(base, size):
    """Lets go of every twelfth page, and fills pipes with four fifths of that."""
    for page in range(0, size, 12 * PAGE):
        advise(base + page, PAGE, DONTNEED)
    pipes, left = [], size // PAGE // 12 * 4 // 5
    while left > 0:
        pipes.append(os.pipe())
        pages = min(16, left)
        os.write(pipes[-1][1], bytes(pages * PAGE))
        left -= pages
    return pipes


def scatter(base, size):
    """Lets go of one page of every two of two thirds, by chance: the kernel looks for free pages in every 32nd place of a pageblock
    after some in which it found none (isolate_freepages, mm/compaction.c), and would find none of a regular pattern."""
    chance = random.Random(1)
    chunks = list(range(0, size, CHUNK))
    chance.shuffle(chunks)
    for chunk in chunks[: len(chunks) * 66 // 100]:
        for pair in range(0, CHUNK, 2 * PAGE):
            advise(base + chunk + pair + chance.choice((0, PAGE)), PAGE, DONTNEED)


def state():
    """Of each pageblock, whether there is a page in it that is neither free nor can be moved (by /proc/kpageflags)."""
    flags = b""
    with open("/proc/kpageflags", "rb") as file:
        while piece := file.read(1 << 20):
            flags += piece
    words = memoryview(flags).cast("Q")
    free, nobody, movable = 1 << 10, 1 << 20, 1 << 5 | 1 << 11 | 1 << 12 | 1 << 18
    blocks = spoilt = free_pages = 0
    for begin in range(0, len(words) - 511, 512):
        block = [word for word in words[begin : begin + 512] if not word & nobody]
        blocks += bool(block)
        spoilt += any(not word & (free | movable) for word in block)
        free_pages += sum(bool(word & free) for word in block)
    return {"pageblocks": blocks, "unmovable": spoilt, "free": suitable(0), "blocks": suitable(3)}


def timed(deed, count, order, pause_ms=0):
    before = numbers("/proc/vmstat")
    times, failures = [], 0
    for _ in range(count):
        began = time.monotonic_ns()
        try:
            deed()
        except OSError:
            failures += 1
        times.append(time.monotonic_ns() - began)
        if pause_ms:
            time.sleep(pause_ms / 1000)
    times.sort()
    after = numbers("/proc/vmstat")
    stalled = lambda name: name == "compact_stall" or name.startswith("allocstall")
    return {
        "failures": failures,
        "stalls": sum(after[name] - before[name] for name in before if stalled(name)),
        "oom_kills": after["oom_kill"] - before["oom_kill"],
        "median_us": times[count // 2] // 1000,
        "p99_us": times[count * 99 // 100] // 1000,
        "longest_us": times[-1] // 1000,
        "free": suitable(0),
        "blocks": suitable(order),
    }


def ask(kept, order, count, pause_ms=0):
    pipes = [os.pipe() for _ in range(count)]
    kept += pipes
    left = iter(pipes)
    return timed(lambda: fcntl.fcntl(next(left)[1], SETPIPE_SZ, PAGE * 64 << order), count, order, pause_ms)


def unix(size, count):
    own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * size)
    data, space = bytes(size), bytearray(size)

    def deed():
        own.sendall(data)
        got = 0
        while got < size:
            got += other.recv_into(memoryview(space)[got:])

    return timed(deed, count, 3)


def binder(count):
    def deed():
        device = os.open("/dev/binder", os.O_RDWR)
        try:
            mmap.mmap(device, 4 << 20, mmap.MAP_PRIVATE, mmap.PROT_READ).close()
        finally:
            os.close(device)

    return timed(deed, count, 3)


def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (65536, 65536))
    put("/proc/sys/fs/pipe-max-size", str(256 << 20))
    put("/proc/sys/fs/pipe-user-pages-soft", "0")
    # As of a server without huge pages: what is kept free for them would serve all that is asked for here.
    put("/proc/sys/vm/min_free_kbytes", "8192")
    if sys.argv[1:] == ["whole"]:
        put("/proc/sys/vm/compact_memory", "1")
    else:
        area, base, size = fill()
        pipes = spoil(base, size)
        scatter(base, size)
    kept = []
    print(json.dumps(state()), flush=True)
    for line in sys.stdin:
        word, *counts = line.split()
        deed = {"ask": lambda *counts: ask(kept, *counts), "unix": unix, "binder": binder, "state": state}[word]
        print(json.dumps(deed(*map(int, counts))), flush=True)


main()
