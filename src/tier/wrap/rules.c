/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of a wrapper: how they are written (docs/tiers.md), and which calls they hit. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "tier/wrap/wrap.h"

#define HANG_NS (3600ull * 1000000000u)

static const char *const op_names[WRAP_OPS] = {"read", "write", "remove", "flush", "meta", "any"};

static const struct {
    const char *name;
    int error;
} errors[] = {{"eio", -EIO},       {"enospc", -ENOSPC}, {"enodev", -ENODEV},       {"enxio", -ENXIO},
              {"erofs", -EROFS},   {"enomem", -ENOMEM}, {"etimedout", -ETIMEDOUT}, {"edquot", -EDQUOT},
              {"eacces", -EACCES}, {"eagain", -EAGAIN}};

static const struct {
    const char *name;
    wrap_what what;
    unsigned ops; /* one bit each */
} harms[] = {{"flip", WRAP_FLIP, 1u << WRAP_READ | 1u << WRAP_WRITE},
             {"short", WRAP_SHORT, 1u << WRAP_READ},
             {"torn", WRAP_TORN, 1u << WRAP_WRITE},
             {"lost", WRAP_LOST, 1u << WRAP_WRITE | 1u << WRAP_REMOVE | 1u << WRAP_FLUSH}};

/* ---- reading ---- */

/* A piece of the text; what is taken leaves its front. */
typedef struct cursor {
    const char *at, *end;
} cursor;

static bool left(const cursor *c) { return c->at < c->end; }

static bool take(cursor *c, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0)
        return false;
    c->at += n;
    return true;
}

/* Takes all of what is left. */
static bool take_last(cursor *c, const char *word)
{
    return (size_t)(c->end - c->at) == strlen(word) && take(c, word);
}

static bool digit(const cursor *c) { return left(c) && *c->at >= '0' && *c->at <= '9'; }

static bool take_number(cursor *c, uint64_t *value)
{
    if (!digit(c))
        return false;
    for (*value = 0; digit(c); c->at++) {
        if (*value > (UINT64_MAX - 9) / 10)
            return false;
        *value = *value * 10 + (uint64_t)(*c->at - '0');
    }
    return true;
}

/* "0.DIGITS" behind its "0."; at most nine digits. */
static bool take_chance(cursor *c, uint64_t *chance)
{
    uint64_t unit = WRAP_CERTAIN;
    *chance = 0;
    while (digit(c) && unit > 1) {
        unit /= 10;
        *chance += unit * (uint64_t)(*c->at++ - '0');
    }
    return !left(c) && *chance > 0;
}

/* What follows the '@': 0.01, 100, 5..9, ..9 or 5.. */
static const char *take_when(cursor *c, wrap_rule *rule)
{
    static const char advice[] = "behind '@' comes a chance like 0.01, every how many like 100, or which calls like "
                                 "5..9, ..9 or 5..";
    if (take(c, "0."))
        return take_chance(c, &rule->chance) ? NULL : advice;
    bool number = take_number(c, &rule->first);
    if (number && !left(c)) {
        rule->every = rule->first;
        return rule->every > 0 ? NULL : advice;
    }
    if (!take(c, "..") || (left(c) && !take_number(c, &rule->last)) || left(c))
        return advice;
    return rule->first > 0 && rule->first <= rule->last && (number || rule->last != UINT64_MAX) ? NULL : advice;
}

static bool take_duration(cursor *c, uint64_t *ns)
{
    uint64_t unit = 0;
    if (!take_number(c, ns))
        return false;
    if (take(c, "us"))
        unit = 1000;
    else if (take(c, "ms"))
        unit = 1000000;
    else if (take(c, "s"))
        unit = 1000000000;
    if (unit == 0 || *ns > HANG_NS / unit)
        return false;
    *ns *= unit;
    return true;
}

static const char *take_delay(cursor *c, wrap_rule *rule)
{
    rule->what = WRAP_DELAY;
    if (take_last(c, "hang")) {
        rule->least_ns = rule->most_ns = HANG_NS;
        return NULL;
    }
    bool good = take_duration(c, &rule->least_ns);
    rule->most_ns = rule->least_ns;
    if (good && take(c, ".."))
        good = take_duration(c, &rule->most_ns) && rule->most_ns >= rule->least_ns;
    return good && !left(c) ? NULL : "a delay is a time like 200us, 5ms or 1s, a range like 1ms..20ms, or hang";
}

static const char *take_fault(cursor *c, wrap_rule *rule)
{
    rule->what = WRAP_ERROR;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (take_last(c, errors[i].name)) {
            rule->error = errors[i].error;
            return NULL;
        }
    for (size_t i = 0; i < sizeof harms / sizeof *harms; i++)
        if ((harms[i].ops >> rule->op & 1u) && take_last(c, harms[i].name)) {
            rule->what = harms[i].what;
            return NULL;
        }
    return "a fault is an error like eio or enospc; of reads also flip or short, of writes flip, torn or lost, of "
           "removes and flushes lost";
}

/* OP=WHAT, OP=WHAT@WHEN */
static const char *take_rule(const wrap *w, cursor text, wrap_rule *rule)
{
    cursor c = text;
    *rule = (wrap_rule){.first = 1, .last = UINT64_MAX, .every = 1, .chance = WRAP_CERTAIN};
    while (rule->op < WRAP_OPS && !take(&c, op_names[rule->op]))
        rule->op++;
    if (rule->op == WRAP_OPS || !take(&c, "="))
        return "a rule is read=, write=, remove=, flush=, meta= or any= and what happens then; or seed=N";
    size_t bytes = (size_t)(text.end - text.at);
    snprintf(rule->text, sizeof rule->text, "%.*s", (int)bytes, text.at);
    const char *when = memchr(c.at, '@', (size_t)(c.end - c.at));
    cursor what = {c.at, when ? when : c.end};
    const char *wrong = w->tier.ops == &tier_delay ? take_delay(&what, rule) : take_fault(&what, rule);
    c.at = when ? when + 1 : c.end;
    return wrong == NULL && when ? take_when(&c, rule) : wrong;
}

static const char *take_item(wrap *w, cursor item)
{
    cursor c = item;
    if (take(&c, "seed="))
        return take_number(&c, &w->seed) && !left(&c) ? NULL : "a seed is a whole number";
    if (w->rule_count == WRAP_RULES_MAX)
        return "one rule too many; there are at most 16";
    const char *wrong = take_rule(w, item, &w->rules[w->rule_count]);
    w->rule_count += wrong == NULL;
    return wrong;
}

int wrap_rules_parse(wrap *w, const char *text, kvo_error *error)
{
    const char *kind = w->tier.ops->kind;
    cursor all = {text, text + strcspn(text, "+")};
    w->seed = 1;
    take(&all, kind);
    while (left(&all)) {
        all.at++; /* ':' */
        const char *colon = memchr(all.at, ':', (size_t)(all.end - all.at));
        cursor item = {all.at, colon ? colon : all.end};
        const char *wrong = take_item(w, item);
        if (wrong)
            return base_fail(error, KVO_E_RANGE, "%s, %s: %s", kind,
                             base_quote(item.at, (size_t)(item.end - item.at)).text, wrong);
        all.at = item.end;
    }
    return KVO_OK;
}

/* ---- judging ---- */

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t draw(const wrap *w, uint32_t rule, uint64_t call)
{
    return mix(mix(w->seed + 0x9e3779b97f4a7c15u * (rule + 1)) + 0x9e3779b97f4a7c15u * call);
}

static bool hits(const wrap_rule *rule, uint64_t call, uint64_t drawn)
{
    return call >= rule->first && call <= rule->last && call % rule->every == 0 && drawn % WRAP_CERTAIN < rule->chance;
}

wrap_verdict wrap_judge(wrap *w, wrap_op op)
{
    uint64_t of_op = atomic_fetch_add(&w->calls[op], 1) + 1, of_any = atomic_fetch_add(&w->calls[WRAP_ANY], 1) + 1;
    for (uint32_t i = 0; i < w->rule_count; i++) {
        wrap_rule *rule = &w->rules[i];
        if (rule->op != op && rule->op != WRAP_ANY)
            continue;
        uint64_t call = rule->op == WRAP_ANY ? of_any : of_op, drawn = draw(w, i, call);
        if (!hits(rule, call, drawn))
            continue;
        atomic_fetch_add(&rule->hits, 1);
        atomic_fetch_add(&w->tier.injected, 1);
        uint64_t more = mix(drawn), range = rule->most_ns - rule->least_ns;
        return (wrap_verdict){rule->what, rule->error, rule->least_ns + (range ? more % (range + 1) : 0), more};
    }
    return (wrap_verdict){.what = WRAP_NOTHING};
}

void wrap_rules_log(const wrap *w)
{
    char line[512];
    for (uint32_t i = 0; w->log && i < w->rule_count; i++) {
        const wrap_rule *rule = &w->rules[i];
        snprintf(line, sizeof line, "%s: %s %s: %llu of %llu calls", w->tier.path ? w->tier.path : "dram",
                 w->tier.ops->kind, rule->text, (unsigned long long)atomic_load(&rule->hits),
                 (unsigned long long)atomic_load(&w->calls[rule->op]));
        w->log(w->log_context, line);
    }
}
