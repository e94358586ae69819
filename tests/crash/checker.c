/* SPDX-License-Identifier: Apache-2.0 */
/* The process that looks at what a killed one left: every byte, every policy, and what may not be there. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "life.h"

typedef struct checker {
    const life *life;
    kvo_store *store;
    kvo_space space;
    uint64_t found;
    uint8_t bytes[KNOWN_PAYLOAD_MAX];
} checker;

static kvo_names name_of(const checker *c, uint64_t number, uint8_t name[KNOWN_NAME_BYTES])
{
    known_name_of(number, name);
    return (kvo_names){.first = name, .name_bytes = KNOWN_NAME_BYTES, .count = 1, .space = c->space};
}

static kvo_answer look(const checker *c, uint64_t number)
{
    kvo_answer answer;
    uint8_t name[KNOWN_NAME_BYTES];
    kvo_names names = name_of(c, number, name);
    kvo_exists(c->store, &names, &answer);
    return answer;
}

/* ---- a name that is not there ---- */

static void check_missing(checker *c, uint64_t number, bool evicted)
{
    known_name *n = &c->life->known->names[number];
    if (!n->may_miss && !evicted) {
        c->life->known->lost++;
        known_say(c->life->known, __LINE__, "name %llu is gone: version %u was stored", (unsigned long long)number,
                  n->oldest);
    }
    /* No slot holds it, whatever was evicted before. */
    n->oldest = n->floor = n->newest + 1;
    n->may_miss = 1;
    n->current = 0;
}

/* ---- one that is ---- */

/* The version that these bytes are; 0: none of those that may be here. */
static uint32_t version_of(const checker *c, uint64_t number, uint32_t bytes, bool evicted)
{
    const known_name *n = &c->life->known->names[number];
    for (uint32_t v = n->newest, last = evicted ? n->floor : n->oldest; v >= last && v > 0; v--)
        if (known_length(number, v) == bytes && known_payload_is(c->bytes, bytes, number, v))
            return v;
    return 0;
}

/* What it is instead. */
static void bytes_are_wrong(const checker *c, uint64_t number, uint32_t bytes)
{
    known *k = c->life->known;
    const known_name *n = &k->names[number];
    for (uint32_t v = 1; v <= n->versions; v++) {
        if (known_length(number, v) != bytes || !known_payload_is(c->bytes, bytes, number, v))
            continue;
        k->returned++;
        known_say(k, __LINE__, "name %llu: version %u came back; it may be %u to %u, not before %u",
                  (unsigned long long)number, v, n->oldest, n->newest, n->floor);
        return;
    }
    k->wrong_bytes++;
    known_say(k, __LINE__, "name %llu: %u bytes that are none of its versions", (unsigned long long)number, bytes);
}

static void check_policy(checker *c, uint64_t number, uint8_t *name, bool evicted)
{
    known *k = c->life->known;
    known_name *n = &k->names[number];
    kvo_policy policy;
    kvo_answer answer;
    kvo_target target = {.by = KVO_BY_NAMES, .names = name_of(c, number, name)};
    kvo_policy_get(c->store, &target, &policy, &answer);
    uint32_t p = n->policy_newest, last = evicted ? 1 : n->policy_oldest;
    while (p >= last && p > 0 && !known_policy_is(&policy, p))
        p--;
    if (p < last || p == 0)
        known_say(k, __LINE__, "name %llu: tenant %u qos %u priority %u reuse %u is none of policies %u to %u",
                  (unsigned long long)number, policy.tenant, policy.qos, policy.priority, policy.reuse, last,
                  n->policy_newest);
    k->policies++;
    n->policy_oldest = n->policy_newest = p;
    n->policy_unsure = 0;
}

static void check_found(checker *c, uint64_t number, uint32_t bytes, bool evicted)
{
    known *k = c->life->known;
    known_name *n = &k->names[number];
    uint8_t name[KNOWN_NAME_BYTES];
    kvo_answer answer;
    kvo_names names = name_of(c, number, name);
    kvo_segment segment = {c->bytes, bytes};
    kvo_memory memory = {&segment, NULL};
    c->found++;
    if (bytes == 0 || bytes > KNOWN_PAYLOAD_MAX) {
        bytes_are_wrong(c, number, 0);
        return;
    }
    kvo_get(c->store, &names, &memory, NULL, &answer);
    if (answer.status != KVO_OK) {
        k->lost++;
        known_say(k, __LINE__, "name %llu is there, but get answered %s", (unsigned long long)number,
                  kvo_status_name(answer.status));
        return;
    }
    uint32_t version = version_of(c, number, bytes, evicted);
    if (version == 0)
        bytes_are_wrong(c, number, bytes);
    k->verified++;
    n->oldest = n->newest = n->current = version;
    n->may_miss = 0;
    check_policy(c, number, name, evicted);
}

/* ---- all of it ---- */

static void check_names(checker *c)
{
    for (uint64_t number = 0; number < KNOWN_NAMES; number++) {
        bool evicted = atomic_exchange(&c->life->known->names[number].evicted, 0) != 0;
        kvo_answer answer = look(c, number);
        if (answer.status == KVO_OK)
            check_found(c, number, answer.payload_bytes, evicted);
        else
            check_missing(c, number, evicted);
    }
    for (uint64_t number = KNOWN_NAMES; number < KNOWN_NAMES + KNOWN_STRANGERS; number++)
        if (look(c, number).status != KVO_MISS)
            known_say(c->life->known, __LINE__, "a name that was never put exists");
}

/* What a walk finds is what the names found. */
static void check_walk(const checker *c)
{
    kvo_block_info infos[16];
    uint64_t cursor = 0, walked = 0;
    size_t count;
    while (kvo_walk(c->store, NULL, &cursor, infos, 16, &count) == KVO_OK && count)
        walked += count;
    if (walked != c->found)
        known_say(c->life->known, __LINE__, "a walk finds %llu blocks, their names %llu", (unsigned long long)walked,
                  (unsigned long long)c->found);
}

static void check_counters(const checker *c)
{
    kvo_stat stat = KVO_STAT_INIT;
    kvo_stat_store(c->store, &stat);
    if (stat.damaged_slots || stat.digest_misses)
        known_say(c->life->known, __LINE__, "%llu slots damaged, %llu digests that do not match",
                  (unsigned long long)stat.damaged_slots, (unsigned long long)stat.digest_misses);
}

static void bad_slot(void *context, const kvo_bad_slot *bad)
{
    known_say(context, __LINE__, "verify: %s at %llu: %s", bad->file, (unsigned long long)bad->offset_bytes, bad->what);
}

static void verify(const life *l)
{
    kvo_store *store;
    kvo_space space;
    kvo_verify_result result;
    if (life_open(l, KVO_OPEN_READ_ONLY, &store, &space) != KVO_OK)
        return; /* said, or killed before there was a store */
    int r = kvo_verify(store, bad_slot, l->known, &result);
    if (r != KVO_OK)
        known_say(l->known, __LINE__, "verify answered %s", kvo_status_name(r));
    kvo_close(store, KVO_FOREVER);
}

int life_check(const life *l, bool verifies, bool closes)
{
    checker *c = calloc(1, sizeof *c);
    if (c == NULL)
        return 1;
    c->life = l;
    if (verifies)
        verify(l);
    if (life_open(l, 0, &c->store, &c->space) != KVO_OK)
        return 1;
    check_names(c);
    check_walk(c);
    check_counters(c);
    if (l->keeps_all && l->known->evictions)
        known_say(l->known, __LINE__, "%llu evictions, though all has room", (unsigned long long)l->known->evictions);
    if (!closes)
        return 0;
    int r = kvo_close(c->store, KVO_FOREVER);
    if (r != KVO_OK)
        known_say(l->known, __LINE__, "close answered %s", kvo_status_name(r));
    free(c);
    return 0;
}
