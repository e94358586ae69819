/* SPDX-License-Identifier: Apache-2.0 */
#include "audit.h"
#include "commands.h"
#include "common.h"
#include "json_out.h"
#include "options.h"
#include "select.h"

#include <stdlib.h>

static const char *const verdicts[] = {"agrees", "open", "differs"};

/* Of a direction, the causes that change what is there; of those read, what was moved. */
static int listed(int direction, int cause)
{
    return direction == AUDIT_LEFT || (cause != KVO_CAUSE_METADATA && cause != KVO_CAUSE_PADDING);
}

static int none(const audit_amount *amount) { return amount->blocks == 0 && amount->bytes == 0; }

/* ---- JSON ---- */

static void json_amount(cli_out *out, const char *key, const audit_amount *amount)
{
    cli_out_object(out, key);
    cli_out_i64(out, "blocks", amount->blocks);
    cli_out_i64(out, "bytes", amount->bytes);
    cli_out_object_end(out);
}

static void json_rows(cli_out *out, const char *key, const audit_tier *tier, int direction)
{
    cli_out_object(out, key);
    for (int cause = 1; cause < KVO_CAUSE_COUNT; cause++) {
        if (listed(direction, cause) && !none(&tier->rows[direction][cause])) {
            json_amount(out, kvo_cause_name(cause), &tier->rows[direction][cause]);
        }
    }
    cli_out_object_end(out);
}

static void json_tier(cli_out *out, const audit_tier *tier)
{
    cli_out_object(out, NULL);
    cli_out_text(out, "name", tier->stat.name);
    cli_out_bool(out, "present", tier->stat.present);
    cli_out_text(out, "path", tier->stat.path);
    json_rows(out, "read", tier, AUDIT_READ);
    json_rows(out, "written", tier, AUDIT_WRITTEN);
    json_rows(out, "left", tier, AUDIT_LEFT);
    cli_out_u64(out, "lives", tier->stat.lives);
    cli_out_u64(out, "life_bytes", tier->stat.life_bytes);
    json_amount(out, "told", &tier->told);
    if (tier->stat.present) {
        json_amount(out, "found", &tier->found);
        json_amount(out, "rewritten", &tier->rewritten);
    } else {
        cli_out_null(out, "found");
        cli_out_null(out, "rewritten");
    }
    cli_out_object_end(out);
}

static void json_delta(cli_out *out, const audit *a)
{
    static const char *const times[] = {"none", "once", "more"};
    cli_out_list(out, "delta");
    for (unsigned i = 1; i < KVO_TIERS_MAX; i++) {
        cli_out_object(out, NULL);
        for (unsigned k = 0; k < 3; k++) {
            cli_out_u64(out, times[k], a->delta[i][k]);
        }
        cli_out_object_end(out);
    }
    cli_out_list_end(out);
}

static int tenant_seen(const audit_tenant *t) { return !none(&t->written) || !none(&t->left) || !none(&t->found); }

static void json_tenants(cli_out *out, const audit *a)
{
    cli_out_list(out, "tenants");
    for (uint32_t i = 0; i < AUDIT_TENANTS; i++) {
        if (tenant_seen(&a->tenants[i])) {
            cli_out_object(out, NULL);
            cli_out_u64(out, "tenant", i);
            json_amount(out, "written", &a->tenants[i].written);
            json_amount(out, "left", &a->tenants[i].left);
            json_amount(out, "found", &a->tenants[i].found);
            cli_out_object_end(out);
        }
    }
    cli_out_list_end(out);
}

static void print_json(const audit *a)
{
    cli_out out = {0, 0};
    cli_out_object(&out, NULL);
    cli_out_text(&out, "verdict", verdicts[a->verdict]);
    cli_out_bool(&out, "closed_in_order", a->store.unclean_tiers == 0);
    cli_out_u64(&out, "headers_read", a->store.headers_read);
    cli_out_u64(&out, "damaged_slots", a->store.damaged_slots);
    cli_out_u64(&out, "unfinished_slots", a->store.unfinished_slots);
    cli_out_list(&out, "tiers");
    for (uint32_t i = 0; i < a->tier_count; i++) {
        json_tier(&out, &a->tiers[i]);
    }
    cli_out_list_end(&out);
    json_delta(&out, a);
    json_tenants(&out, a);
    cli_out_list(&out, "checks");
    for (unsigned i = 0; i < a->check_count; i++) {
        const audit_check *c = &a->checks[i];
        cli_out_object(&out, NULL);
        if (c->tier != NULL) {
            cli_out_text(&out, "tier", c->tier);
        } else {
            cli_out_null(&out, "tier");
        }
        cli_out_text(&out, "check", c->key);
        cli_out_i64(&out, "first", c->first);
        cli_out_i64(&out, "second", c->second);
        cli_out_text(&out, "verdict", verdicts[c->verdict]);
        cli_out_object_end(&out);
    }
    cli_out_list_end(&out);
    cli_out_object_end(&out);
}

/* ---- the table ---- */

static const char *signed_text(int64_t value, char text[CLI_COUNT_TEXT + 1])
{
    text[0] = '-';
    cli_count_text((uint64_t)(value < 0 ? -value : value), text + 1);
    return value < 0 ? text : text + 1;
}

static void print_amount(const char *name, const audit_amount *amount)
{
    char a[CLI_COUNT_TEXT + 1], b[CLI_COUNT_TEXT + 1];
    printf("  %-22s %14s blocks %20s bytes\n", name, signed_text(amount->blocks, a), signed_text(amount->bytes, b));
}

static void print_rows(const audit_tier *tier, int direction, const char *verb)
{
    for (int cause = 1; cause < KVO_CAUSE_COUNT; cause++) {
        char name[32];
        if (listed(direction, cause) && !none(&tier->rows[direction][cause])) {
            (void)snprintf(name, sizeof name, "%s, %s", verb, kvo_cause_name(cause));
            print_amount(name, &tier->rows[direction][cause]);
        }
    }
}

static void print_tier(const audit_tier *tier)
{
    char a[CLI_COUNT_TEXT];
    if (tier->stat.present) {
        printf("%s %s\n", tier->stat.name, tier->stat.path);
    } else {
        printf("%s, not here: nothing to recount\n", tier->stat.name);
    }
    print_rows(tier, AUDIT_WRITTEN, "written");
    print_rows(tier, AUDIT_LEFT, "left");
    print_amount("there by the ledger", &tier->told);
    if (tier->stat.present) {
        print_amount("there by the headers", &tier->found);
        print_amount("of these, rewritten", &tier->rewritten);
    }
    printf("  %-22s %14s\n", "lives", cli_count_text(tier->stat.lives, a));
}

static void print_tenants(const audit *a)
{
    char text[3][CLI_COUNT_TEXT + 1];
    printf("tenant %22s %20s %20s\n", "bytes written", "left", "in headers");
    for (uint32_t i = 0; i < AUDIT_TENANTS; i++) {
        const audit_tenant *t = &a->tenants[i];
        if (tenant_seen(t)) {
            char number[16];
            (void)snprintf(number, sizeof number, "%lu", (unsigned long)i);
            printf("%-8s %20s %20s %20s\n", i == KVO_TENANT_OTHER ? "others" : number,
                   signed_text(t->written.bytes, text[0]), signed_text(t->left.bytes, text[1]),
                   signed_text(t->found.bytes, text[2]));
        }
    }
}

static void print_checks(const audit *a)
{
    char first[CLI_COUNT_TEXT + 1], second[CLI_COUNT_TEXT + 1];
    for (unsigned i = 0; i < a->check_count; i++) {
        const audit_check *c = &a->checks[i];
        printf("%-8s %s%s%s: %s %s, %s %s\n", verdicts[c->verdict], c->tier != NULL ? c->tier : "",
               c->tier != NULL ? " " : "", c->key, signed_text(c->first, first), c->first_is,
               signed_text(c->second, second), c->second_is);
    }
}

static void print_table(const audit *a)
{
    char text[CLI_COUNT_TEXT];
    for (uint32_t i = 0; i < a->tier_count; i++) {
        print_tier(&a->tiers[i]);
    }
    print_tenants(a);
    print_checks(a);
    if (a->store.damaged_slots != 0) {
        printf("%s slot headers are damaged: kvonce verify names them\n", cli_count_text(a->store.damaged_slots, text));
    }
    if (a->store.unclean_tiers != 0) {
        puts("it was not closed in order: the ledger is as of its last write-out, "
             "and the difference is not to be known");
    }
    puts(a->verdict == AUDIT_DIFFERS ? "not balanced"
         : a->verdict == AUDIT_OPEN  ? "balanced but for that"
                                     : "balanced");
}

static const cli_command audit_command = {
    "audit", "DIR[,DIR...]",
    "Recounts the store in DIR from its headers and holds it against its ledger.",
    "A store with several directories has its ledger in the first one: name all, fastest first, with commas\n"
    "between. By cause: what was written, what left, and what must therefore be there; what the headers show;\n"
    "how often a life was written. Nothing is written; the store must not be open elsewhere.\n\n"
    "examples:\n"
    "  kvonce audit /var/lib/kvonce\n"
    "  kvonce audit /var/lib/kvonce --json | jq '.checks[] | select(.verdict != \"agrees\")'\n\n"
    "exit: 0 balanced, as far as a crash lets it be known; 1 not; 2 it could not run.\n",
    cli_audit_command};

int cli_audit_command(int argc, char **argv)
{
    const char *directories;
    const char *json = NULL;
    const cli_option options[] = {{"--json", NULL, "print one JSON object", &json}, {NULL, NULL, NULL, NULL}};
    kvo_store *store;
    int code = cli_parse(&audit_command, options, argc, argv, &directories);
    if (code >= 0) {
        return code;
    }
    if (cli_open_directories(directories, KVO_OPEN_READ_ONLY, &store) != 0) {
        return CLI_FAIL;
    }
    audit *a = cli_alloc(1, sizeof *a);
    code = cli_close_directory(store, cli_audit_take(store, a));
    if (code == CLI_OK) {
        if (json != NULL) {
            print_json(a);
        } else {
            print_table(a);
        }
        code = cli_finish(a->verdict == AUDIT_DIFFERS ? CLI_BAD : CLI_OK);
    }
    free(a->tenants);
    free(a);
    return code;
}
