/* SPDX-License-Identifier: Apache-2.0 */
/* A ledger's bytes: all of them are added, or nothing; what was added, encoded again, gives the same. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "ledger/ledger.h"

enum { TENANTS = 3, ROWS = (TENANTS + 1) * (int)LEDGER_ACCOUNTS_MAX * LEDGER_DIRECTIONS * KVO_CAUSE_COUNT };

static void *take(base_env *env, size_t bytes) { return (void)env, calloc(1, bytes); }
static void give(base_env *env, void *memory, size_t bytes) { (void)env, (void)bytes, free(memory); }

typedef struct encoded {
    uint8_t *bytes;
    size_t count;
} encoded;

static encoded encode(const ledger *l)
{
    encoded e = {.count = ledger_encode(l, NULL, 0)};
    e.bytes = malloc(e.count);
    MUST(e.bytes && ledger_encode(l, e.bytes, e.count) == e.count, "it does not say its length");
    return e;
}

/* What rows and counters must add up to: all bytes of all rows, but for accounts that found no place. */
static void must_be_told(const ledger *l)
{
    static kvo_ledger_row rows[ROWS];
    size_t n = ledger_rows(l, rows, ROWS);
    MUST(n <= ROWS, "%zu rows", n);
    for (size_t i = 0; i < n; i++) {
        MUST(memchr(rows[i].tier, 0, sizeof rows[i].tier) != NULL, "a tier's name without an end");
        MUST(rows[i].cause > 0 && rows[i].cause < KVO_CAUSE_COUNT && rows[i].operations, "a row of nothing");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    base_env env = {.alloc = take, .free = give};
    ledger l, again;
    MUST(ledger_open(&l, &env, TENANTS) == 0 && ledger_open(&again, &env, TENANTS) == 0, "no memory");
    int disk = ledger_account_of(&l, "disk");
    ledger_add(&l, (unsigned)disk, LEDGER_WRITE, KVO_CAUSE_PUT, 7, 4096, 1);
    encoded before = encode(&l);
    bool good = ledger_decode(&l, data, bytes);
    encoded after = encode(&l);
    if (!good)
        MUST(before.count == after.count && memcmp(before.bytes, after.bytes, after.count) == 0,
             "%zu bytes were refused, and something of them was added", bytes);
    must_be_told(&l);
    MUST(ledger_decode(&again, after.bytes, after.count), "its own bytes are refused");
    encoded second = encode(&again);
    MUST(second.count == after.count, "%zu bytes became %zu", after.count, second.count);
    free(before.bytes);
    free(after.bytes);
    free(second.bytes);
    ledger_close(&l);
    ledger_close(&again);
    return 0;
}
