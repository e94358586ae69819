/* SPDX-License-Identifier: Apache-2.0 */
/* Look-ups and policies of many blocks by chains of 128, in an order that no prefetcher guesses. */
#ifndef CLI_BENCH_POLICY_H
#define CLI_BENCH_POLICY_H

#include "bench.h"

#define BENCH_CHAIN 128

typedef struct bench_chains {
    bench_store *store;
    size_t count;      /* blocks */
    size_t chains;     /* the last may be shorter */
    uint8_t *names;    /* chain after chain; names number 0 and on */
    uint32_t *order;   /* of the chains */
    kvo_handle *handles;
    kvo_answer answers[BENCH_CHAIN];
    unsigned passes;   /* over all of them, a sample */
    uint64_t random;
    kvo_policy policy; /* what all blocks have now */
} bench_chains;

void bench_chains_make(bench_chains *c, bench_store *store, size_t count);
void bench_chains_free(bench_chains *c);
/* Once they are stored. All blocks must be there. */
int bench_chains_handles(bench_chains *c);
/* Names of one chain, by its place in the order. */
kvo_names bench_chain_at(const bench_chains *c, size_t place, size_t *first);

/* Samples, the context being a bench_chains. Updates are read back, one block in a hundred. */
int bench_match(void *context, unsigned round, bench_sample *sample);
int bench_policy_word(void *context, unsigned round, bench_sample *sample);
int bench_policy_masked(void *context, unsigned round, bench_sample *sample);

#endif
