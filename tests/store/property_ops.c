/* SPDX-License-Identifier: Apache-2.0 */
#include "property.h"

#include <stdio.h>
#include <stdlib.h>

property_name property_names[PROPERTY_NAMES];
uint64_t property_seed;
bool property_disk;

enum { BATCH = 8 };

void property_fail(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: %s (KVO_TEST_SEED=%llu)\n", file, line, what, (unsigned long long)property_seed);
    abort();
}

uint32_t property_draw(property_thread *t, uint32_t limit)
{
    t->random = t->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(t->random >> 33) % limit;
}

size_t property_length(uint64_t number, uint32_t version)
{
    static const size_t lengths[] = {65536, 1, 65536, 4096, 4097, 30000, 65536, 12000};
    return lengths[(number * 3 + version) % 8];
}

uint64_t property_own(property_thread *t)
{
    return (uint64_t)property_draw(t, PROPERTY_NAMES / t->count) * t->count + t->number;
}

/* Some names more often than others. */
uint64_t property_any(property_thread *t)
{
    return property_draw(t, 2) ? property_draw(t, PROPERTY_NAMES) : property_draw(t, PROPERTY_NAMES / 8);
}

uint32_t property_version(const void *bytes, size_t length, uint64_t number, uint32_t floor, uint32_t newest)
{
    for (uint32_t v = newest; v >= floor && v + 1 > 0; v--)
        if (property_length(number, v) == length && payload_is(bytes, length, number, v))
            return v;
    fprintf(stderr, "name %llu: none of versions %u .. %u\n", (unsigned long long)number, floor, newest);
    property_fail(__FILE__, __LINE__, "the bytes are of no version that may be served");
}

static uint64_t some_deadline(property_thread *t) { return property_draw(t, 3) ? property_draw(t, 3) * 1000000u : 0; }

static kvo_target by_name(uint64_t number)
{
    return target_of(number, 1);
}

/* ---- writing ---- */

static kvo_put_options some_options(property_thread *t, uint64_t number)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    static _Thread_local uint8_t parent[NAME_BYTES];
    o.level = property_disk && property_draw(t, 4) == 0 ? KVO_WRITTEN + (int)property_draw(t, 2) : KVO_SEALED;
    o.deadline_ns = some_deadline(t);
    o.policy.tenant = (uint16_t)property_draw(t, 5);
    o.policy.priority = (uint8_t)(40 + property_draw(t, 20));
    o.sequence = number / 16;
    o.position = (uint32_t)(number % 16) * 16;
    if (number % 16) {
        name_of(number - 1, parent);
        o.parents = parent;
    }
    return o;
}

/* The version to put: the one that is there, or a new one. */
static uint32_t next_version(uint64_t number)
{
    property_name *n = &property_names[number];
    if (exists(number, NULL) == KVO_MISS)
        n->newest++;
    return n->newest;
}

static void op_put(property_thread *t)
{
    uint64_t number = property_own(t);
    uint32_t version = next_version(number);
    size_t length = property_length(number, version);
    kvo_put_options o = some_options(t, number);
    kvo_answer a;
    kvo_names names = names_of(number, 1);
    size_t cut = property_draw(t, (uint32_t)length + 1);
    kvo_segment segments[3] = {{t->memory, cut}, {NULL, 0}, {t->memory + cut, length - cut}};
    uint32_t count = 3;
    kvo_memory memory = {segments, &count};
    payload_make(t->memory, length, number, version);
    MUST(kvo_put(store, &names, &memory, &o, &a) == KVO_OK);
    MUST(a.status == KVO_STORED || a.status == KVO_EXISTS || a.status == KVO_BUSY || a.status == KVO_FULL ||
         a.status == KVO_SHORT || a.status == KVO_SIZE);
}

static void op_rewrite(property_thread *t)
{
    uint64_t number = property_own(t);
    uint32_t version = ++property_names[number].newest;
    size_t length = property_length(number, version);
    kvo_put_options o = some_options(t, number);
    kvo_answer a;
    kvo_names names = names_of(number, 1);
    kvo_segment segment = {t->memory, length};
    kvo_memory memory = {&segment, NULL};
    payload_make(t->memory, length, number, version);
    MUST(kvo_rewrite(store, &names, &memory, property_draw(t, 16), &o, &a) == KVO_OK);
    MUST(a.status == KVO_STORED || a.status == KVO_MISS || a.status == KVO_BUSY || a.status == KVO_FULL ||
         a.status == KVO_SHORT);
    if (a.status == KVO_STORED)
        property_names[number].floor = version;
}

static void op_remove(property_thread *t)
{
    uint64_t number = property_own(t), removed = 0;
    uint32_t newest = property_names[number].newest;
    kvo_answer a;
    kvo_target target = by_name(number);
    int r = kvo_remove(store, &target, KVO_SEALED + (int)property_draw(t, 3), some_deadline(t), &a, &removed);
    MUST(r == KVO_OK || r == KVO_SHORT || r == KVO_BUSY);
    MUST(removed == (a.status == KVO_OK) || a.status == KVO_SHORT);
    if (a.status == KVO_OK || a.status == KVO_MISS) {
        property_names[number].floor = newest + 1;
        MUST(exists(number, NULL) == KVO_MISS);
    }
}

static void op_remove_many(property_thread *t)
{
    kvo_target target = {.by = property_draw(t, 2) ? KVO_BY_TENANT : KVO_BY_SEQUENCE};
    uint64_t removed;
    target.tenant = property_draw(t, 5);
    target.sequence = property_draw(t, PROPERTY_NAMES / 16);
    int r = kvo_remove(store, &target, KVO_SEALED, some_deadline(t), NULL, &removed);
    MUST(r == KVO_OK || r == KVO_BUSY || r == KVO_SHORT);
}

static void op_reserve(property_thread *t)
{
    uint64_t number = property_own(t);
    uint32_t version = next_version(number), length = (uint32_t)property_length(number, version);
    kvo_put_options o = some_options(t, number);
    kvo_reservation r;
    kvo_answer a;
    kvo_names names = names_of(number, 1);
    MUST(kvo_reserve(store, &names, &length, &o, &r, &a) == KVO_OK);
    if (a.status != KVO_OK)
        return;
    payload_make(t->memory, length, number, version);
    MUST(kvo_fill(store, &r, 0, t->memory, length) == KVO_OK);
    if (property_draw(t, 3) == 0) {
        MUST(kvo_abort(store, &r, 1, &a) == KVO_OK && a.status == KVO_OK);
    } else {
        MUST(kvo_seal(store, &r, 1, KVO_SEALED, 0, &a) == KVO_OK && a.status == KVO_STORED);
    }
    MUST(kvo_seal(store, &r, 1, KVO_SEALED, 0, &a) == KVO_OK && a.status == KVO_GONE);
}

/* ---- reading ---- */

static void op_get(property_thread *t)
{
    uint64_t first = property_any(t) / BATCH * BATCH;
    uint32_t floors[BATCH];
    kvo_answer found[BATCH], a[BATCH];
    kvo_segment segments[BATCH];
    kvo_names names = names_of(first, BATCH);
    kvo_memory memory = {segments, NULL};
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    o.deadline_ns = some_deadline(t);
    o.no_promote = property_draw(t, 4) == 0;
    for (size_t i = 0; i < BATCH; i++)
        floors[i] = property_names[first + i].floor;
    MUST(kvo_exists(store, &names, found) == KVO_OK);
    for (size_t i = 0; i < BATCH; i++)
        segments[i] = (kvo_segment){t->memory + i * PROPERTY_BYTES_MAX,
                                    found[i].status == KVO_OK ? found[i].payload_bytes : 1};
    MUST(kvo_get(store, &names, &memory, &o, a) == KVO_OK);
    for (size_t i = 0; i < BATCH; i++) {
        MUST(a[i].status == KVO_OK || a[i].status == KVO_MISS || a[i].status == KVO_SIZE || a[i].status == KVO_BUSY);
        if (a[i].status == KVO_OK)
            property_version(segments[i].base, segments[i].bytes, first + i, floors[i],
                             property_names[first + i].newest);
    }
}

static void unpin(property_pin *p)
{
    if (p->pin.token == 0)
        return;
    MUST(property_version(p->pin.memory, p->pin.payload_bytes, p->number, p->version, p->version) == p->version);
    kvo_pin copy = p->pin;
    MUST(kvo_unpin(store, &p->pin, 1) == KVO_OK && p->pin.token == 0);
    MUST(kvo_unpin(store, &copy, 1) == KVO_GONE);
}

static void op_pin(property_thread *t)
{
    property_pin *p = &t->pins[property_draw(t, PROPERTY_PINS)];
    kvo_answer a;
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    unpin(p);
    p->number = property_any(t);
    uint32_t floor = property_names[p->number].floor;
    o.deadline_ns = some_deadline(t);
    kvo_names names = names_of(p->number, 1);
    int r = kvo_pin_blocks(store, &names, &o, &p->pin, &a);
    if (r == KVO_E_UNSUPPORTED)
        return;
    MUST(r == KVO_OK && (a.status == KVO_OK) == (p->pin.token != 0));
    if (p->pin.token)
        p->version = property_version(p->pin.memory, p->pin.payload_bytes, p->number, floor,
                                      property_names[p->number].newest);
}

static void op_match(property_thread *t)
{
    uint64_t first = property_any(t) / 16 * 16;
    kvo_answer a[16];
    size_t matched;
    kvo_names names = names_of(first, 16);
    MUST(kvo_match(store, &names, a, &matched) == KVO_OK && matched <= 16);
    for (size_t i = 0; i < 16; i++)
        MUST((a[i].status == KVO_OK) == (i < matched));
    kvo_target target = target_of(first, 16);
    MUST(kvo_touch(store, &target, property_draw(t, 2) ? a : NULL) == KVO_OK);
}

/* ---- control ---- */

static void op_policy(property_thread *t)
{
    kvo_policy p = {.tenant = (uint16_t)property_draw(t, 5), .qos = (uint8_t)property_draw(t, 4)};
    kvo_target target = target_of(property_any(t) / 4 * 4, 4);
    kvo_answer a[4];
    uint64_t changed;
    p.priority = (uint8_t)property_draw(t, 101);
    p.reuse = (uint8_t)property_draw(t, 101);
    p.intent = (uint8_t)property_draw(t, 5);
    p.intent_ns = property_draw(t, 2) * 1000000000ull;
    if (property_draw(t, 3) == 0)
        target.by = KVO_BY_SEQUENCE + (int)property_draw(t, 4);
    target.space = space;
    target.tenant = property_draw(t, 5);
    target.sequence = property_draw(t, PROPERTY_NAMES / 16);
    uint32_t mask = property_draw(t, 32);
    if (target.by > KVO_BY_TENANT)
        mask &= ~(uint32_t)KVO_POLICY_INTENT; /* not all blocks at once to be dropped */
    MUST(kvo_policy_set(store, &target, &p, mask, a, &changed) == KVO_OK);
    kvo_policy got[4];
    target.by = KVO_BY_NAMES;
    MUST(kvo_policy_get(store, &target, got, a) == KVO_OK);
    for (size_t i = 0; i < 4; i++)
        MUST(got[i].qos <= 3 && got[i].priority <= 100 && got[i].reuse <= 100 && got[i].tenant < 5);
}

static void op_hold(property_thread *t)
{
    kvo_answer a[4];
    if (t->hold)
        kvo_release(store, t->hold);
    kvo_names names = names_of(property_any(t) / 4 * 4, 4);
    MUST(kvo_hold(store, &names, 1 + property_draw(t, 5000000), &t->hold, a) == KVO_OK);
}

static void op_sync(property_thread *t)
{
    kvo_target target = target_of(property_any(t) / 4 * 4, 4);
    kvo_answer a[4];
    int r = kvo_sync(store, &target, KVO_WRITTEN + (int)property_draw(t, 2), some_deadline(t), a);
    MUST(r == KVO_OK || r == KVO_SHORT || r == KVO_E_UNSUPPORTED);
    for (size_t i = 0; i < 4 && r == KVO_OK; i++)
        MUST(a[i].status == KVO_OK || a[i].status == KVO_MISS || a[i].status == KVO_PENDING ||
             a[i].status == KVO_GONE);
}

static void op_look(property_thread *t)
{
    kvo_block_info infos[5];
    kvo_ledger_row rows[8];
    kvo_tenant_stat tenants[4];
    kvo_space_stat spaces[2];
    uint64_t cursor = 0;
    size_t count = 1, listed = 0;
    while (count > 0) {
        MUST(kvo_walk(store, NULL, &cursor, infos, 5, &count) == KVO_OK && count <= 5);
        for (size_t i = 0; i < count; i++)
            MUST(infos[i].copy_count >= 1 && infos[i].delta[1] <= 1 && infos[i].name_bytes == NAME_BYTES);
        listed += count;
    }
    MUST(listed <= PROPERTY_NAMES * 2);
    MUST(kvo_ledger(store, rows, 8, &count) == KVO_OK);
    MUST(kvo_stat_tenants(store, tenants, 4, &count) == KVO_OK && count <= 5);
    MUST(kvo_stat_spaces(store, spaces, 2, &count) == KVO_OK && count == 1);
    if (property_draw(t, 4) == 0)
        MUST(kvo_write_out(store) == KVO_OK);
}

void property_let_go(property_thread *t)
{
    for (size_t i = 0; i < PROPERTY_PINS; i++)
        unpin(&t->pins[i]);
    if (t->hold)
        kvo_release(store, t->hold);
    t->hold = 0;
}

void property_step(property_thread *t)
{
    static const struct {
        void (*run)(property_thread *t);
        uint32_t weight;
        const char *name;
    } ops[] = {{op_put, 30, "put"},       {op_get, 20, "get"},         {op_rewrite, 4, "rewrite"},
               {op_remove, 5, "remove"},  {op_reserve, 8, "reserve"},  {op_pin, 8, "pin"},
               {op_match, 6, "match"},    {op_policy, 6, "policy"},    {op_hold, 4, "hold"},
               {op_sync, 3, "sync"},      {op_look, 2, "look"},        {op_remove_many, 1, "remove_many"}};
    uint32_t at = property_draw(t, 97);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        if (at < ops[i].weight) {
            snprintf(t->doing, sizeof t->doing, "%s", ops[i].name);
            ops[i].run(t);
            return;
        }
        at -= ops[i].weight;
    }
}
