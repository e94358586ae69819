/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the adapter with an engine without weights (fake.h) share: a store, a prompt, and contexts that are
   bound to it. */
#ifndef LLAMA_FIXTURE_H
#define LLAMA_FIXTURE_H

#include "test.h"

#include "fake.h"

enum { TOKENS_MAX = 1200, BLOCK = 16 };

extern const fake_options dense, windowed; /* two sequences each */

extern char directory[64]; /* gone after the last test, with all that is in it */
extern kvo_store *store;   /* in memory and in `directory`, the same for all tests */
extern int32_t tokens[TOKENS_MAX];
extern uint8_t model; /* whose blocks are stored; another number: nothing is there yet */

int open_store(void **state); /* cmocka's, before all tests and after them */
int close_store(void **state);

/* The next number of a series; never the highest bits. */
uint64_t next(uint64_t *state);

int try_open(struct llama_context *context, uint32_t stride, const char *settings, const char *build, kvo_llama **kv);
kvo_llama *attach_with(struct llama_context *context, uint32_t stride, const char *build);
kvo_llama *attach(struct llama_context *context); /* of "a build", the usual stride */
void detach(kvo_llama *kv, struct llama_context *context); /* closes both */

/* How many tokens; asserts that these are whole blocks, and not all of the prompt. */
size_t restore(kvo_llama *kv, int32_t sequence, const int32_t *prompt, size_t count, int *why);
/* In batches, saving after each; how many tokens are stored. */
size_t compute(kvo_llama *kv, struct llama_context *context, int32_t sequence, const int32_t *prompt, size_t from,
               size_t to, uint32_t batch, int *why);
kvo_llama_stat stat_of(kvo_llama *kv);

#endif
