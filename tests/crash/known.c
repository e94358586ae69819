/* SPDX-License-Identifier: Apache-2.0 */
#include "known.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

known *known_new(void)
{
    known *k = mmap(NULL, sizeof *k, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (k == MAP_FAILED)
        return NULL;
    for (size_t i = 0; i < KNOWN_NAMES; i++) {
        known_name *n = &k->names[i];
        n->oldest = n->floor = 1;
        n->policy_oldest = 1;
        n->may_miss = 1;
    }
    return k;
}

/* ---- bytes that follow from numbers ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

void known_name_of(uint64_t number, uint8_t name[KNOWN_NAME_BYTES])
{
    for (size_t i = 0; i < KNOWN_NAME_BYTES; i += 8) {
        uint64_t word = i ? mix(number * 8 + i) : number + 1;
        memcpy(name + i, &word, 8);
    }
}

size_t known_length(uint64_t number, uint32_t version)
{
    static const size_t lengths[] = {65536, 4096, 20000, KNOWN_PAYLOAD_MAX, 1, 60000, 5000};
    return lengths[(number + version) % (sizeof lengths / sizeof *lengths)];
}

static uint64_t stream_of(uint64_t number, uint32_t version) { return mix(number << 32 ^ version); }

static uint64_t stream_next(uint64_t *stream)
{
    return *stream = *stream * 6364136223846793005u + 1442695040888963407u;
}

void known_payload(void *out, size_t bytes, uint64_t number, uint32_t version)
{
    uint64_t stream = stream_of(number, version);
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = stream_next(&stream);
        memcpy((uint8_t *)out + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

bool known_payload_is(const void *memory, size_t bytes, uint64_t number, uint32_t version)
{
    uint64_t stream = stream_of(number, version);
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = stream_next(&stream);
        if (memcmp((const uint8_t *)memory + i, &word, bytes - i < 8 ? bytes - i : 8) != 0)
            return false;
    }
    return true;
}

kvo_policy known_policy(uint32_t policy)
{
    kvo_policy p = KVO_POLICY_INIT;
    p.tenant = (uint16_t)(policy % 61);
    p.qos = (uint8_t)(policy % 4);
    p.priority = (uint8_t)(policy % 101);
    p.reuse = (uint8_t)(policy / 101 % 101);
    return p;
}

bool known_policy_is(const kvo_policy *policy, uint32_t number)
{
    kvo_policy p = known_policy(number);
    return p.tenant == policy->tenant && p.qos == policy->qos && p.priority == policy->priority &&
           p.reuse == policy->reuse && policy->intent == KVO_INTENT_NONE;
}

uint64_t known_sequence(uint64_t number)
{
    return 1 + number % KNOWN_OWNERS + KNOWN_OWNERS * (number / KNOWN_OWNERS / KNOWN_GROUP);
}

/* ---- what the store and the test say ---- */

void known_on_event(void *context, const kvo_event *event)
{
    known *k = context;
    uint64_t number;
    /* What ends because its medium failed is no eviction: it must be there when the medium is. */
    if (event->type != KVO_EVENT_END || event->cause == KVO_CAUSE_REMOVE || event->cause == KVO_CAUSE_FAILED)
        return;
    memcpy(&number, event->name, 8);
    if (number == 0 || number > KNOWN_NAMES) {
        known_say(k, __LINE__, "an event of a name that was never put");
        return;
    }
    k->names[number - 1].evicted = 1;
    k->evictions++;
}

void known_say(known *k, uint32_t line, const char *format, ...)
{
    uint32_t none = 0;
    va_list arguments;
    if (!atomic_compare_exchange_strong(&k->wrong_line, &none, line))
        return;
    va_start(arguments, format);
    vsnprintf(k->wrong, sizeof k->wrong, format, arguments);
    va_end(arguments);
}

/* ---- one name around a call ---- */

static known_before begin(known_name *n)
{
    known_before b = {.version = ++n->versions};
    if (n->evicted) {
        n->may_miss = 1;
        n->oldest = n->floor;
        n->policy_oldest = 1;
        n->current = 0;
        n->evicted = 0;
    }
    b.newest = n->newest;
    b.may_miss = n->may_miss;
    n->newest = b.version;
    return b;
}

static void policy_begin(known_name *n, known_before *b, uint32_t policy)
{
    b->policy = policy;
    b->policy_newest = n->policy_newest;
    b->policy_unsure = n->policy_unsure;
    n->policy_unsure = 1;
    n->policy_newest = b->policy;
}

known_before known_put_begin(known_name *n, uint32_t policy)
{
    known_before b = begin(n);
    policy_begin(n, &b, policy);
    return b;
}

known_before known_rewrite_begin(known_name *n)
{
    known_before b = begin(n);
    n->may_miss = 1; /* a crash in between may cost the block */
    return b;
}

void known_put_done(known_name *n, const known_before *b, bool reached)
{
    n->current = b->version;
    n->policy_unsure = 0;
    if (!reached)
        return;
    n->oldest = b->version;
    n->may_miss = 0;
    n->policy_oldest = b->policy;
}

void known_rewrite_done(known_name *n, const known_before *b, bool reached, bool old_gone)
{
    n->current = b->version;
    if (old_gone || reached)
        n->oldest = n->floor = b->version;
    if (reached)
        n->may_miss = 0;
}

void known_undone(known_name *n, const known_before *b)
{
    n->newest = b->newest;
    n->may_miss = b->may_miss;
    if (b->policy)
        known_policy_done(n, b, false);
}

void known_reached(known_name *n)
{
    if (n->current == 0 || n->current != n->newest)
        return;
    n->oldest = n->current;
    n->may_miss = 0;
}

void known_remove_begin(known_name *n)
{
    n->may_miss = 1;
    n->current = 0;
}

void known_remove_done(known_name *n, bool reached)
{
    if (!reached)
        return;
    n->oldest = n->newest + 1;
    n->floor = n->newest + 1;
    n->evicted = 0;
}

known_before known_policy_begin(known_name *n, uint32_t policy)
{
    known_before b = {0};
    policy_begin(n, &b, policy);
    return b;
}

void known_policy_done(known_name *n, const known_before *b, bool set)
{
    if (!set)
        n->policy_newest = b->policy_newest;
    n->policy_unsure = set ? 0 : b->policy_unsure;
}

/* One version alone may be found, and it is the one that has the policy. */
void known_policy_written(known_name *n)
{
    if (!n->policy_unsure && n->current && n->oldest == n->newest && !n->evicted)
        n->policy_oldest = n->policy_newest;
}
