#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Connects to the pressure socket:  crowd.py USERS CONNECTIONS_OF_EACH
#
# As users 60000 and up; says how many are open, and once one has ended.
import os
import resource
import select
import signal
import socket
import sys

signal.alarm(1000)
resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
poll = select.poll()
kept = []
for user in range(60000, 60000 + int(sys.argv[1])):
    os.seteuid(user)
    for _ in range(int(sys.argv[2])):
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        one.connect("/run/plimsoll/pressure.sock")
        kept.append(one)
        poll.register(one, 0)
    os.seteuid(0)
print("open", len(kept), flush=True)
poll.poll()
print("ended", flush=True)
