#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of docs/llama.md: what the stock llama-server does with one prompt, and kvonce's adapter with the same one:
cold, again in memory, another end, after a restart, and from a file that lost or changed a byte. Some minutes.

    KVONCE_LLAMA_LIB=... KVONCE_LLAMA_MODEL=... KVONCE_LLAMA_SERVER=... llama_baseline.py BUILD
"""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from llama_run import BLOCK, KVONCE, LIBRARY, LIMITS, MODEL, answer, count, output, prompts

ENDS = ["What does a crash lose?", "How large may a block be?"]


class Server:
    """The stock server on one thread. Its libraries have two copies of the C++ runtime: libllama's must be the one."""

    def __init__(self, folder):
        self.folder = folder
        self.process = None

    def start(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen(
            [os.environ["KVONCE_LLAMA_SERVER"], "-m", MODEL, "-t", "1", "-c", "16384", "--host", "127.0.0.1",
             "--port", str(self.port), "--slot-save-path", str(self.folder)],
            env=dict(os.environ, LD_PRELOAD=LIBRARY), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 120
        while time.monotonic() < end and self.process.poll() is None:
            try:
                urllib.request.urlopen("http://127.0.0.1:%d/health" % self.port, timeout=10)
                return self
            except OSError:
                time.sleep(0.1)
        sys.exit("llama-server does not start: exit %s" % self.process.poll())

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def post(self, path, **body):
        request = urllib.request.Request("http://127.0.0.1:%d%s" % (self.port, path), json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        begin = time.monotonic()
        with urllib.request.urlopen(request, timeout=600) as reply:
            return json.loads(reply.read()), time.monotonic() - begin

    def complete(self, tokens):
        reply, taken = self.post("/completion", prompt=tokens, n_predict=1, temperature=0, cache_prompt=True, id_slot=0)
        return taken, reply["timings"]["cache_n"]

    def slot(self, action):
        return self.post("/slots/0?action=" + action, filename="slot.bin")

    def try_restore(self):
        """What happens with a slot file that is not as it was."""
        try:
            self.slot("restore")
            return "accepted"
        except urllib.error.HTTPError as refused:
            return "refused: %d" % refused.code
        except OSError:
            return "server dead: exit %s" % self.process.wait(60)


def stock(folder, texts):
    server = Server(folder).start()
    rows = {}
    try:
        first, second = (server.post("/tokenize", content=text, add_special=True, parse_special=True)[0]["tokens"]
                         for text in texts)
        rows["cold"] = server.complete(first)
        rows["again, in memory"] = server.complete(first)
        rows["another end, in memory"] = server.complete(second)
        server.complete(first)
        server.slot("save")
        saved = (folder / "slot.bin").read_bytes()
        for name, tokens in ("after a restart", first), ("another end, after a restart", second):
            server.stop()
            server.start()
            taken = server.slot("restore")[1]
            done, cached = server.complete(tokens)
            rows[name] = (taken + done, cached)
        faults = {}
        for name, data in (("cut by one byte", saved[:-1]),
                           ("one bit flipped", saved[:-4096] + bytes([saved[-4096] ^ 1]) + saved[-4095:])):
            (folder / "slot.bin").write_bytes(data)
            server.stop()
            server.start()
            faults[name] = server.try_restore()
        return rows, faults, len(saved)
    finally:
        server.stop()


def damage(directory, change):
    """A copy of the store with its data file changed, and what a run on it restores."""
    copy = pathlib.Path(str(directory) + ".damaged")
    shutil.rmtree(copy, ignore_errors=True)
    subprocess.run(["cp", "-a", "--sparse=always", str(directory), str(copy)], check=True)
    change(copy / "data")
    return copy


def payload(directory, position):
    """Where a block of the prompt lies in the data file: behind a page that describes it."""
    blocks = json.loads(output(KVONCE, "ls", directory, "--json"))["blocks"]
    block = next(b for b in blocks if b["identity"]["positions"] and b["identity"]["position"] == position)
    return block["copies"][0]["offset_bytes"] + 4096, block["bytes"]


def flip(directory, position):
    offset, length = payload(directory, position)

    def change(path):
        with open(path, "r+b") as data:
            data.seek(offset + length // 2)
            byte = data.read(1)[0]
            data.seek(offset + length // 2)
            data.write(bytes([byte ^ 1]))
    return damage(directory, change)


def cut(directory, position):
    """All from the last byte of a block on is gone: the file lacks what was preallocated behind it, too."""
    return damage(directory, lambda path: os.truncate(path, sum(payload(directory, position)) - 1))


def adapter(folder, paths):
    directory = folder / "store"
    store = "dram:256M,disk:%s:1G" % directory
    more = ["-n", "1", "--raw"]
    rows = {}

    def row(name, path, where=store):
        done = answer(where, path, *more)
        rows[name] = (done["ttft_s"], done["restored_tokens"])
        return done

    row("cold", paths[0])
    limits = json.loads(output(LIMITS, LIBRARY, MODEL, store, paths[0], "--raw"))
    rows["again, in memory"] = (limits["memory_s"], limits["restored_tokens"])
    other = json.loads(output(LIMITS, LIBRARY, MODEL, store, paths[1], "--raw"))
    rows["another end, in memory"] = (other["memory_s"], other["restored_tokens"])
    row("after a restart", paths[0])
    row("another end, after a restart", paths[1])
    faults = {}
    last = limits["restored_tokens"] - BLOCK
    for name, change in ("cut by one byte", cut), ("one bit flipped", flip):
        copy = change(directory, last)
        done = answer("dram:256M,disk:%s:1G" % copy, paths[0], *more)
        faults[name] = "%d tokens restored (%s), the rest computed, same token: %s" % (
            done["restored_tokens"], done["why"], "yes" if done["tokens"] == limits["tokens"] else "NO")
    kept = json.loads(output(KVONCE, "ls", directory, "--json"))["blocks"]
    return rows, faults, sum(block["bytes"] for block in kept)


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kvonce-baseline."))
    try:
        paths = prompts(folder, ENDS)
        tokens = count(folder, paths[0].read_text(), "--raw")
        print("%s, one thread, a prompt of %d tokens; seconds to the first token, tokens not computed" % (
            pathlib.Path(MODEL).stem, tokens))
        theirs, their_faults, their_bytes = stock(folder, [path.read_text() for path in paths])
        ours, our_faults, our_bytes = adapter(folder, paths)
        print("| | llama-server | kvonce |\n|---|---|---|")
        for name in theirs:
            print("| %s | %.2f s, %d | %s |"
                  % (name, *theirs[name], "%.2f s, %d" % ours[name]))
        print("| bytes kept | %.1f MB of one prompt | %.1f MB of both |" % (their_bytes / 1e6, our_bytes / 1e6))
        for name in their_faults:
            print("| file %s | %s | %s |" % (name, their_faults[name], our_faults[name]))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
