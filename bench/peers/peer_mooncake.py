# SPDX-License-Identifier: Apache-2.0
"""Mooncake's store: the client's own segment holds the blocks, or another process's, reached by TCP over loopback.

A master on loopback knows where they lie. Memory of the client is registered; calls hand over a batch.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import serve
from serve import ERROR, FOUND, MISS, GiveUp, libc

MISSING = -704  # mooncake's code for a key that is not there
SECONDS = 30


def die_with_parent():
    libc.prctl(serve.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def start_master():
    port, metrics = free_ports(2)
    program = shutil.which("mooncake_master", path=os.path.dirname(sys.executable))
    master = subprocess.Popen(
        [
            program,
            "--rpc_address=127.0.0.1",
            "--rpc_port=%d" % port,
            "--metrics_host=127.0.0.1",
            "--metrics_port=%d" % metrics,
            "--eviction_high_watermark_ratio=1.0",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=die_with_parent,
    )
    for _ in range(SECONDS * 100):
        with socket.socket() as probe:
            answers = probe.connect_ex(("127.0.0.1", port)) == 0
        if master.poll() is not None:  # and whoever answers is another one
            raise GiveUp("its master ended with %d" % master.returncode)
        if answers:
            return master, "127.0.0.1:%d" % port
        time.sleep(0.01)
    raise GiveUp("its master does not come up")


def start_client(master, segment):
    from mooncake.store import MooncakeDistributedStore

    client = MooncakeDistributedStore()
    status = client.setup("127.0.0.1", "P2PHANDSHAKE", segment, 64 << 20, "tcp", "", master)
    if status != 0:
        raise GiveUp("setup says %d" % status)
    return client


def own_segment(master, segment):
    """A process that does nothing but hold it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        die_with_parent()
        client = start_client(master, segment)
        os.write(writer, b"x")
        while client:
            time.sleep(SECONDS)
    os.close(writer)
    with open(reader, "rb") as file:
        if file.read(1) != b"x":
            raise GiveUp("the process that holds the segment does not come up")
    return child


class Mooncake:
    checks = "nothing"
    persistent = False
    durability = "nothing: gone with the process that holds the segment"

    def __init__(self, directory, size, count, source, window):
        segment = -(-(count * (size + 4096) + (64 << 20)) // (16 << 20)) * (16 << 20)
        self.master, address = start_master()
        self.owner = own_segment(address, segment) if self.remote else None
        self.client = start_client(address, 0 if self.remote else segment)
        self.keys = ["%064x" % i for i in range(count)]
        self.size, self.source, self.window = size, source, window
        if any(self.client.register_buffer(memory.address, memory.size) for memory in (source, window)):
            raise GiveUp("memory could not be registered")

    def put(self, first, n):
        places = [self.source.address + i * self.size for i in range(first, first + n)]
        if any(self.client.batch_put_from(self.keys[first : first + n], places, [self.size] * n)):
            raise GiveUp("a put failed")

    def get(self, first, n):
        places = [self.window.address + i * self.size for i in range(n)]
        got = self.client.batch_get_into(self.keys[first : first + n], places, [self.size] * n)
        return [FOUND if bytes_read == self.size else MISS if bytes_read == MISSING else ERROR for bytes_read in got]

    def empty(self):
        if any(self.client.remove(key, True) for key in self.keys):
            raise GiveUp("its blocks could not be removed")

    def close(self):
        self.client.close()
        self.master.kill()
        self.master.wait()
        if self.owner:
            os.kill(self.owner, signal.SIGKILL)
            os.waitpid(self.owner, 0)


class InProcess(Mooncake):
    name = "Mooncake, in process"
    remote = False
    alone = True


class Loopback(Mooncake):
    name = "Mooncake, TCP loopback"
    remote = True
    alone = False


if __name__ == "__main__":
    serve.serve([InProcess, Loopback])
