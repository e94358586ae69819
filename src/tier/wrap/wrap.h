/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiers that wrap a tier, for tests of what is built on kvonce: `fault` lets calls fail, turns bits over
 * and loses writes, `delay` holds calls back (docs/tiers.md). Each is a list of rules; what no rule
 * speaks of passes as it is, and so does what the tier behind keeps on its medium.
 *
 * Which call a rule hits follows from its number among the calls of its kind and from the seed, not
 * from time: the same calls in the same order meet the same faults.
 */
#ifndef WRAP_WRAP_H
#define WRAP_WRAP_H

#include <pthread.h>

#include "tier/tier.h"

extern const tier_ops tier_fault;
extern const tier_ops tier_delay;

#define WRAP_RULES_MAX 16u

/* What is called: a block's transfer, dead headers, a flush, anything else; or any of these. */
typedef enum wrap_op { WRAP_READ, WRAP_WRITE, WRAP_REMOVE, WRAP_FLUSH, WRAP_META, WRAP_ANY, WRAP_OPS } wrap_op;

typedef enum wrap_what {
    WRAP_NOTHING,
    WRAP_ERROR, /* not done; the call says so */
    WRAP_SHORT, /* a read: its end does not arrive, and it says so */
    WRAP_FLIP,  /* one bit of the payload is wrong on its way */
    WRAP_TORN,  /* a write: its end does not arrive, and it does not say so */
    WRAP_LOST,  /* not done, and it does not say so */
    WRAP_DELAY
} wrap_what;

typedef struct wrap_rule {
    wrap_op op;
    wrap_what what;
    int error; /* negative errno */
    uint64_t least_ns, most_ns;
    uint64_t first, last, every; /* calls, counted from 1 */
    uint64_t chance;             /* of WRAP_CERTAIN */
    _Atomic uint64_t hits;
    char text[64];
} wrap_rule;
#define WRAP_CERTAIN 1000000000u

typedef struct wrap {
    tier_medium tier;
    base_env *env;
    void (*log)(void *context, const char *line);
    void *log_context;
    wrap_rule rules[WRAP_RULES_MAX];
    uint32_t rule_count;
    uint64_t seed;
    _Atomic uint64_t calls[WRAP_OPS];
    pthread_mutex_t lock; /* to wait with */
    pthread_cond_t never;
} wrap;

/* What happens to one call. */
typedef struct wrap_verdict {
    wrap_what what;
    int error;
    uint64_t delay_ns;
    uint64_t draw; /* for choices that remain: which bit */
} wrap_verdict;

static inline wrap *wrap_of(tier_medium *t) { return (wrap *)t; }

/* rules.c. `text`: "fault:RULE:RULE", up to its end or a '+'. A kvo_status. */
int wrap_rules_parse(wrap *w, const char *text, kvo_error *error);
wrap_verdict wrap_judge(wrap *w, wrap_op op);
void wrap_rules_log(const wrap *w);

/* wrap.c */
void wrap_wait(wrap *w, uint64_t ns);

/* stream.c */
tier_stream *wrap_stream_open(tier_medium *t, bool write);
void wrap_stream_close(tier_stream *stream);
bool wrap_full(const tier_stream *stream, uint32_t payload_bytes);
void wrap_add(tier_stream *stream, tier_io *io);
tier_io *wrap_next(tier_stream *stream, bool wait);

#endif
