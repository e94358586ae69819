/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rule 11: one byte counted once. Rows by account (a tier, by name), direction, cause and tenant,
 * and per account the counters that have no bytes. Adding is atomic and takes no lock. The whole
 * can be written as bytes and read back; accounts of tiers that are not open now are kept.
 */
#ifndef LEDGER_LEDGER_H
#define LEDGER_LEDGER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/env.h"
#include "kvonce.h"

#define LEDGER_ACCOUNTS_MAX 8u

/* LEDGER_LEFT: copies that are gone from the tier, which moves no byte. */
typedef enum ledger_direction {
    LEDGER_READ = 0,
    LEDGER_WRITE = 1,
    LEDGER_LEFT = 2,
    LEDGER_DIRECTIONS
} ledger_direction;

typedef enum ledger_counter {
    LEDGER_HITS,
    LEDGER_LIVES,
    LEDGER_LIFE_BYTES,
    LEDGER_CLEAN_DISCARDS,
    LEDGER_OTHER_EVICTIONS,
    LEDGER_ORPHANS,
    LEDGER_YIELDS,
    LEDGER_PROMOTIONS,
    LEDGER_IO_ERRORS,
    LEDGER_COUNTERS
} ledger_counter;

/* Counters of the store as a whole. */
typedef enum ledger_total {
    LEDGER_PUTS,
    LEDGER_PUT_EXISTS,
    LEDGER_PUT_BUSY,
    LEDGER_PUT_FULL,
    LEDGER_PUT_WAITS,
    LEDGER_GETS,
    LEDGER_GET_MISSES,
    LEDGER_VERIFIED,
    LEDGER_DIGEST_MISSES,
    LEDGER_DIGEST_CONFLICTS,
    LEDGER_REWRITES,
    LEDGER_REMOVES,
    LEDGER_TOTALS
} ledger_total;

typedef struct ledger_cell {
    _Atomic uint64_t bytes;
    _Atomic uint64_t operations;
} ledger_cell;

typedef struct ledger_account {
    char name[16];
    _Atomic uint64_t counters[LEDGER_COUNTERS];
    /* rows[tenant index][direction][cause] */
    ledger_cell (*rows)[LEDGER_DIRECTIONS][KVO_CAUSE_COUNT];
} ledger_account;

typedef struct ledger {
    base_env *env;
    ledger_account accounts[LEDGER_ACCOUNTS_MAX];
    uint32_t account_count;
    _Atomic uint64_t totals[LEDGER_TOTALS];
    uint32_t tenants_max; /* with rows of their own; index tenants_max is everybody else's */
    _Atomic uint32_t *tenant_slots; /* open addressing: tenant + 1 << 16 | index */
    uint32_t tenant_slot_count;
    _Atomic uint32_t tenant_count;
    size_t rows_bytes;
} ledger;

/* 0 or -ENOMEM. */
int ledger_open(ledger *l, base_env *env, uint32_t tenants_max);
void ledger_close(ledger *l);
size_t ledger_memory_bytes(const ledger *l);
/* The account of that name, made if it is new; -ENOSPC if there are too many. */
int ledger_account_of(ledger *l, const char *name);

void ledger_add(ledger *l, unsigned account, ledger_direction direction, kvo_cause cause, unsigned tenant,
                uint64_t bytes, uint64_t operations);
/* Sum over tenants. */
uint64_t ledger_bytes(const ledger *l, unsigned account, ledger_direction direction, kvo_cause cause);
size_t ledger_rows(const ledger *l, kvo_ledger_row *rows, size_t capacity);

/* What the account's copies are by all rows, in blocks and bytes: written for good and found, less left. Below 0 if
   entries are missing. */
typedef struct ledger_balance {
    int64_t blocks, bytes;
} ledger_balance;
ledger_balance ledger_balance_of(const ledger *l, unsigned account);
/* Makes the balance what an opening has found, of which `rewritten` copies are of a later generation: the difference
   becomes rows of cause RECOVER. true: there was one. */
bool ledger_settle(ledger *l, unsigned account, ledger_balance found, uint64_t rewritten);

static inline void ledger_count(ledger *l, unsigned account, ledger_counter c, uint64_t n)
{
    atomic_fetch_add_explicit(&l->accounts[account].counters[c], n, memory_order_relaxed);
}
static inline uint64_t ledger_counted(const ledger *l, unsigned account, ledger_counter c)
{
    return atomic_load_explicit(&l->accounts[account].counters[c], memory_order_relaxed);
}
static inline void ledger_total_add(ledger *l, ledger_total c, uint64_t n)
{
    atomic_fetch_add_explicit(&l->totals[c], n, memory_order_relaxed);
}
static inline uint64_t ledger_total_of(const ledger *l, ledger_total c)
{
    return atomic_load_explicit(&l->totals[c], memory_order_relaxed);
}

/* Encoded form (docs/format.md). Returns the bytes needed; what is written is whole only if they fit. Rows and
   counters that are changed together under a lock agree in it if it is held. */
size_t ledger_encode(const ledger *l, uint8_t *out, size_t capacity);
/* Adds what the bytes say. false: not a ledger of this version; nothing was added. */
bool ledger_decode(ledger *l, const uint8_t *in, size_t bytes);

#endif
