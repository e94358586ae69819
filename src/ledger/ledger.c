/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/ledger.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"

int ledger_open(ledger *l, base_env *env, uint32_t tenants_max)
{
    memset(l, 0, sizeof *l);
    l->env = env;
    l->tenants_max = tenants_max;
    l->tenant_slot_count = 16;
    while (l->tenant_slot_count < tenants_max * 2)
        l->tenant_slot_count *= 2;
    l->rows_bytes = (tenants_max + 1) * sizeof *l->accounts[0].rows;
    l->tenant_slots = env->alloc(env, l->tenant_slot_count * sizeof *l->tenant_slots);
    return l->tenant_slots ? 0 : -ENOMEM;
}

void ledger_close(ledger *l)
{
    for (uint32_t i = 0; i < l->account_count; i++)
        l->env->free(l->env, l->accounts[i].rows, l->rows_bytes);
    if (l->tenant_slots)
        l->env->free(l->env, l->tenant_slots, l->tenant_slot_count * sizeof *l->tenant_slots);
    l->account_count = 0;
    l->tenant_slots = NULL;
}

size_t ledger_memory_bytes(const ledger *l)
{
    return l->account_count * l->rows_bytes + l->tenant_slot_count * sizeof *l->tenant_slots;
}

int ledger_account_of(ledger *l, const char *name)
{
    for (uint32_t i = 0; i < l->account_count; i++)
        if (strcmp(l->accounts[i].name, name) == 0)
            return (int)i;
    if (l->account_count == LEDGER_ACCOUNTS_MAX)
        return -ENOSPC;
    ledger_account *a = &l->accounts[l->account_count];
    a->rows = l->env->alloc(l->env, l->rows_bytes);
    if (a->rows == NULL)
        return -ENOMEM;
    memcpy(a->name, name, strnlen(name, sizeof a->name - 1));
    return (int)l->account_count++;
}

/* The tenant's row; the first tenants_max tenants seen get one of their own. */
static uint32_t tenant_index(ledger *l, unsigned tenant)
{
    if (tenant == KVO_TENANT_OTHER)
        return l->tenants_max;
    uint32_t at = tenant * 2654435761u & (l->tenant_slot_count - 1);
    for (;;) {
        uint32_t slot = atomic_load_explicit(&l->tenant_slots[at], memory_order_acquire);
        if (slot == 0) {
            uint32_t index = atomic_load_explicit(&l->tenant_count, memory_order_relaxed);
            do {
                if (index >= l->tenants_max)
                    return l->tenants_max;
            } while (!atomic_compare_exchange_weak(&l->tenant_count, &index, index + 1));
            if (atomic_compare_exchange_strong(&l->tenant_slots[at], &slot, (tenant + 1) << 16 | index))
                return index;
            /* Another thread took the place; the index we counted stays unused. */
        }
        if (slot >> 16 == ((tenant + 1) & 0xffffu))
            return slot & 0xffffu;
        at = (at + 1) & (l->tenant_slot_count - 1);
    }
}

static unsigned tenant_of_index(const ledger *l, uint32_t index)
{
    for (uint32_t i = 0; i < l->tenant_slot_count; i++) {
        uint32_t slot = atomic_load_explicit(&l->tenant_slots[i], memory_order_acquire);
        if (slot && (slot & 0xffffu) == index)
            return (slot >> 16) - 1;
    }
    return KVO_TENANT_OTHER;
}

void ledger_add(ledger *l, unsigned account, ledger_direction direction, kvo_cause cause, unsigned tenant,
                uint64_t bytes, uint64_t operations)
{
    KVO_ASSERT(account < l->account_count && cause > KVO_CAUSE_NONE && cause < KVO_CAUSE_COUNT);
    ledger_cell *cell = &l->accounts[account].rows[tenant_index(l, tenant)][direction][cause];
    atomic_fetch_add_explicit(&cell->bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&cell->operations, operations, memory_order_relaxed);
}

uint64_t ledger_bytes(const ledger *l, unsigned account, ledger_direction direction, kvo_cause cause)
{
    uint64_t sum = 0;
    for (uint32_t t = 0; t <= l->tenants_max; t++)
        sum += atomic_load_explicit(&l->accounts[account].rows[t][direction][cause].bytes, memory_order_relaxed);
    return sum;
}

/* Rows that hold something: of tenants seen, and everybody else's. */
typedef struct row_cursor {
    uint32_t account, tenant, direction, cause;
} row_cursor;

static const ledger_cell *next_row(const ledger *l, row_cursor *c)
{
    for (; c->account < l->account_count; c->account++, c->tenant = 0)
        for (; c->tenant <= l->tenants_max; c->tenant++, c->direction = 0)
            for (; c->direction < LEDGER_DIRECTIONS; c->direction++, c->cause = 0)
                while (c->cause < KVO_CAUSE_COUNT) {
                    const ledger_cell *cell = &l->accounts[c->account].rows[c->tenant][c->direction][c->cause++];
                    if (atomic_load_explicit(&cell->operations, memory_order_relaxed))
                        return cell;
                }
    return NULL;
}

size_t ledger_rows(const ledger *l, kvo_ledger_row *rows, size_t capacity)
{
    row_cursor c = {0};
    size_t n = 0;
    for (const ledger_cell *cell; (cell = next_row(l, &c)) != NULL; n++) {
        if (n >= capacity)
            continue;
        memset(&rows[n], 0, sizeof rows[n]);
        memcpy(rows[n].tier, l->accounts[c.account].name, sizeof rows[n].tier);
        rows[n].direction = (int)c.direction;
        rows[n].cause = (int)c.cause - 1;
        rows[n].tenant = tenant_of_index(l, c.tenant);
        rows[n].bytes = atomic_load_explicit(&cell->bytes, memory_order_relaxed);
        rows[n].operations = atomic_load_explicit(&cell->operations, memory_order_relaxed);
    }
    return n;
}

/* ---- what is there ---- */

/* Of bytes that were written: whether a copy came with them. */
static bool brings(kvo_cause cause)
{
    return cause == KVO_CAUSE_PUT || cause == KVO_CAUSE_DEMOTE || cause == KVO_CAUSE_PROMOTE ||
           cause == KVO_CAUSE_REWRITE || cause == KVO_CAUSE_REPAIR || cause == KVO_CAUSE_RECOVER;
}

ledger_balance ledger_balance_of(const ledger *l, unsigned account)
{
    ledger_balance b = {0, 0};
    uint32_t seen = atomic_load_explicit(&l->tenant_count, memory_order_relaxed);
    for (uint32_t t = 0; t <= l->tenants_max; t++) {
        if (t == seen) /* behind them there is nobody but all the others */
            t = l->tenants_max;
        for (unsigned d = LEDGER_WRITE; d <= LEDGER_LEFT; d++)
            for (unsigned cause = 1; cause < KVO_CAUSE_COUNT; cause++) {
                const ledger_cell *cell = &l->accounts[account].rows[t][d][cause];
                int64_t sign = d == LEDGER_LEFT ? -1 : brings(cause) ? 1 : 0;
                b.blocks += sign * (int64_t)atomic_load_explicit(&cell->operations, memory_order_relaxed);
                b.bytes += sign * (int64_t)atomic_load_explicit(&cell->bytes, memory_order_relaxed);
            }
    }
    return b;
}

/* Copies that may be of a later generation: written as that, or nobody knows as what. */
static uint64_t later_of(const ledger *l, unsigned account)
{
    uint64_t sum = 0;
    for (uint32_t t = 0; t <= l->tenants_max; t++) {
        const ledger_cell *cells = l->accounts[account].rows[t][LEDGER_WRITE];
        sum += atomic_load_explicit(&cells[KVO_CAUSE_REWRITE].operations, memory_order_relaxed) +
               atomic_load_explicit(&cells[KVO_CAUSE_REPAIR].operations, memory_order_relaxed) +
               atomic_load_explicit(&cells[KVO_CAUSE_RECOVER].operations, memory_order_relaxed);
    }
    return sum;
}

/* As few blocks as explain the difference: where it is one of bytes alone, one came and one went; and where more copies
   are rewritten ones than came as that, they came for others that went. */
bool ledger_settle(ledger *l, unsigned account, ledger_balance found, uint64_t rewritten)
{
    ledger_balance told = ledger_balance_of(l, account);
    int64_t blocks = found.blocks - told.blocks, bytes = found.bytes - told.bytes;
    uint64_t more = blocks > 0 ? (uint64_t)blocks : 0, fewer = blocks < 0 ? (uint64_t)-blocks : 0;
    uint64_t later = later_of(l, account) + more, unknown = rewritten > later ? rewritten - later : 0;
    more += unknown;
    fewer += unknown;
    if (more == 0 && fewer == 0 && bytes == 0)
        return false;
    if ((bytes > 0 && more == 0) || (bytes < 0 && fewer == 0)) {
        more++;
        fewer++;
    }
    ledger_add(l, account, LEDGER_WRITE, KVO_CAUSE_RECOVER, KVO_TENANT_OTHER, bytes > 0 ? (uint64_t)bytes : 0, more);
    ledger_add(l, account, LEDGER_LEFT, KVO_CAUSE_RECOVER, KVO_TENANT_OTHER, bytes < 0 ? (uint64_t)-bytes : 0, fewer);
    return true;
}

/* ---- encoded: magic, counts, totals, accounts with counters, rows; all little-endian ---- */

static const char magic[8] = "KVOLEDG1";
enum {
    TENANTS_MAX = 4096,
    ROW_BYTES = 24,
    ACCOUNT_BYTES = 16 + 8 * LEDGER_COUNTERS,
    HEAD_BYTES = 24 + 8 * LEDGER_TOTALS
};

static void put32(uint8_t **at, uint32_t v)
{
    base_put_u32(*at, v);
    *at += 4;
}
static void put64(uint8_t **at, uint64_t v)
{
    base_put_u64(*at, v);
    *at += 8;
}
static uint32_t get32(const uint8_t **at)
{
    *at += 4;
    return base_get_u32(*at - 4);
}
static uint64_t get64(const uint8_t **at)
{
    *at += 8;
    return base_get_u64(*at - 8);
}

/* Of all indices at once: a search for each row would take too long under a lock. */
static void tenants_of_indices(const ledger *l, uint16_t *tenants)
{
    for (uint32_t i = 0; i <= l->tenants_max; i++)
        tenants[i] = KVO_TENANT_OTHER;
    for (uint32_t i = 0; i < l->tenant_slot_count; i++) {
        uint32_t slot = atomic_load_explicit(&l->tenant_slots[i], memory_order_acquire);
        if (slot)
            tenants[slot & 0xffffu] = (uint16_t)((slot >> 16) - 1);
    }
}

/* account 8 | direction 8 | cause 16, tenant, bytes, operations. Returns how many rows there are. */
static uint32_t encode_rows(const ledger *l, uint8_t *at, const uint8_t *end)
{
    uint16_t tenants[TENANTS_MAX + 1];
    row_cursor c = {0};
    uint32_t rows = 0;
    tenants_of_indices(l, tenants);
    for (const ledger_cell *cell; (cell = next_row(l, &c)) != NULL; rows++) {
        if (end - at < ROW_BYTES)
            continue;
        put32(&at, c.account | c.direction << 8 | (c.cause - 1) << 16);
        put32(&at, tenants[c.tenant]);
        put64(&at, atomic_load_explicit(&cell->bytes, memory_order_relaxed));
        put64(&at, atomic_load_explicit(&cell->operations, memory_order_relaxed));
    }
    return rows;
}

size_t ledger_encode(const ledger *l, uint8_t *out, size_t capacity)
{
    size_t head = HEAD_BYTES + (size_t)l->account_count * ACCOUNT_BYTES;
    if (head > capacity)
        return head + ledger_rows(l, NULL, 0) * ROW_BYTES;
    memset(out, 0, head);
    uint32_t rows = encode_rows(l, out + head, out + capacity);
    memcpy(out, magic, 8);
    uint8_t *at = out + 8;
    put32(&at, l->account_count);
    put32(&at, LEDGER_COUNTERS);
    put32(&at, LEDGER_TOTALS);
    put32(&at, rows);
    for (unsigned i = 0; i < LEDGER_TOTALS; i++)
        put64(&at, ledger_total_of(l, i));
    for (uint32_t a = 0; a < l->account_count; a++) {
        memcpy(at, l->accounts[a].name, 16);
        at += 16;
        for (unsigned i = 0; i < LEDGER_COUNTERS; i++)
            put64(&at, ledger_counted(l, a, i));
    }
    return head + (size_t)rows * ROW_BYTES;
}

/* Names that an account can have: not empty, not longer, no two alike. */
static bool accounts_good(const uint8_t *at, uint32_t count)
{
    for (uint32_t a = 0; a < count; a++) {
        const uint8_t *name = at + a * ACCOUNT_BYTES;
        if (name[0] == 0 || memchr(name, 0, 16) == NULL)
            return false;
        for (uint32_t b = 0; b < a; b++)
            if (strcmp((const char *)name, (const char *)at + b * ACCOUNT_BYTES) == 0)
                return false;
    }
    return true;
}

static bool rows_good(const uint8_t *at, uint32_t rows, uint32_t account_count)
{
    for (; rows > 0; rows--, at += ROW_BYTES) {
        uint32_t where = base_get_u32(at);
        uint32_t account = where & 255u, direction = where >> 8 & 255u, cause = where >> 16;
        if (account >= account_count || direction >= LEDGER_DIRECTIONS || cause == 0 || cause >= KVO_CAUSE_COUNT ||
            base_get_u32(at + 4) > 65535)
            return false;
    }
    return true;
}

static void decode_rows(ledger *l, const uint8_t *at, uint32_t rows, const int *accounts)
{
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t where = get32(&at), tenant = get32(&at);
        uint64_t bytes = get64(&at), operations = get64(&at);
        if (accounts[where & 255u] >= 0)
            ledger_add(l, (unsigned)accounts[where & 255u], (ledger_direction)(where >> 8 & 255u),
                       (kvo_cause)(where >> 16), tenant, bytes, operations);
    }
}

/* The whole is judged before the first number is added. */
bool ledger_decode(ledger *l, const uint8_t *in, size_t bytes)
{
    if (bytes < HEAD_BYTES || memcmp(in, magic, 8) != 0)
        return false;
    const uint8_t *at = in + 8;
    uint32_t count = get32(&at), counters = get32(&at), totals = get32(&at), rows = get32(&at);
    if (count > LEDGER_ACCOUNTS_MAX || counters != LEDGER_COUNTERS || totals != LEDGER_TOTALS ||
        bytes != HEAD_BYTES + (size_t)count * ACCOUNT_BYTES + (size_t)rows * ROW_BYTES)
        return false;
    if (!accounts_good(in + HEAD_BYTES, count) || !rows_good(in + bytes - (size_t)rows * ROW_BYTES, rows, count))
        return false;
    for (unsigned i = 0; i < LEDGER_TOTALS; i++)
        ledger_total_add(l, i, get64(&at));
    int accounts[LEDGER_ACCOUNTS_MAX];
    for (uint32_t a = 0; a < count; a++) {
        accounts[a] = ledger_account_of(l, (const char *)at);
        at += 16;
        for (unsigned i = 0; i < LEDGER_COUNTERS; i++) {
            uint64_t n = get64(&at);
            if (accounts[a] >= 0)
                ledger_count(l, (unsigned)accounts[a], i, n);
        }
    }
    decode_rows(l, at, rows, accounts);
    return true;
}
