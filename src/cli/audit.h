/* SPDX-License-Identifier: Apache-2.0 */
/* An audit: what the ledger tells, what the headers on the media show, and whether they agree. */
#ifndef CLI_AUDIT_H
#define CLI_AUDIT_H

#include "kvonce.h"

#define AUDIT_TIERS 8      /* with those of earlier runs */
#define AUDIT_TENANTS 65536
#define AUDIT_CHECKS 64

enum { AUDIT_READ, AUDIT_WRITTEN, AUDIT_LEFT, AUDIT_DIRECTIONS }; /* of kvo_ledger_row */

typedef struct audit_amount {
    int64_t blocks, bytes;
} audit_amount;

typedef struct audit_tier {
    kvo_tier_stat stat;
    audit_amount rows[AUDIT_DIRECTIONS][KVO_CAUSE_COUNT];
    audit_amount told;      /* what is there by the ledger */
    audit_amount found;     /* by the headers */
    audit_amount rewritten; /* of those: generation above 1 */
} audit_tier;

typedef struct audit_tenant {
    audit_amount written, left, found; /* in the tiers that are present */
} audit_tenant;

typedef enum audit_verdict {
    AUDIT_AGREES,
    AUDIT_OPEN,   /* it differs, and may: a crash took the ledger's last entries, or copies could not be read */
    AUDIT_DIFFERS
} audit_verdict;

typedef struct audit_check {
    const char *tier; /* NULL: of the store */
    const char *key;
    const char *first_is, *second_is; /* in words */
    int64_t first, second;
    audit_verdict verdict;
} audit_check;

typedef struct audit {
    kvo_stat store;
    audit_tier tiers[AUDIT_TIERS]; /* present_tier_count first */
    uint32_t tier_count;
    audit_tenant *tenants;                    /* AUDIT_TENANTS; the last one is all others' */
    uint64_t delta[KVO_TIERS_MAX][3];         /* blocks here by demotions into the writer's tier i: none, one, more */
    audit_check checks[AUDIT_CHECKS];
    unsigned check_count;
    audit_verdict verdict; /* the worst of all */
} audit;

/* Fills `a`, which is zero, from a store that is open READ_ONLY. 0, or CLI_FAIL after a message. */
int cli_audit_take(kvo_store *store, audit *a);

#endif
