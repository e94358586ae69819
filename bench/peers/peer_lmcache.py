# SPDX-License-Identifier: Apache-2.0
"""LMCache 0.5: its memory (L1) through StorageManager, and three of its adapters (L2) by their own interface.

An adapter is driven as LMCache's own benchmark does: submit, wait for the event descriptor, fetch the result. A
get is a look-up and a load. The blocks lie where L1 would have them: no copy into or out of L1 is counted.
"""

import os
import select
import sys

import serve
from serve import ERROR, FOUND, MISS, GiveUp, libc

os.environ.setdefault("LMCACHE_LOG_LEVEL", "ERROR")

sys.setdlopenflags(os.RTLD_LAZY)  # see stand_ins.py

import torch  # noqa: E402
from lmcache.v1.distributed import config as lm_config  # noqa: E402
from lmcache.v1.distributed.api import GroupedObjectKeys, MemoryLayoutDesc, ObjectKey, PrefetchTaskSpec  # noqa: E402
from lmcache.v1.distributed.internal_api import L1MemoryDesc  # noqa: E402
from lmcache.v1.distributed.l2_adapters import create_l2_adapter  # noqa: E402
from lmcache.v1.distributed.l2_adapters import config as lm_l2  # noqa: E402
from lmcache.v1.distributed.storage_manager import StorageManager  # noqa: E402
from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj  # noqa: E402

SECONDS = 60


def key(number):
    return ObjectKey(chunk_hash=number.to_bytes(32, "big"), model_name="peers", kv_rank=0)


def layout(size):
    return MemoryLayoutDesc(shapes=[torch.Size([size])], dtypes=[torch.uint8])


def objects(memory, size, count):
    """LMCache's objects over memory that is there already."""
    flat = torch.frombuffer(memory.map, dtype=torch.uint8)
    return [
        TensorMemoryObj(
            flat[i * size : (i + 1) * size],
            MemoryObjMetadata(
                shape=torch.Size([size]),
                dtype=torch.uint8,
                address=i * size,
                phy_size=size,
                ref_count=1,
                fmt=MemoryFormat.KV_2LTD,
            ),
            None,
        )
        for i in range(count)
    ]


class Adapter:
    persistent = alone = True

    def __init__(self, directory, size, count, source, window):
        self.keys = [key(i) for i in range(count)]
        self.source = objects(source, size, count)
        self.window = objects(window, size, window.size // size)
        arena = L1MemoryDesc(ptr=source.address, size=source.size, align_bytes=4096)
        self.adapter = create_l2_adapter(self.config(directory, size, count), arena)
        self.lookup_layout = {0: layout(size)}

    def wait(self, descriptor, fetch):
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        while True:
            if not poller.poll(SECONDS * 1000):
                raise GiveUp("no answer within %d s" % SECONDS)
            os.read(descriptor, 8)
            result = fetch()
            if result is not None:
                return result

    def put(self, first, n):
        task = self.adapter.submit_store_task(self.keys[first : first + n], self.source[first : first + n])
        done = self.wait(self.adapter.get_store_event_fd(), lambda: self.adapter.pop_completed_store_tasks().get(task))
        if not done.is_successful():
            raise GiveUp("a put failed")

    def get(self, first, n):
        keys, into = self.keys[first : first + n], self.window[:n]
        task = self.adapter.submit_lookup_and_lock_task(keys, self.lookup_layout)
        found = self.wait(
            self.adapter.get_lookup_and_lock_event_fd(), lambda: self.adapter.query_lookup_and_lock_result(task)
        )
        task = self.adapter.submit_load_task(keys, into)
        loaded = self.wait(self.adapter.get_load_event_fd(), lambda: self.adapter.query_load_result(task))
        self.adapter.submit_unlock(keys)
        return [MISS if not found.test(i) else FOUND if loaded.test(i) else ERROR for i in range(n)]

    def close(self):
        self.adapter.close()

    def made(self, kind, **options):
        return lm_l2.get_l2_adapter_config_class(kind).from_dict({"type": kind, **options})


class Fs(Adapter):
    name = "LMCache fs"
    durability = (
        "the page cache, a file a block, renamed into place; no call waits for the disk; sync: the benchmark's syncfs"
    )
    checks = "the length"

    def config(self, directory, size, count):
        return self.made("fs", base_path=directory)


class FsNative(Adapter):
    name = "LMCache fs_native"
    durability = Fs.durability
    checks = "the length"

    def config(self, directory, size, count):
        return self.made("fs_native", base_path=directory)


class RawBlock(Adapter):
    name = "LMCache raw_block"
    durability = (
        "a file that is there before, O_DIRECT on the disk; its index is written when it is closed "
        "or idle; no call waits for the disk; sync: the benchmark's syncfs"
    )
    checks = "nothing of the payload"

    def config(self, directory, size, count):
        path, slot, index = os.path.join(directory, "blocks"), size + 4096, 64 << 20
        if not os.path.exists(path):  # what is there is taken as it is
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            os.posix_fallocate(file, 0, index + (count + 8) * slot)
            os.close(file)
        return self.made(
            "raw_block",
            device_path=path,
            slot_bytes=slot,
            meta_total_bytes=index,
            use_odirect=not serve.is_tmpfs(directory),
        )


class L1:
    name = "LMCache L1"
    durability = "nothing: gone with the process"
    checks = "nothing"
    persistent = False
    alone = True

    def __init__(self, directory, size, count, source, window):
        gigabytes = (source.size + (64 << 20)) / 2**30
        self.manager = StorageManager(
            lm_config.parse_args(["--l1-size-gb", str(gigabytes), "--no-l1-use-lazy", "--eviction-policy", "noop"])
        )
        self.keys, self.layout, self.size = [key(i) for i in range(count)], layout(size), size
        self.source, self.window = source, window

    def put(self, first, n):
        keys = self.keys[first : first + n]
        reserved = self.manager.reserve_write(keys, self.layout)
        if len(reserved) != n:
            raise GiveUp("a put failed")
        for i, one in enumerate(keys):
            libc.memcpy(reserved[one].data_ptr, self.source.address + (first + i) * self.size, self.size)
        self.manager.finish_write(keys)

    def get(self, first, n):
        keys = self.keys[first : first + n]
        handle = self.manager.submit_prefetch_task(PrefetchTaskSpec([GroupedObjectKeys(keys, 0, self.layout)]))
        if not self.manager.wait_prefetch_status(handle, SECONDS):
            raise GiveUp("no answer within %d s" % SECONDS)
        result = self.manager.query_prefetch_status(handle)
        if sum(row.popcount() for row in result.hit_cells) != n:
            return [MISS] * n
        with self.manager.read_prefetched_results(keys) as blocks:
            if blocks is None:
                return [MISS] * n
            for i, block in enumerate(blocks):
                libc.memcpy(self.window.address + i * self.size, block.data_ptr, self.size)
        self.manager.finish_read_prefetched(keys)
        return [FOUND] * n

    def empty(self):
        self.manager.delete_l1_keys(self.keys)

    def close(self):
        self.manager.close()


if __name__ == "__main__":
    serve.serve([L1, Fs, FsNative, RawBlock])
