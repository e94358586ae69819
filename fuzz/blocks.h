/* SPDX-License-Identifier: Apache-2.0 */
/* Names and payloads that follow from numbers, one-block calls, and what must hold of any store. */
#ifndef BLOCKS_H
#define BLOCKS_H

#include "machine.h"
#include "store/open.h"

enum { BLOCKS_NAME_BYTES = 17, BLOCKS_BYTES_MAX = 8192 }; /* an odd length: the name ends inside a word */

void block_name(unsigned number, uint8_t name[BLOCKS_NAME_BYTES]);
/* The number of a name of that kind, or -1. */
int block_number(const uint8_t *name, size_t bytes);
kvo_names block_names(unsigned number, kvo_space space); /* one of four buffers in turn */
void block_fill(uint8_t *bytes, size_t count, unsigned number, unsigned version);
bool block_is(const uint8_t *bytes, size_t count, unsigned number, unsigned version);

kvo_space blocks_space(kvo_store *store);
int block_put(kvo_store *store, kvo_space space, unsigned number, unsigned version, size_t bytes, int level);
int block_rewrite(kvo_store *store, kvo_space space, unsigned number, unsigned version, size_t bytes, int level);
/* The answer of a get into exactly so many bytes. */
kvo_answer block_get(kvo_store *store, kvo_space space, unsigned number, uint8_t *bytes, size_t count);
kvo_answer block_look(kvo_store *store, kvo_space space, unsigned number);

/* store_valid(), and that each block that a walk shows can be found under its name, with a policy that is one. */
void blocks_must_be_sound(kvo_store *store);

#endif
