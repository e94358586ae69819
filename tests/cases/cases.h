/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the programs here share. Each test is of the kind of one public report, whose id begins its name
 * (docs/cases.md lists them), and of a sibling of that kind.
 */
#ifndef CASES_H
#define CASES_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "fixture.h"

#define BYTES 65536u

/* Also in threads, where a failed assertion would leave the others behind: stops the program. */
#define MUST(x) ((x) ? (void)0 : cases_fail(__FILE__, __LINE__, #x))
_Noreturn void cases_fail(const char *file, int line, const char *what);

/* A seed, from KVO_TEST_SEED; printed by cases_fail(). */
uint64_t cases_seed(void);
uint32_t cases_draw(uint64_t *random, uint32_t below);
/* `usual`, or what the environment variable says, which is for longer runs. */
unsigned long cases_many(const char *variable, unsigned long usual);

/* Opens the fixture's store, with its options, on a machine whose calls the caller has changed. */
void cases_open_on(base_env *machine, const char *tiers);

/* One block from any thread, with memory of its own. A get is KVO_OK only with the right bytes. */
int cases_put(uint64_t number, size_t bytes, uint32_t version, uint64_t deadline_ns);
int cases_get(uint64_t number, size_t bytes, uint32_t version, uint64_t deadline_ns);

/* A batch of consecutive numbers in memory of its own. */
typedef struct cases_batch {
    size_t count, bytes;
    uint8_t *list;   /* names */
    uint8_t *memory; /* payloads, one after the other */
    kvo_segment *segments;
    kvo_answer *answers;
    kvo_names names;
    kvo_memory of;
} cases_batch;
cases_batch cases_batch_make(uint64_t first, size_t count, size_t bytes, bool filled);
void cases_batch_free(cases_batch *b);
size_t cases_batch_count(const cases_batch *b, int status); /* of answers */
bool cases_batch_right(const cases_batch *b, uint64_t first); /* all payloads */

/* Runs body in `count` threads, which are told their number, and waits for all. */
void cases_threads(unsigned count, void (*body)(unsigned number));

/* Counters of evictions of a tier. */
uint64_t cases_evictions(uint32_t tier);
/* How many of the names are there. */
uint64_t cases_there(uint64_t first, uint64_t count);

#endif
