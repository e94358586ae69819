/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Digesting bytes while they are moved. A pass takes a payload in pieces of any length; its whole blocks of
 * 1 KiB are moved and digested in one loop, by the best vector unit that the machine has, and the rest goes
 * through xxhash's streaming calls. Every unit gives the digest that XXH3_128bits gives.
 */
#ifndef BLOCK_DIGEST_PASS_H
#define BLOCK_DIGEST_PASS_H

#include <stddef.h>
#include <stdint.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    DIGEST_STRIPE = 64,
    DIGEST_BLOCK = 1024, /* after so many bytes XXH3 scrambles what it has accumulated */
    DIGEST_UNITS = 3     /* at most */
};

/* Takes whole blocks (at least one) into a state that holds whole blocks only. At least one byte must follow. */
typedef void digest_blocks(XXH3_state_t *state, uint8_t *to, const uint8_t *from, size_t count);

typedef struct digest_unit {
    const char *name;
    digest_blocks *read;  /* moves nothing: `to` is not used */
    digest_blocks *copy;  /* digests the destination */
    digest_blocks *store; /* past the caches where it can, for what is not read soon: digests what it stores */
} digest_unit;

/* The units of this machine, best last; returns how many. */
size_t digest_units(const digest_unit *units[DIGEST_UNITS]);

typedef struct digest_pass {
    XXH3_state_t state;         /* of the whole blocks before `held` */
    uint8_t held[DIGEST_BLOCK]; /* the last bytes, as long as they may be the payload's end */
    size_t held_bytes;
    const digest_unit *unit;
} digest_pass;

void digest_begin(digest_pass *pass, const digest_unit *unit);
/* The payload's next bytes. `move` is of the pass's unit; for `read`, `to` is NULL. */
void digest_take(digest_pass *pass, digest_blocks *move, void *to, const void *from, size_t bytes);
void digest_end(digest_pass *pass, uint8_t out[16]);

#endif
