/* SPDX-License-Identifier: Apache-2.0 */
#include "bench_policy.h"

#include <stdlib.h>

#define READ_BACK 100 /* one update of so many */

void bench_chains_make(bench_chains *c, bench_store *store, size_t count)
{
    *c = (bench_chains){.store = store, .count = count, .chains = (count + BENCH_CHAIN - 1) / BENCH_CHAIN};
    c->names = cli_alloc(count, BENCH_NAME_BYTES);
    c->order = cli_alloc(c->chains, sizeof *c->order);
    c->handles = cli_alloc(count, sizeof *c->handles);
    c->passes = 1;
    c->random = 1;
    bench_names(c->names, 0, count);
    for (size_t i = 0; i < c->chains; i++) {
        size_t other = (size_t)(cli_random(&c->random) % (i + 1));
        c->order[i] = c->order[other];
        c->order[other] = (uint32_t)i;
    }
}

void bench_chains_free(bench_chains *c)
{
    free(c->names);
    free(c->order);
    free(c->handles);
}

kvo_names bench_chain_at(const bench_chains *c, size_t place, size_t *first)
{
    *first = (size_t)c->order[place] * BENCH_CHAIN;
    size_t n = c->count - *first < BENCH_CHAIN ? c->count - *first : BENCH_CHAIN;
    return bench_batch(c->store, c->names + *first * BENCH_NAME_BYTES, n);
}

int bench_chains_handles(bench_chains *c)
{
    for (size_t place = 0; place < c->chains; place++) {
        size_t first, matched = 0;
        kvo_names batch = bench_chain_at(c, place, &first);
        int status = kvo_match(c->store->store, &batch, c->answers, &matched);
        if (status != KVO_OK || matched != batch.count) {
            return status != KVO_OK ? bench_refused("match", status) : cli_fail("match: blocks are missing");
        }
        for (size_t i = 0; i < matched; i++) {
            c->handles[first + i] = c->answers[i].handle;
        }
    }
    return 0;
}

int bench_match(void *context, unsigned round, bench_sample *sample)
{
    bench_chains *c = context;
    size_t all = 0;
    int status = KVO_OK;
    (void)round;
    double begin = bench_now();
    for (unsigned pass = 0; pass < c->passes; pass++) {
        for (size_t place = 0; status == KVO_OK && bench_stopped() == 0 && place < c->chains; place++) {
            size_t first, matched = 0;
            kvo_names batch = bench_chain_at(c, place, &first);
            status = kvo_match(c->store->store, &batch, c->answers, &matched);
            all += matched;
        }
    }
    sample->seconds = bench_now() - begin;
    if (bench_stopped() != 0) {
        return CLI_STOPPED;
    }
    if (status != KVO_OK || all != c->passes * c->count) {
        return status != KVO_OK ? bench_refused("match", status) : cli_fail("match: blocks are missing");
    }
    return 0;
}

/* ---- Updates ---- */

/* Blocks of the measured stores are worth more than those that a writer puts beside them. */
static kvo_policy next_policy(bench_chains *c)
{
    uint64_t random = cli_random(&c->random);
    kvo_policy policy = KVO_POLICY_INIT;
    policy.tenant = (uint16_t)(random % 16);
    policy.qos = (uint8_t)(1 + (random >> 8) % 3);
    policy.priority = (uint8_t)((random >> 16) % 101);
    policy.reuse = (uint8_t)((random >> 24) % 101);
    return policy;
}

static int is_policy(const kvo_policy *a, const kvo_policy *b)
{
    return a->tenant == b->tenant && a->qos == b->qos && a->priority == b->priority && a->reuse == b->reuse &&
           a->intent == b->intent;
}

static int read_back(bench_chains *c)
{
    kvo_policy policy;
    kvo_answer answer;
    for (size_t i = (size_t)(cli_random(&c->random) % READ_BACK); i < c->count; i += READ_BACK) {
        const kvo_target target = {.by = KVO_BY_HANDLES, .handles = &c->handles[i], .handle_count = 1};
        int status = kvo_policy_get(c->store->store, &target, &policy, &answer);
        if (status != KVO_OK) {
            return bench_refused("policy", status);
        }
        if (answer.status == KVO_OK && !is_policy(&policy, &c->policy)) {
            (void)cli_fail("policy: a block does not have the policy that was set");
            return CLI_BAD;
        }
    }
    return 0;
}

/* One policy over all blocks, chain by chain, as often as a sample says, each time another one. */
static int update(bench_chains *c, int by, uint32_t mask, bench_sample *sample)
{
    uint64_t changed = 0;
    int status = KVO_OK;
    kvo_policy policy = c->policy;
    double begin = bench_now();
    for (unsigned pass = 0; pass < c->passes; pass++) {
        policy = next_policy(c);
        for (size_t place = 0; status == KVO_OK && bench_stopped() == 0 && place < c->chains; place++) {
            uint64_t some = 0;
            size_t first;
            kvo_target target = {.by = by, .names = bench_chain_at(c, place, &first)};
            target.handles = c->handles + first;
            target.handle_count = target.names.count;
            status = kvo_policy_set(c->store->store, &target, &policy, mask, c->answers, &some);
            changed += some;
        }
    }
    sample->seconds = bench_now() - begin;
    if (status != KVO_OK || bench_stopped() != 0) {
        return status != KVO_OK ? bench_refused("policy", status) : CLI_STOPPED;
    }
    /* A block may have left meanwhile where a writer needs room; nearly none do. */
    if (changed < c->passes * c->count / 10 * 9) {
        return cli_fail("policy: blocks are missing");
    }
    sample->seconds *= (double)(c->passes * c->count) / (double)changed;
    uint8_t priority = policy.priority;
    policy = mask == KVO_POLICY_ALL ? policy : c->policy;
    policy.priority = priority;
    c->policy = policy;
    return read_back(c);
}

int bench_policy_word(void *context, unsigned round, bench_sample *sample)
{
    (void)round;
    return update(context, KVO_BY_HANDLES, KVO_POLICY_ALL, sample);
}

int bench_policy_masked(void *context, unsigned round, bench_sample *sample)
{
    (void)round;
    return update(context, KVO_BY_NAMES, KVO_POLICY_PRIORITY, sample);
}
