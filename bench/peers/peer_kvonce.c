/* SPDX-License-Identifier: Apache-2.0 */
/* kvonce: a disk tier alone, by the engine that it chooses and by threads; memory alone; memory above a disk. */
#include "peer.h"

#include <kvonce.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct ours {
    kvo_store *store;
    kvo_space space;
    int level;
} ours;

enum { MEMORY = 1, DISK = 2, THREADS = 4 };

static void *open_tiers(const peer_place *place, int tiers_wanted, char error[256])
{
    kvo_tier_config tiers[2] = {KVO_TIER_CONFIG_INIT, KVO_TIER_CONFIG_INIT};
    uint32_t count = 0;
    ours *o = calloc(1, sizeof *o);
    kvo_options options = KVO_OPTIONS_INIT;
    kvo_space_config config = KVO_SPACE_CONFIG_INIT;
    kvo_error why = {{0}};
    if ((tiers_wanted & MEMORY) != 0) {
        tiers[count].kind = KVO_TIER_DRAM;
        tiers[count++].capacity_blocks = place->blocks + 8;
    }
    if ((tiers_wanted & DISK) != 0) {
        tiers[count].kind = KVO_TIER_DISK;
        tiers[count].path = place->directory;
        tiers[count++].capacity_blocks = place->blocks + 8;
    }
    options.block_bytes = place->block_bytes;
    options.io_engine = (tiers_wanted & THREADS) != 0 ? KVO_IO_THREADS : KVO_IO_AUTO;
    o->level = (tiers_wanted & MEMORY) != 0 ? KVO_SEALED : KVO_WRITTEN;
    config.label = "peers";
    config.model = "peers";
    config.block_positions = 16;
    config.block_bytes_max = place->block_bytes;
    if (kvo_open_tiers(tiers, count, &options, &o->store, &why) != KVO_OK ||
        kvo_space_open(o->store, &config, &o->space, &why) != KVO_OK) {
        (void)snprintf(error, 256, "%.250s", why.text);
        (void)kvo_close(o->store, 0);
        free(o);
        return NULL;
    }
    return o;
}

static void *disk_open(const peer_place *place, char error[256])
{
    return open_tiers(place, DISK, error);
}

static void *threads_open(const peer_place *place, char error[256])
{
    return open_tiers(place, DISK | THREADS, error);
}

static void *memory_open(const peer_place *place, char error[256])
{
    return open_tiers(place, MEMORY, error);
}

static void *both_open(const peer_place *place, char error[256])
{
    return open_tiers(place, MEMORY | DISK, error);
}

static void ours_close(void *peer)
{
    ours *o = peer;
    (void)kvo_close(o->store, KVO_FOREVER);
    free(o);
}

static kvo_names names_of(const ours *o, const uint8_t *keys, size_t count)
{
    return (kvo_names){.first = keys, .name_bytes = PEER_KEY, .count = count, .space = o->space};
}

static int ours_put(void *peer, const uint8_t *keys, const void *const *blocks, size_t count, size_t bytes)
{
    ours *o = peer;
    kvo_segment segments[PEER_BATCH];
    kvo_answer answers[PEER_BATCH];
    kvo_put_options options = KVO_PUT_OPTIONS_INIT;
    kvo_memory memory = {segments, NULL};
    options.level = o->level;
    for (size_t i = 0; i < count; i++) {
        segments[i] = (kvo_segment){(void *)(uintptr_t)blocks[i], bytes};
    }
    kvo_names names = names_of(o, keys, count);
    int status = kvo_put(o->store, &names, &memory, &options, answers);
    for (size_t i = 0; status == KVO_OK && i < count; i++) {
        status = answers[i].status == KVO_STORED ? KVO_OK : KVO_BUSY;
    }
    return status == KVO_OK ? 0 : -1;
}

static int ours_sync(void *peer)
{
    const kvo_target all = {.by = KVO_BY_ALL};
    return kvo_sync(((ours *)peer)->store, &all, KVO_SAFE, KVO_FOREVER, NULL) == KVO_OK ? 0 : -1;
}

static void ours_get(void *peer, const uint8_t *keys, void *const *blocks, size_t count, size_t bytes,
                     int *results)
{
    ours *o = peer;
    kvo_segment segments[PEER_BATCH];
    kvo_answer answers[PEER_BATCH];
    kvo_memory memory = {segments, NULL};
    for (size_t i = 0; i < count; i++) {
        segments[i] = (kvo_segment){blocks[i], bytes};
    }
    kvo_names names = names_of(o, keys, count);
    int status = kvo_get(o->store, &names, &memory, NULL, answers);
    for (size_t i = 0; i < count; i++) {
        results[i] = status != KVO_OK                ? PEER_ERROR
                     : answers[i].status == KVO_OK   ? PEER_FOUND
                     : answers[i].status == KVO_MISS ? PEER_MISS
                                                     : PEER_ERROR;
    }
}

static int ours_empty(void *peer)
{
    const kvo_target all = {.by = KVO_BY_ALL};
    return kvo_remove(((ours *)peer)->store, &all, KVO_SEALED, KVO_FOREVER, NULL, NULL) == KVO_OK ? 0 : -1;
}

const peer_ops peer_kvonce_disk = {.name = "kvonce, disk",
                                   .durability =
                                       "the disk tier's file, which survives the process; sync: flushed",
                                   .checks = "name, generation and a digest of every byte",
                                   .persistent = 1,
                                   .open = disk_open,
                                   .close = ours_close,
                                   .put = ours_put,
                                   .sync = ours_sync,
                                   .get = ours_get};
const peer_ops peer_kvonce_threads = {.name = "kvonce, disk by threads",
                                      .durability = "as kvonce, disk",
                                      .checks = "name, generation and a digest of every byte",
                                      .persistent = 1,
                                      .open = threads_open,
                                      .close = ours_close,
                                      .put = ours_put,
                                      .sync = ours_sync,
                                      .get = ours_get};
const peer_ops peer_kvonce_memory = {.name = "kvonce, memory",
                                     .durability = "nothing: gone with the process",
                                     .checks = "name, generation and a digest of every byte",
                                     .open = memory_open,
                                     .close = ours_close,
                                     .put = ours_put,
                                     .get = ours_get,
                                     .empty = ours_empty};
const peer_ops peer_kvonce_both = {
    .name = "kvonce, memory above disk",
    .durability = "memory, written below before room is needed; sync: written and flushed",
    .checks = "name, generation and a digest of every byte",
    .persistent = 1,
    .open = both_open,
    .close = ours_close,
    .put = ours_put,
    .sync = ours_sync,
    .get = ours_get,
    .empty = ours_empty};
