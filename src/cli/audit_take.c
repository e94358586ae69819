/* SPDX-License-Identifier: Apache-2.0 */
/* The two sides of an audit, and what must be equal. */
#include "audit.h"
#include "common.h"
#include "select.h"

#include <stdlib.h>
#include <string.h>

static void add(audit_amount *sum, int64_t blocks, int64_t bytes)
{
    sum->blocks += blocks;
    sum->bytes += bytes;
}

/* ---- the ledger ---- */

/* What brings a copy: as include/kvonce.h says at kvo_ledger_row. */
static int brings(int cause)
{
    return cause == KVO_CAUSE_PUT || cause == KVO_CAUSE_DEMOTE || cause == KVO_CAUSE_PROMOTE ||
           cause == KVO_CAUSE_REWRITE || cause == KVO_CAUSE_REPAIR || cause == KVO_CAUSE_RECOVER;
}

static void take_row(audit *a, const kvo_ledger_row *row)
{
    int64_t blocks = (int64_t)row->operations, bytes = (int64_t)row->bytes;
    audit_tenant *tenant = &a->tenants[row->tenant < AUDIT_TENANTS ? row->tenant : AUDIT_TENANTS - 1];
    for (uint32_t i = 0; i < a->tier_count; i++) {
        audit_tier *tier = &a->tiers[i];
        if (strcmp(tier->stat.name, row->tier) != 0 || row->direction < 0 || row->direction >= AUDIT_DIRECTIONS ||
            row->cause < 0 || row->cause >= KVO_CAUSE_COUNT) {
            continue;
        }
        add(&tier->rows[row->direction][row->cause], blocks, bytes);
        if (row->direction == AUDIT_LEFT) {
            add(&tier->told, -blocks, -bytes);
        } else if (row->direction == AUDIT_WRITTEN && brings(row->cause)) {
            add(&tier->told, blocks, bytes);
        }
        if (tier->stat.present && row->direction == AUDIT_LEFT) {
            add(&tenant->left, blocks, bytes);
        } else if (tier->stat.present && row->direction == AUDIT_WRITTEN && brings(row->cause)) {
            add(&tenant->written, blocks, bytes);
        }
    }
}

static int take_ledger(kvo_store *store, audit *a)
{
    kvo_ledger_row *rows = NULL;
    size_t count = 0, room = 0;
    int status = kvo_ledger(store, NULL, 0, &count);
    while (status == KVO_OK && count > room) {
        room = count;
        rows = cli_resize(rows, room, sizeof *rows);
        status = kvo_ledger(store, rows, room, &count);
    }
    for (size_t i = 0; status == KVO_OK && i < count; i++) {
        take_row(a, &rows[i]);
    }
    free(rows);
    return status;
}

/* ---- the headers ---- */

static int take_block(void *context, const kvo_block_info *info)
{
    audit *a = context;
    for (uint32_t i = 0; i < info->copy_count && i < KVO_TIERS_MAX; i++) {
        audit_tier *tier = &a->tiers[info->copies[i].tier];
        add(&tier->found, 1, info->payload_bytes);
        add(&tier->rewritten, info->generation > 1, info->generation > 1 ? info->payload_bytes : 0);
        add(&a->tenants[info->policy.tenant].found, 1, info->payload_bytes);
    }
    for (unsigned i = 1; i < KVO_TIERS_MAX; i++) {
        a->delta[i][info->delta[i] < 2 ? info->delta[i] : 2]++;
    }
    return 0;
}

/* ---- what must be equal ---- */

static audit_check *check(audit *a, const char *tier, const char *key, int64_t first, int64_t second)
{
    audit_check *c = &a->checks[a->check_count++];
    *c = (audit_check){tier, key, "", "", first, second, first == second ? AUDIT_AGREES : AUDIT_DIFFERS};
    return c;
}

static void in_words(audit_check *c, const char *first, const char *second)
{
    c->first_is = first;
    c->second_is = second;
}

/* A crash takes what was entered since the last write-out; a copy that was given up because it could not be read may
   have its header yet. */
static void excuse(const audit *a, audit_check *c, int64_t unread)
{
    int may = a->store.unclean_tiers != 0 || (c->second > c->first && c->second - c->first <= unread);
    if (c->verdict == AUDIT_DIFFERS && may) {
        c->verdict = AUDIT_OPEN;
    }
}

static void check_what_is_there(audit *a, const audit_tier *tier)
{
    const audit_amount *unread = &tier->rows[AUDIT_LEFT][KVO_CAUSE_UNREAD];
    const audit_amount *recovered = &tier->rows[AUDIT_WRITTEN][KVO_CAUSE_RECOVER];
    audit_check *blocks = check(a, tier->stat.name, "blocks", tier->told.blocks, tier->found.blocks);
    in_words(blocks, "came less left", "in headers");
    excuse(a, blocks, unread->blocks - recovered->blocks);
    audit_check *bytes = check(a, tier->stat.name, "bytes", tier->told.bytes, tier->found.bytes);
    in_words(bytes, "came less left", "in headers");
    excuse(a, bytes, unread->bytes - recovered->bytes);
    /* Each was written as that, or what wrote it is not known. */
    const audit_amount *w = tier->rows[AUDIT_WRITTEN];
    int64_t most = w[KVO_CAUSE_REWRITE].blocks + w[KVO_CAUSE_REPAIR].blocks + w[KVO_CAUSE_RECOVER].blocks;
    audit_check *rewritten = check(a, tier->stat.name, "rewritten", most, tier->rewritten.blocks);
    in_words(rewritten, "rewritten, repaired or recovered, at least those", "in headers, of a later generation");
    rewritten->verdict = rewritten->second <= most ? AUDIT_AGREES : AUDIT_DIFFERS;
    excuse(a, rewritten, 0);
}

/* Rule 6: what is written for the first time in a life, is written once. */
static void check_lives(audit *a, const audit_tier *tier)
{
    const audit_amount *w = tier->rows[AUDIT_WRITTEN], *left = tier->rows[AUDIT_LEFT];
    in_words(check(a, tier->stat.name, "lives", w[KVO_CAUSE_PUT].blocks + w[KVO_CAUSE_DEMOTE].blocks,
                   (int64_t)tier->stat.lives),
             "put or demoted, without rewrites and repairs", "lives");
    in_words(check(a, tier->stat.name, "life_bytes", w[KVO_CAUSE_PUT].bytes + w[KVO_CAUSE_DEMOTE].bytes,
                   (int64_t)tier->stat.life_bytes),
             "put or demoted, without rewrites and repairs", "of lives");
    in_words(check(a, tier->stat.name, "evictions",
                   left[KVO_CAUSE_EVICT].blocks + left[KVO_CAUSE_ORPHAN].blocks + left[KVO_CAUSE_YIELD].blocks +
                       left[KVO_CAUSE_RESIZE].blocks,
                   (int64_t)(tier->stat.clean_discards + tier->stat.other_evictions)),
             "left to make room", "evictions");
}

static audit_amount sum_of(const audit *a, int direction, int cause)
{
    audit_amount sum = {0, 0};
    for (uint32_t i = 0; i < a->tier_count; i++) {
        add(&sum, a->tiers[i].rows[direction][cause].blocks, a->tiers[i].rows[direction][cause].bytes);
    }
    return sum;
}

/* What is moved is read from one tier and written to another. */
static void check_moves(audit *a)
{
    static const struct {
        int cause;
        const char *blocks, *bytes;
    } moves[] = {{KVO_CAUSE_DEMOTE, "demoted", "demoted_bytes"},
                 {KVO_CAUSE_PROMOTE, "promoted", "promoted_bytes"},
                 {KVO_CAUSE_REPAIR, "repaired", "repaired_bytes"}};
    for (size_t i = 0; i < sizeof moves / sizeof moves[0]; i++) {
        audit_amount from = sum_of(a, AUDIT_READ, moves[i].cause), to = sum_of(a, AUDIT_WRITTEN, moves[i].cause);
        in_words(check(a, NULL, moves[i].blocks, from.blocks, to.blocks), "read from tiers", "written to tiers");
        in_words(check(a, NULL, moves[i].bytes, from.bytes, to.bytes), "read from tiers", "written to tiers");
    }
    int64_t promotions = 0;
    for (uint32_t i = 0; i < a->tier_count; i++) {
        promotions += (int64_t)a->tiers[i].stat.promotions;
    }
    in_words(check(a, NULL, "promotions", sum_of(a, AUDIT_WRITTEN, KVO_CAUSE_PROMOTE).blocks, promotions),
             "written to tiers", "promotions");
    int64_t carried = sum_of(a, AUDIT_READ, KVO_CAUSE_REWRITE).blocks; /* on their way down */
    in_words(check(a, NULL, "rewrites", sum_of(a, AUDIT_WRITTEN, KVO_CAUSE_REWRITE).blocks - carried,
                   (int64_t)a->store.rewrites),
             "rewritten, without what was moved then", "rewrites");
}

static void check_delta(audit *a)
{
    uint64_t more = 0;
    for (unsigned i = 1; i < KVO_TIERS_MAX; i++) {
        more += a->delta[i][2];
    }
    in_words(check(a, NULL, "delta", (int64_t)more, 0), "lives here demoted twice or more into a tier", "may be");
}

static void check_all(audit *a)
{
    for (uint32_t i = 0; i < a->tier_count; i++) {
        if (a->tiers[i].stat.present) {
            check_what_is_there(a, &a->tiers[i]);
        }
        check_lives(a, &a->tiers[i]);
    }
    check_moves(a);
    check_delta(a);
    for (unsigned i = 0; i < a->check_count; i++) {
        a->verdict = a->checks[i].verdict > a->verdict ? a->checks[i].verdict : a->verdict;
    }
}

int cli_audit_take(kvo_store *store, audit *a)
{
    static const cli_selected all = {.target = {.by = KVO_BY_ALL}};
    a->store = (kvo_stat)KVO_STAT_INIT;
    a->tenants = cli_alloc(AUDIT_TENANTS, sizeof *a->tenants);
    int status = kvo_stat_store(store, &a->store);
    a->tier_count = a->store.tier_count < AUDIT_TIERS ? a->store.tier_count : AUDIT_TIERS;
    for (uint32_t i = 0; status == KVO_OK && i < a->tier_count; i++) {
        status = kvo_stat_tier(store, i, &a->tiers[i].stat);
    }
    if (status == KVO_OK) {
        status = take_ledger(store, a);
    }
    if (status != KVO_OK) {
        return cli_fail("audit: %s", kvo_status_text(status));
    }
    if (cli_select_walk(store, &all, take_block, a) != 0) {
        return CLI_FAIL;
    }
    check_all(a);
    return 0;
}
