/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace of multi-tenant, multi-turn traffic (the model is described in
 * kvonce-trace-synth(1)). Integers only: the same seed gives the same bytes on any machine.
 */
#include "commands.h"
#include "common.h"
#include "options.h"

#include <stdlib.h>
#include <string.h>

#define PROMPTS 4    /* system prompts of a tenant */
#define DOCUMENTS 32 /* documents of a tenant */
#define CONTEXT_TOKENS_MAX 131072u

/* ---- Randomness ---- */

/* Uniform in [0, below). */
static uint64_t uniform(uint64_t *random, uint64_t below)
{
    return ((cli_random(random) >> 32) * below) >> 32;
}

static uint64_t between(uint64_t *random, uint64_t low, uint64_t high)
{
    return low + uniform(random, high - low + 1);
}

/*
 * Exponential with the given mean. Von Neumann's method: how long a run of uniform numbers
 * descends decides, so comparisons do, and no logarithm whose last bit differs between machines.
 */
static uint64_t exponential(uint64_t *random, uint64_t mean)
{
    for (uint64_t whole = 0;; whole++) {
        uint64_t first = cli_random(random) >> 32;
        uint64_t last = first;
        unsigned run = 1;
        for (;; run++) {
            uint64_t now = cli_random(random) >> 32;
            if (now >= last) {
                break;
            }
            last = now;
        }
        if (run % 2 == 1) {
            return whole * mean + ((first * mean) >> 32);
        }
    }
}

/* Zipf with exponent 1: rank r of `count` with weight 1 / (r + 1). */
static uint32_t zipf(uint64_t *random, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += (1u << 24) / (i + 1);
    }
    uint64_t at = uniform(random, sum);
    for (uint32_t i = 0; i + 1 < count; i++) {
        uint64_t weight = (1u << 24) / (i + 1);
        if (at < weight) {
            return i;
        }
        at -= weight;
    }
    return count - 1;
}

/* ---- Blocks ---- */

/* Ids of the full blocks of one text, given out when they are first sent; 0 = not yet. */
typedef struct chain {
    uint64_t *ids;
    size_t room;
} chain;

static uint64_t *chain_at(chain *text, size_t block)
{
    while (block >= text->room) {
        size_t room = text->room == 0 ? 16 : 2 * text->room;
        text->ids = cli_resize(text->ids, room, sizeof *text->ids);
        memset(text->ids + text->room, 0, (room - text->room) * sizeof *text->ids);
        text->room = room;
    }
    return &text->ids[block];
}

typedef struct tenant {
    uint32_t prompt_tokens[PROMPTS];
    uint32_t document_tokens[DOCUMENTS];
    chain prompts[PROMPTS];
    chain documents[PROMPTS][DOCUMENTS]; /* a document behind a prompt: another prefix */
} tenant;

typedef struct session {
    uint64_t next_ms; /* of its next turn */
    uint64_t number;
    uint32_t tenant, prompt;
    uint32_t document; /* DOCUMENTS = none */
    uint32_t turns_left;
    uint32_t shared_tokens, tokens; /* prompt and document; all said so far */
    chain own;
} session;

typedef struct synth {
    uint64_t random, next_id, session_count;
    uint32_t tenant_count, block_tokens, turns;
    uint64_t gap_ms; /* mean time between new sessions */
    uint64_t next_session_ms;
    tenant *tenants;
    session *open; /* a heap: the earliest first */
    size_t open_count, open_room;
} synth;

/* The id of full block `block` of a session: shared as far as its text is. */
static uint64_t full_block(synth *s, session *now, uint32_t block)
{
    tenant *owner = &s->tenants[now->tenant];
    uint64_t end = (uint64_t)(block + 1) * s->block_tokens;
    chain *text = end <= owner->prompt_tokens[now->prompt] ? &owner->prompts[now->prompt]
                  : end <= now->shared_tokens              ? &owner->documents[now->prompt][now->document]
                                                           : &now->own;
    uint64_t *id = chain_at(text, block);
    if (*id == 0) {
        *id = ++s->next_id;
    }
    return *id - 1;
}

static void print_request(synth *s, session *now, uint32_t output)
{
    uint32_t full = now->tokens / s->block_tokens;
    printf("{\"timestamp\": %llu, \"input_length\": %lu, \"output_length\": %lu, \"hash_ids\": [",
           (unsigned long long)now->next_ms, (unsigned long)now->tokens, (unsigned long)output);
    for (uint32_t i = 0; i < full; i++) {
        printf(i == 0 ? "%llu" : ", %llu", (unsigned long long)full_block(s, now, i));
    }
    if (now->tokens % s->block_tokens != 0) {
        /* A block that is not full: the next turn fills it with other tokens, so nobody has it again. */
        printf(full == 0 ? "%llu" : ", %llu", (unsigned long long)s->next_id++);
    }
    printf("], \"tenant\": \"tenant-%lu\", \"session_id\": %llu}\n", (unsigned long)now->tenant + 1,
           (unsigned long long)now->number);
}

/* ---- Sessions ---- */

static int earlier(const session *a, const session *b)
{
    return a->next_ms != b->next_ms ? a->next_ms < b->next_ms : a->number < b->number;
}

static void heap_swap(session *a, session *b)
{
    session kept = *a;
    *a = *b;
    *b = kept;
}

static void heap_up(synth *s, size_t at)
{
    for (; at > 0 && earlier(&s->open[at], &s->open[(at - 1) / 2]); at = (at - 1) / 2) {
        heap_swap(&s->open[at], &s->open[(at - 1) / 2]);
    }
}

static void heap_down(synth *s, size_t at)
{
    for (;;) {
        size_t best = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < s->open_count; child++) {
            best = earlier(&s->open[child], &s->open[best]) ? child : best;
        }
        if (best == at) {
            return;
        }
        heap_swap(&s->open[at], &s->open[best]);
        at = best;
    }
}

static void make_tenants(synth *s)
{
    s->tenants = cli_alloc(s->tenant_count, sizeof *s->tenants);
    for (uint32_t t = 0; t < s->tenant_count; t++) {
        for (uint32_t i = 0; i < PROMPTS; i++) {
            s->tenants[t].prompt_tokens[i] = (uint32_t)between(&s->random, 500, 8000);
        }
        for (uint32_t i = 0; i < DOCUMENTS; i++) {
            s->tenants[t].document_tokens[i] = (uint32_t)between(&s->random, 1000, 24000);
        }
    }
}

static void open_session(synth *s)
{
    session fresh;
    memset(&fresh, 0, sizeof fresh);
    fresh.next_ms = s->next_session_ms;
    fresh.number = s->session_count++;
    fresh.tenant = zipf(&s->random, s->tenant_count);
    fresh.prompt = zipf(&s->random, PROMPTS);
    fresh.document = uniform(&s->random, 100) < 40 ? zipf(&s->random, DOCUMENTS) : DOCUMENTS;
    fresh.turns_left = 1 + (uint32_t)exponential(&s->random, s->turns - 1);
    fresh.shared_tokens = s->tenants[fresh.tenant].prompt_tokens[fresh.prompt];
    if (fresh.document != DOCUMENTS) {
        fresh.shared_tokens += s->tenants[fresh.tenant].document_tokens[fresh.document];
    }
    fresh.tokens = fresh.shared_tokens;
    s->next_session_ms += exponential(&s->random, s->gap_ms);
    s->open = cli_grow(s->open, s->open_count, &s->open_room, sizeof *s->open);
    s->open[s->open_count] = fresh;
    heap_up(s, s->open_count++);
}

/* The earliest session's turn: the user speaks, the model answers, and both are context next time. */
static void take_turn(synth *s)
{
    session *now = &s->open[0];
    now->tokens += 20 + (uint32_t)exponential(&s->random, 300);
    uint32_t output = 10 + (uint32_t)exponential(&s->random, 350);
    print_request(s, now, output);
    now->tokens += output;
    now->next_ms += 15 * (uint64_t)output + 1000 + exponential(&s->random, 45000);
    now->turns_left--;
    if (now->turns_left == 0 || now->tokens > CONTEXT_TOKENS_MAX) {
        free(now->own.ids);
        *now = s->open[--s->open_count];
    }
    heap_down(s, 0);
}

static void free_synth(synth *s)
{
    for (size_t i = 0; i < s->open_count; i++) {
        free(s->open[i].own.ids);
    }
    for (uint32_t t = 0; t < s->tenant_count; t++) {
        for (uint32_t p = 0; p < PROMPTS; p++) {
            free(s->tenants[t].prompts[p].ids);
            for (uint32_t d = 0; d < DOCUMENTS; d++) {
                free(s->tenants[t].documents[p][d].ids);
            }
        }
    }
    free(s->open);
    free(s->tenants);
}

static const cli_command synth_command = {
    "trace synth", NULL, "Prints a trace of multi-tenant, multi-turn traffic: JSON lines with hash_ids.",
    "Equal options give equal bytes on any machine. The traffic is described in\n"
    "kvonce-trace-synth(1).\n\n"
    "examples:\n"
    "  kvonce trace synth --seed 7 --requests 5000 --tenants 16 > trace.jsonl\n"
    "  kvonce trace synth | kvonce replay - --tiers dram:200blk,disk:DIR:1000blk --ghost\n",
    cli_synth_command};

static int parse_synth(synth *s, uint64_t *requests, int argc, char **argv)
{
    const char *seed = NULL, *count = NULL, *tenants = NULL, *tokens = NULL, *turns = NULL, *sessions = NULL;
    const char *operand;
    uint64_t tenant_count, block_tokens, mean_turns, per_hour;
    const cli_option options[] = {
        {"--seed", "N", "another seed, another trace (1)", &seed},
        {"--requests", "N", "requests in all (1000)", &count},
        {"--tenants", "N", "tenants, the first ones busiest (4)", &tenants},
        {"--sessions", "N", "sessions that begin in an hour, on average (600)", &sessions},
        {"--turns", "N", "turns of a session, on average (6)", &turns},
        {"--block-tokens", "N", "tokens of a block (512)", &tokens},
        {NULL, NULL, NULL, NULL}};
    int code = cli_parse(&synth_command, options, argc, argv, &operand);
    if (code >= 0) {
        return code;
    }
    if (cli_number("--seed", seed, 0, UINT64_MAX, 1, &s->random) != 0 ||
        cli_number("--requests", count, 0, 1000000000, 1000, requests) != 0 ||
        cli_number("--tenants", tenants, 1, 65534, 4, &tenant_count) != 0 ||
        cli_number("--sessions", sessions, 1, 3600000, 600, &per_hour) != 0 ||
        cli_number("--turns", turns, 1, 1000, 6, &mean_turns) != 0 ||
        cli_number("--block-tokens", tokens, 1, 65535, 512, &block_tokens) != 0) {
        return CLI_FAIL;
    }
    s->tenant_count = (uint32_t)tenant_count;
    s->block_tokens = (uint32_t)block_tokens;
    s->turns = (uint32_t)mean_turns;
    s->gap_ms = 3600000 / per_hour;
    return -1;
}

int cli_synth_command(int argc, char **argv)
{
    synth s;
    uint64_t requests = 0;
    memset(&s, 0, sizeof s);
    int code = parse_synth(&s, &requests, argc, argv);
    if (code >= 0) {
        return code;
    }
    make_tenants(&s);
    for (; requests != 0 && !ferror(stdout); requests--) {
        while (s.open_count == 0 || s.next_session_ms <= s.open[0].next_ms) {
            open_session(&s);
        }
        take_turn(&s);
    }
    free_synth(&s);
    return cli_finish(CLI_OK);
}
