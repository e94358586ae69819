/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store for audit_test.py: seeded puts, gets, rewrites, removes, changes of tenants and, on media, flipped bytes.
 *
 *     audit_store TIERS SEED STEPS mover|stepped [for-ever]
 *
 * Prints how often each happened; for-ever: says "open" and goes on until it is killed.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kvonce.h"

enum { NAMES = 150, BYTES_MAX = 20000 };

static kvo_store *store;
static kvo_space space;
static uint64_t state;
static unsigned flips;
static uint8_t memory[BYTES_MAX];

static void must(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "audit_store: %s\n", what);
        exit(1);
    }
}

static uint32_t draw(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

static kvo_names name_of(uint32_t number)
{
    static uint8_t name[16];
    memset(name, 0, sizeof name);
    name[0] = 1;
    memcpy(name + 4, &number, sizeof number);
    return (kvo_names){.first = name, .name_bytes = sizeof name, .count = 1, .space = space};
}

static void put(uint32_t number, int again)
{
    kvo_names names = name_of(number);
    kvo_segment segment = {memory, 1 + draw(BYTES_MAX)};
    kvo_memory m = {&segment, NULL};
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_answer answer;
    memset(memory, (int)draw(256), segment.bytes);
    o.policy.tenant = (uint16_t)draw(5);
    o.level = draw(4) == 0 ? KVO_WRITTEN : KVO_SEALED;
    must((again ? kvo_rewrite(store, &names, &m, 0, &o, &answer) : kvo_put(store, &names, &m, &o, &answer)) == KVO_OK,
         "put");
}

static kvo_answer look(uint32_t number)
{
    kvo_names names = name_of(number);
    kvo_answer answer;
    must(kvo_exists(store, &names, &answer) == KVO_OK, "exists");
    return answer;
}

static void get(uint32_t number)
{
    kvo_names names = name_of(number);
    kvo_segment segment = {memory, look(number).payload_bytes};
    kvo_memory m = {&segment, NULL};
    kvo_answer answer;
    if (segment.bytes != 0)
        must(kvo_get(store, &names, &m, NULL, &answer) == KVO_OK, "get");
}

static void flip(uint32_t number)
{
    kvo_answer answer = look(number);
    kvo_target target = {.by = KVO_BY_HANDLES, .handles = &answer.handle, .handle_count = 1};
    kvo_block_info info;
    kvo_tier_stat tier;
    uint64_t cursor = 0;
    size_t count = 0;
    char path[300];
    uint8_t byte = 0;
    if (answer.status != KVO_OK || kvo_walk(store, &target, &cursor, &info, 1, &count) != KVO_OK || count != 1 ||
        kvo_stat_tier(store, info.copies[0].tier, &tier) != KVO_OK || tier.path[0] == 0)
        return;
    snprintf(path, sizeof path, "%s/data", tier.path);
    int file = open(path, O_RDWR | O_CLOEXEC);
    off_t at = (off_t)info.copies[0].offset_bytes + 4096;
    must(file >= 0 && pread(file, &byte, 1, at) == 1, path);
    byte ^= 1;
    must(pwrite(file, &byte, 1, at) == 1, path);
    close(file);
    flips++;
}

/* A byte of a copy that will be read: it is from below, or the block is gone. Held meanwhile, or a mover may give the
   slot to another block. */
static void flip_and_get(uint32_t number)
{
    kvo_names names = name_of(number);
    uint64_t held = 0;
    kvo_answer answer;
    must(kvo_hold(store, &names, KVO_FOREVER, &held, &answer) == KVO_OK, "hold");
    flip(number);
    must(held == 0 || kvo_release(store, held) == KVO_OK, "release");
    get(number);
}

static void step(void)
{
    uint32_t number = draw(NAMES);
    kvo_names names = name_of(number);
    kvo_target target = {.by = KVO_BY_NAMES, .names = names};
    kvo_policy policy = KVO_POLICY_INIT;
    kvo_answer answer;
    switch (draw(20)) {
    case 0:
    case 1:
        put(number, 1);
        break;
    case 2:
        must(kvo_remove(store, &target, draw(2) ? KVO_WRITTEN : KVO_SAFE, KVO_FOREVER, &answer, NULL) >= 0, "remove");
        break;
    case 3:
        policy.tenant = (uint16_t)draw(5);
        must(kvo_policy_set(store, &target, &policy, KVO_POLICY_TENANT, &answer, NULL) >= 0, "policy");
        break;
    case 4:
        flip_and_get(number);
        break;
    default:
        if (draw(2))
            put(number, 0);
        else
            get(number);
    }
}

static void open_all(const char *tiers, int mover)
{
    kvo_options options = KVO_OPTIONS_INIT;
    kvo_space_config config = KVO_SPACE_CONFIG_INIT;
    kvo_error error = {""};
    options.block_bytes = BYTES_MAX;
    options.write_out_ns = 20000000;
    options.flags = mover ? 0 : KVO_OPEN_STEPPED;
    config.label = "audit";
    config.model = "test";
    config.block_bytes_max = BYTES_MAX;
    must(kvo_open(tiers, &options, &store, &error) == KVO_OK, error.text);
    must(kvo_space_open(store, &config, &space, &error) == KVO_OK, error.text);
}

int main(int argc, char **argv)
{
    must(argc >= 5, "audit_store TIERS SEED STEPS mover|stepped [for-ever]");
    state = strtoull(argv[2], NULL, 10);
    open_all(argv[1], strcmp(argv[4], "mover") == 0);
    if (argc > 5 && (puts("open"), fflush(stdout) != 0))
        return 1;
    for (uint64_t i = 0, steps = strtoull(argv[3], NULL, 10); i < steps || argc > 5; i++)
        step();
    kvo_stat stat = KVO_STAT_INIT;
    uint64_t repaired = 0, evicted = 0;
    must(kvo_stat_store(store, &stat) == KVO_OK, "stat");
    for (uint32_t i = 0; i < stat.present_tier_count; i++) {
        kvo_tier_stat tier;
        must(kvo_stat_tier(store, i, &tier) == KVO_OK, "stat");
        repaired += tier.repair_bytes;
        evicted += tier.clean_discards + tier.other_evictions;
    }
    printf("{\"flips\": %u, \"rewrites\": %llu, \"removes\": %llu, \"repair_bytes\": %llu, \"evicted\": %llu}\n", flips,
           (unsigned long long)stat.rewrites, (unsigned long long)stat.removes, (unsigned long long)repaired,
           (unsigned long long)evicted);
    int closed = kvo_close(store, KVO_FOREVER);
    must(closed == KVO_OK || closed == KVO_SHORT, "close"); /* memory may hold more than the disk takes */
    return 0;
}
