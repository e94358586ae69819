/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reuse distances of a stream of keys, exactly and in one pass. The distance of an access is how many other keys were
 * touched since the last one of the same key: a least-recently-used cache of n keys serves it if and only if it is
 * below n (Mattson and others, 1970). Marks at the last access of each key are added up by a Fenwick tree over the
 * time of accesses; when time has run to its end, marks are pushed together.
 */
#ifndef CLI_REUSE_H
#define CLI_REUSE_H

#include <stddef.h>
#include <stdint.h>

#define CLI_REUSE_LOGS 33

typedef struct cli_reuse {
    uint64_t *keys; /* open addressing; 0 is no key */
    uint32_t *last; /* time of its last access, from 1 */
    size_t room, key_count;
    uint32_t *tree; /* from 1 */
    uint32_t span, now;
    uint64_t below[CLI_REUSE_LOGS];     /* accesses whose distance is below 2^k, and not below 2^(k-1) */
    uint64_t first_count, access_count; /* first accesses have no distance: no cache serves them */
} cli_reuse;

/* Room for so many keys and accesses at first, powers of two: it grows by itself. */
void cli_reuse_open(cli_reuse *r, size_t room, uint32_t span);
void cli_reuse_close(cli_reuse *r);
void cli_reuse_touch(cli_reuse *r, uint64_t key); /* not 0 */
/* Accesses that a cache of 2^log keys serves. */
uint64_t cli_reuse_served(const cli_reuse *r, unsigned log);

#endif
