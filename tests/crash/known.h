/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process that is going to be killed knows of its blocks, in memory that outlives it. Before a
 * call what may be found is widened, after its answer it is narrowed, so that at each moment a crash may
 * leave no more and no less than is written here. A name has one owner at a time, a thread of the writer or
 * the checker. The bytes of a block follow from its name's number and a version; two versions differ in bytes and
 * mostly in length.
 */
#ifndef CRASH_KNOWN_H
#define CRASH_KNOWN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvonce.h"

enum {
    KNOWN_NAMES = 192,
    KNOWN_OWNERS = 4,     /* each has every fourth name */
    KNOWN_GROUP = 4,      /* names of one owner and one sequence */
    KNOWN_STRANGERS = 32, /* numbers behind them: names that nobody ever puts */
    KNOWN_NAME_BYTES = 32,
    KNOWN_PAYLOAD_MAX = 131072
};

typedef struct known_name {
    _Atomic uint32_t oldest, newest; /* versions that may be found; none if oldest > newest */
    _Atomic uint32_t floor;          /* what is older was removed or rewritten, and may never be back */
    _Atomic uint32_t may_miss;
    _Atomic uint32_t evicted;        /* for lack of room: it may be gone, or back from `floor` on */
    _Atomic uint32_t current;        /* the version that this process's store holds; 0: none, or unknown */
    _Atomic uint32_t policy_oldest, policy_newest;
    _Atomic uint32_t policy_unsure;  /* the newest one may not have been set */
    uint32_t versions;               /* given out so far */
} known_name;

enum { KNOWN_OPENING = 1, KNOWN_WORKING = 2, KNOWN_CLOSING = 3 };

typedef struct known {
    known_name names[KNOWN_NAMES];
    _Atomic uint32_t phase;
    _Atomic uint32_t close_now; /* the writer is asked to close in order */
    _Atomic uint64_t steps;
    uint32_t policies_given[KNOWN_OWNERS]; /* by each owner */
    /* What went wrong, first one only. */
    _Atomic uint32_t wrong_line;
    char wrong[256];
    /* Counted by the checker. */
    _Atomic uint64_t verified, policies, wrong_bytes, lost, returned, evictions;
} known;

known *known_new(void); /* shared with children; NULL: no memory */

void known_name_of(uint64_t number, uint8_t name[KNOWN_NAME_BYTES]);
size_t known_length(uint64_t number, uint32_t version);
void known_payload(void *out, size_t bytes, uint64_t number, uint32_t version);
bool known_payload_is(const void *memory, size_t bytes, uint64_t number, uint32_t version);
kvo_policy known_policy(uint32_t policy);
bool known_policy_is(const kvo_policy *policy, uint32_t number);
uint64_t known_sequence(uint64_t number);

/* on_event of every store: context is the known. */
void known_on_event(void *context, const kvo_event *event);

/* Says what went wrong; the first one is kept. */
void known_say(known *k, uint32_t line, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- one name around a call ---- */

typedef struct known_before {
    uint32_t newest, may_miss, policy_newest, policy_unsure;
    uint32_t version, policy; /* tried */
} known_before;

known_before known_put_begin(known_name *n, uint32_t policy);
known_before known_rewrite_begin(known_name *n);
/* reached: it is at the level that survives. */
void known_put_done(known_name *n, const known_before *b, bool reached);
/* old_gone: what was there before is off the medium as far as a crash of this kind goes. */
void known_rewrite_done(known_name *n, const known_before *b, bool reached, bool old_gone);
void known_undone(known_name *n, const known_before *b); /* nothing was changed */
void known_reached(known_name *n);                       /* what is there now is at that level */
void known_remove_begin(known_name *n);
void known_remove_done(known_name *n, bool reached);
known_before known_policy_begin(known_name *n, uint32_t policy);
void known_policy_done(known_name *n, const known_before *b, bool set);
void known_policy_written(known_name *n);

#endif
