/* SPDX-License-Identifier: Apache-2.0 */
#include "reuse.h"

#include "common.h"

#include <stdlib.h>
#include <string.h>

static void tree_add(cli_reuse *r, uint32_t at, uint32_t value)
{
    for (; at <= r->span; at += at & -at) {
        r->tree[at] += value;
    }
}

static uint32_t tree_sum(const cli_reuse *r, uint32_t at)
{
    uint32_t sum = 0;
    for (; at > 0; at -= at & -at) {
        sum += r->tree[at];
    }
    return sum;
}

static size_t place_of(const cli_reuse *r, uint64_t key)
{
    uint64_t state = key;
    size_t at = (size_t)cli_random(&state) & (r->room - 1);
    while (r->keys[at] != 0 && r->keys[at] != key) {
        at = (at + 1) & (r->room - 1);
    }
    return at;
}

void cli_reuse_open(cli_reuse *r, size_t room, uint32_t span)
{
    *r = (cli_reuse){.room = room, .span = span};
    r->keys = cli_alloc(r->room, sizeof *r->keys);
    r->last = cli_alloc(r->room, sizeof *r->last);
    r->tree = cli_alloc((size_t)r->span + 1, sizeof *r->tree);
}

void cli_reuse_close(cli_reuse *r)
{
    free(r->keys);
    free(r->last);
    free(r->tree);
}

static void more_keys(cli_reuse *r)
{
    cli_reuse old = *r;
    r->room *= 2;
    r->keys = cli_alloc(r->room, sizeof *r->keys);
    r->last = cli_alloc(r->room, sizeof *r->last);
    for (size_t i = 0; i < old.room; i++) {
        if (old.keys[i] != 0) {
            size_t at = place_of(r, old.keys[i]);
            r->keys[at] = old.keys[i];
            r->last[at] = old.last[i];
        }
    }
    free(old.keys);
    free(old.last);
}

/* Time begins anew, in the same order; twice as long if most of it is in use. */
static void push_together(cli_reuse *r)
{
    uint32_t *ranks = cli_alloc(r->room, sizeof *ranks);
    for (size_t i = 0; i < r->room; i++) {
        ranks[i] = r->keys[i] != 0 ? tree_sum(r, r->last[i]) : 0;
    }
    memcpy(r->last, ranks, r->room * sizeof *ranks);
    free(ranks);
    if (r->key_count > r->span / 2) {
        r->span *= 2;
    }
    free(r->tree);
    r->tree = cli_alloc((size_t)r->span + 1, sizeof *r->tree);
    r->now = (uint32_t)r->key_count;
    for (uint32_t i = 1; i <= r->now; i++) {
        tree_add(r, i, 1);
    }
}

void cli_reuse_touch(cli_reuse *r, uint64_t key)
{
    if (r->key_count * 2 > r->room) {
        more_keys(r);
    }
    if (r->now == r->span) {
        push_together(r);
    }
    size_t at = place_of(r, key);
    r->access_count++;
    if (r->keys[at] == 0) {
        r->keys[at] = key;
        r->key_count++;
        r->first_count++;
    } else {
        uint64_t distance = (uint64_t)r->key_count - tree_sum(r, r->last[at]);
        unsigned k = 0;
        while (distance >> k != 0) {
            k++;
        }
        r->below[k]++;
        tree_add(r, r->last[at], UINT32_MAX); /* minus one */
    }
    r->last[at] = ++r->now;
    tree_add(r, r->now, 1);
}

uint64_t cli_reuse_served(const cli_reuse *r, unsigned log)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i <= log && i < CLI_REUSE_LOGS; i++) {
        sum += r->below[i];
    }
    return sum;
}
