/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: where control plane and data plane meet.
 *
 * One mutex, `lock`, guards what changes the structure: index, free records, slots, queues of
 * victims, pins, holds. It is never held over I/O or a payload's copy. Look-ups, policies and
 * touches take no lock; they work on the atomic words of the records.
 *
 * What keeps a copy from going while the lock is not held: a pin (readers), MOVING (a transfer
 * reads it, or its block is about to be demoted), FILLING (somebody writes it). Whoever sets one
 * of them clears it, under the lock, and wakes waiters with store_changed().
 */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include <pthread.h>

#include "base/bits.h"
#include "base/check.h"
#include "base/env.h"
#include "base/names.h"
#include "base/options.h"
#include "base/planted.h"
#include "base/status.h"
#include "base/thread.h"
#include "block/digest.h"
#include "block/identity.h"
#include "block/policy.h"
#include "block/record.h"
#include "index/index.h"
#include "ledger/ledger.h"
#include "move/move.h"
#include "place/memory.h"
#include "place/segments.h"
#include "place/victims.h"
#include "tier/tier.h"

#define STORE_WINDOW 32u /* blocks of a batch that are in transfer at the same time */

/* A free slot whose header on the medium still says what was there. */
typedef struct store_stale {
    uint64_t hash; /* of the name; 0: not known */
    uint32_t slot;
    uint32_t epoch;   /* of its segment; another one there now: the header is void anyway */
    uint32_t next[2]; /* in the lists by slot and by hash, + 1; of a free entry: the next free one */
    bool used;
    bool keep; /* what is there may be whole: only a remove or a rewrite of its name needs it gone */
} store_stale;

/* See stale.c. */
typedef struct store_stale_table {
    store_stale *entries; /* max; then the lists' heads, `max` each, and the bits */
    uint32_t *heads[2];
    uint64_t *lost; /* segments with free slots that there was no entry for, one bit each */
    uint32_t max, end, count, free_first, lost_count;
    size_t bytes;
} store_stale_table;

/* Headers on media that somebody is writing dead ones over: until that has ended nobody may say that their names are
   gone. On the stack of who does it. See stale.c. */
typedef struct store_erasure {
    const uint64_t *hashes; /* of names; 0: not known whose header it is */
    size_t count;
    uint64_t turn;
    bool doomed; /* copies of removed blocks; else slots that were in the table */
    struct store_erasure *next;
} store_erasure;

/* Part of a tier's array of victims: those for one slot size. */
typedef struct store_queue {
    uint32_t stride, first, count;
} store_queue;
#define STORE_QUEUES 32u /* beside the one in use */

typedef struct store_tier {
    tier_medium *io; /* NULL in a ghost */
    kvo_store *store;
    unsigned number;
    char name[16];
    char path[256];
    bool persistent;
    bool byte_addressable;
    unsigned account;
    uint64_t slots; /* for the usual block; 0 if infinite */
    place_segments space;
    _Atomic uint64_t resident;
    _Atomic uint32_t max_delta;

    /* The next victims, worst first. Where slot sizes mix each has its own, in turn in one array. */
    place_victim *queue;
    uint32_t queue_first, queue_count;
    uint32_t queue_stride;
    uint32_t queue_end; /* of the one filled last */
    store_queue parked[STORE_QUEUES];
    uint64_t *queued;             /* one bit a record */
    _Atomic uint64_t queue_limit; /* the best key in them; 0 = empty */
    atomic_bool queue_old;        /* a policy put some block before the queue's end */
    bool demoting;                /* a thread is bringing the queue's blocks down */
    uint64_t look_units;          /* space.taken_units at which another segment may be looked for again */

    /* The mover's, under the lock. */
    uint32_t wanted_stride; /* of the last slot that was asked for */
    uint32_t ahead;         /* victims to keep clean, free slots included */
    uint32_t clean;         /* at the front of the queue, as far as known */
    uint64_t taken;         /* slots, since the mover looked */
    uint64_t looked_ns;
    uint64_t rest_until_ns; /* after a failure */
    uint64_t per_second;    /* slots taken, smoothed */
    uint64_t batch_ns;      /* for the last batch, smoothed */
    struct {                /* what a call with a deadline has the mover do; see room.c */
        bool asked;
        uint32_t stride;
        uint64_t best;
        uint64_t round; /* how often it was done */
        int status;     /* of the last time */
    } room;

    /* Of persistent tiers. */
    uint64_t *dirty;            /* one bit a policy page; of the write-out that runs */
    uint64_t policy_pages;
    store_stale_table stale;
    unsigned described; /* spaces in its note when it was opened */
    uint64_t *tier_recency; /* planted(ANCHOR): last uses in this tier alone, as ordinary tiers have it; else NULL */
    size_t dirty_bytes;
} store_tier;

#define STORE_OVER 1u /* a deadline that is over; 0: nothing is waited for but one's own transfers */

typedef struct store_space {
    bool used;
    char label[BASE_SPACE_LABEL_MAX + 1];
    base_space_record *record; /* made with the space's first use, kept to the end */
    uint8_t digest[32];
} store_space;

typedef struct store_pin {
    uint32_t record; /* BLOCK_NONE: free */
    uint32_t generation;
    uint32_t next; /* free list, + 1 */
} store_pin;

typedef struct store_hold {
    uint64_t token; /* 0: free */
    uint64_t deadline_ns;
    uint32_t record;
    uint32_t incarnation;
    uint32_t next; /* same token, or the free list; + 1 */
} store_hold;

typedef struct store_staging store_staging; /* put.c */

#define JOBS_WORKERS_MAX 64u

/* jobs.h: what was submitted, and who runs it. */
typedef struct store_jobs {
    pthread_mutex_t lock;
    pthread_cond_t wake; /* workers: a job is ready */
    pthread_cond_t done; /* who waits for reports */
    struct store_job *ready, **ready_end;
    struct store_job *parked, **parked_end; /* busy when last tried */
    atomic_bool tell;         /* there are some: store_changed() wakes a worker */
    uint64_t release_ns;      /* before it no other parked job is tried */
    struct store_job *spare;  /* memory of small jobs, for the next ones */
    uint32_t spare_count;
    kvo_queue *queues;
    pthread_t workers[JOBS_WORKERS_MAX];
    uint32_t worker_count;
    bool stopping;
} store_jobs;

struct kvo_store {
    base_env *env;
    int64_t process;
    kvo_options options;
    bool ghost, read_only, exclusive, anchored;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    _Atomic uint32_t waiting; /* threads that wait for `changed`, and one for all parked jobs */
    _Atomic uint64_t changes; /* how often store_changed() was called */

    store_tier tiers[KVO_TIERS_MAX];
    unsigned tier_count;
    unsigned home; /* first persistent tier; KVO_NO_TIER */
    unsigned persistent; /* tiers that are, one bit each */

    block_record *records;
    block_identity_words *identities;
    uint32_t records_max;
    _Atomic uint32_t record_end; /* records [0, end) have been used */
    uint32_t free_first;         /* + 1 */
    _Atomic uint64_t *changed_records; /* one bit a record whose policy or recency changed since
                                          the last write-out; NULL: nothing to write out to */

    index_table index;
    place_memory memory;
    place_scan scan;
    ledger ledger;
    move_engine *engine;
    _Atomic uint64_t clock; /* block references */
    _Atomic uint64_t write_number;
    uint64_t epoch_s;                   /* what intents' deadlines count from */
    uint64_t opened_s, opened_ns;       /* when it was opened: after the epoch, and on the monotonic clock */
    bool gaps; /* a parent may be here without its children's knowing */

    store_space spaces[KVO_SPACES_MAX + 1];
    store_pin *pins;
    uint32_t pin_free;
    store_hold *holds;
    uint32_t hold_free;
    uint64_t hold_token;
    uint64_t blocks, pinned, held, reserved;
    store_staging *staging; /* memory of reservations that the first tier cannot give */

    store_erasure *erasures;
    uint64_t erasure_turns;

    pthread_mutex_t write_out_lock; /* one write-out at a time */
    pthread_mutex_t flush_lock;     /* one flush that makes copies safe at a time; taken first */
    pthread_t keeper;
    pthread_mutex_t keeper_lock;
    pthread_cond_t keeper_wake;
    bool keeper_runs, keeper_stops;
    pthread_t mover;
    pthread_cond_t mover_wake; /* with `lock` */
    bool mover_runs, mover_stops, mover_asked;
    pthread_t closer;
    int64_t closing;  /* the process that closes it; `process` is nobody's then, so that no other call comes in */
    bool closer_runs;
    bool closed;      /* with `lock`: the closer is done */
    int close_result;
    uint64_t close_deadline;
    store_jobs jobs;
    _Atomic uint32_t intents; /* some block may have an intent to carry out */
    atomic_bool intents_left; /* one could not be carried out yet */
    _Atomic uint64_t activity;      /* anything that a write-out would write */
    uint64_t recovered, unfinished, damaged, scanned;
    _Atomic uint64_t payload_copies, demoted_ahead; /* see kvo_stat */
};

/* ---- enter.c: what every public call begins with ---- */

int store_enter(kvo_store *s);
int store_check_names(const kvo_store *s, const kvo_names *names);
/* Seconds since the epoch: the wall clock's when it was opened, the monotonic one's from then on, so that a clock that
   is set ends no intent and makes none everlasting. */
void store_clock_start(kvo_store *s, uint64_t epoch_s);
uint32_t store_now_s(kvo_store *s);
uint64_t store_deadline(kvo_store *s, uint64_t ns); /* absolute; KVO_FOREVER stays */
/* The same of a call that may need room: for 0 a time that is over. It waits for nothing either, but what has to be
   written to make room is the mover's then. */
uint64_t store_patience(kvo_store *s, uint64_t ns);
/* Under the lock: waits for store_changed(); false when the deadline has passed. */
bool store_wait(kvo_store *s, uint64_t deadline);
void store_changed(kvo_store *s);
void store_log(kvo_store *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
void store_event(kvo_store *s, kvo_event_type type, kvo_cause cause, unsigned tier, uint32_t record);
void store_answer(const kvo_store *s, uint32_t record, kvo_answer *answer);

/* ---- record.c: birth, life and end of a block ---- */

/* A record by handle, live, or BLOCK_NONE. */
uint32_t store_by_handle(const kvo_store *s, kvo_handle handle);
/* A sealed block that a rewrite hides just now: it is there, and will be again. */
bool store_hidden(const kvo_store *s, uint32_t record);
unsigned store_tenant(const kvo_store *s, uint32_t record);
/* A use; `recency` as block_touch. */
void store_touch(kvo_store *s, uint32_t record, uint64_t recency);
/* Who uses a block uses its prefix: no ancestor is less recent than its descendant, so that chains
   leave from their end. Stops at the first that is recent enough. */
void store_raise_ancestors(kvo_store *s, uint32_t record, uint64_t recency);
/* Its order of eviction may have become worse: queues look again. */
void store_reorder(kvo_store *s, uint32_t record, uint32_t now_s);
/* Under the lock. BLOCK_NONE: none free. */
uint32_t store_record_take(kvo_store *s);
void store_record_free(kvo_store *s, uint32_t record);
/* Under the lock: sets parent and depth from the identity; a queued parent leaves its queues. */
void store_link(kvo_store *s, uint32_t record);
/* Under the lock, before a scan: parents that came back find their children again. */
void store_relink(kvo_store *s);
/* Under the lock: a copy has become valid, or goes. */
void store_copy_set(kvo_store *s, uint32_t record, unsigned tier, uint64_t copy);
/* false: somebody reads or moves it. `stale`: the header on the medium stays for now. `cause`, for the ledger; NONE:
   it was not counted when it came. */
bool store_copy_drop(kvo_store *s, uint32_t record, unsigned tier, bool stale, kvo_cause cause);
/* One that is closed to readers, whose header is dead: in one step, or a late reader could pin it between. */
void store_copy_end(kvo_store *s, uint32_t record, unsigned tier, kvo_cause cause);
/* What is gone but for somebody who reads it leaves the ledger now: nobody will at a close. */
void store_count_gone(kvo_store *s);
/* The record of a block's parent while that is here, or BLOCK_NONE. */
uint32_t store_parent(const kvo_store *s, uint32_t record);
/* Takes a name out of the index: it is free for another block, this one goes when it can. */
void store_doom(kvo_store *s, uint32_t record);
/* The slots of persistent tiers are numbered with their records, + 1. */
uint64_t store_policy_place(const store_tier *t, uint32_t slot);
/* Under the lock: the record that has its copy at that place of the policy file, or BLOCK_NONE. */
uint32_t store_record_at(const store_tier *t, uint64_t place);
/* Ends the life of a block without copies. */
void store_end(kvo_store *s, uint32_t record, kvo_cause cause);
/* Under the lock: a copy went. Where no other may serve the block goes too: at once, or, where one that was found bad
   is read, with its last reader. */
void store_end_without(kvo_store *s, uint32_t record, unsigned tier, kvo_cause cause);
/* A doomed block whose last pin went. */
void store_reap(kvo_store *s, uint32_t record);
/* Drops one reader's pin. Not under the lock. */
void store_unpin(kvo_store *s, uint32_t record, unsigned tier);
/* A copy that did not match its digest: never served again, and its name is free at once if it was
   the last one. The caller's pin on it is given up. Not under the lock. */
void store_quarantine(kvo_store *s, uint32_t record, unsigned tier, int result);
/* Under the lock: the same for a copy that nobody pinned to read it. `result`: -EBADMSG, or why it
   could not be read, which leaves it on the medium for the next open. */
void store_retire(kvo_store *s, uint32_t record, unsigned tier, int result);
/* Under the lock: the copies on media are lost (their headers may be dead); the block goes with them
   unless memory has it. */
void store_lose_media(kvo_store *s, uint32_t record);
/* Whether a failed read speaks of that copy alone: the device still answers. Does I/O. */
bool store_copy_lost(kvo_store *s, unsigned tier, int result);
/* stale.c */
size_t store_stale_bytes_for(uint64_t slots, uint32_t segment_count);
int store_stale_open(store_tier *t, base_env *env, uint64_t slots); /* 0 or -ENOMEM */
void store_stale_close(store_tier *t, base_env *env);
/* Under the lock. hash 0: it is not known what the header says. */
void store_stale_add(kvo_store *s, unsigned tier, uint32_t slot, uint64_t hash, bool keep);
void store_stale_forget(store_tier *t, uint32_t slot);

/* ---- room.c, demote.c ---- */

/* Under the lock, which it may let go. KVO_OK and a slot; KVO_BUSY, KVO_FULL. deadline 0: try once. */
int store_room(kvo_store *s, unsigned tier, uint32_t payload_bytes, uint64_t deadline, uint32_t *slot,
               bool *waited);
/* The same for a control record. */
int store_room_record(kvo_store *s, uint64_t deadline, uint32_t *record);
/* Under the lock, which it lets go for the writes: brings copies of blocks into a lower tier.
   results[i]: KVO_OK; KVO_BUSY, KVO_FULL, KVO_E_IO; KVO_SHORT (only anchors are in the way); KVO_GONE
   (the block is not there any more). */
void store_demote(kvo_store *s, const uint32_t *records, size_t count, unsigned to, int *results);
uint32_t store_stride(kvo_store *s, unsigned tier, uint32_t payload_bytes);
/* Under the lock, which it may let go: one batch of the next victims that lie nowhere below. KVO_OK: some
   were brought down; KVO_MISS: there is nothing to do; else why not. */
int store_demote_ahead(kvo_store *s, unsigned tier);
/* As store_room(), tried once, without a slot of blocks that an intent keeps. */
int store_room_ordinary(kvo_store *s, unsigned tier, uint32_t payload_bytes, uint32_t *slot);
/* Under the lock, which it may let go: does what store_room() has asked of the mover. */
void store_room_answer(kvo_store *s, unsigned tier);
/* Under the lock: whether less room is ready than is wanted. */
bool store_room_low(const kvo_store *s, unsigned tier, uint32_t ahead);
/* mover.c: the thread that demotes ahead of need. */
int store_mover_start(kvo_store *s); /* a kvo_status */
void store_mover_stop(kvo_store *s);
/* Under the lock: a slot of the tier was taken. */
void store_mover_nudge(kvo_store *s, store_tier *t);
/* Under the lock: there is something to do. */
void store_mover_wake(kvo_store *s);
tier_io store_io(kvo_store *s, uint32_t record, unsigned tier, uint32_t slot, void *memory);

/* ---- sync.c, persist.c, checkpoint.c, recover.c, hold.c, check.c ---- */

int store_write_out(kvo_store *s, bool clean);
int store_keeper_start(kvo_store *s); /* a kvo_status */
void store_keeper_stop(kvo_store *s);
/* Invalidates the headers of stale slots, of one name or (hash 0) all, and waits for those that others are at; of
   `own`, removed blocks of the caller's (or NULL), only those of earlier removes. Takes the lock itself. A negative
   errno: -ETIMEDOUT if some were in use until the deadline. */
int store_invalidate_stale(kvo_store *s, uint64_t hash, const store_erasure *own, uint64_t deadline);
/* Under the lock. */
void store_erasure_begin(kvo_store *s, store_erasure *e, const uint64_t *hashes, size_t count);
void store_erasure_end(kvo_store *s, store_erasure *e);
/* At recovery and close: of blocks that are gone, sparing copies that only could not be read. */
int store_invalidate_evicted(kvo_store *s);
/* Writes dead headers over the copies of blocks that nobody finds any more; 0 or negative errno. */
int store_invalidate_copies(kvo_store *s, const uint32_t *records, size_t count, int level);
/* What the calls of these names check first: a kvo_status. */
int store_prefetch_check(kvo_store *s, const kvo_names *names, const kvo_answer *answers);
int store_sync_check(const kvo_store *s, const kvo_target *target, int level);
/* The end of a remove at level KVO_SAFE: a flush, without which no answer may say that it is. 0 or a negative errno. */
int store_remove_flush(kvo_store *s, kvo_answer *answers, size_t count);
int store_remove_check(const kvo_store *s, const kvo_target *target, int level);
/* Brings blocks into the first tier, without a use; deadline as store_deadline() makes it. tentative: as
   fetch_batch has it. */
void store_prefetch(kvo_store *s, const kvo_names *names, uint64_t deadline, bool tentative, kvo_answer *answers);
/* jobs.c, queue.c, of open and close. KVO_BUSY: a job still runs, and all queues stay. */
void store_jobs_open(kvo_store *s);
int store_queues_close(kvo_store *s, uint64_t deadline); /* absolute */
void store_jobs_close(kvo_store *s);
void store_jobs_memory_free(kvo_store *s);
/* Some block has a new intent: the keeper looks. */
void store_intents_changed(kvo_store *s);
/* All is written and flushed, and nobody else calls: the next write-out is the clean one. What goes wrong
   costs the next opening its speed, nothing else. */
void store_checkpoint_write(kvo_store *s);
/* Whether one close wrote the checkpoints of exactly these tiers, and none has changed since. */
bool store_checkpoint_there(kvo_store *s);
int store_recover(kvo_store *s, kvo_error *error);
/* Once the media may be written. */
int store_recover_finish(kvo_store *s, kvo_error *error);
int store_spaces_load(kvo_store *s, kvo_error *error);
int store_spaces_save(kvo_store *s);
/* A medium that is new in this store describes its spaces too. */
int store_spaces_complete(kvo_store *s, kvo_error *error);
void store_holds_expire(kvo_store *s);
/* What slots are expected to hold. */
uint64_t store_usual_bytes(const kvo_store *s);
/* Under the lock: all memory but arenas, transfers and what queues hold for jobs. */
size_t store_control_bytes(const kvo_store *s);
/* Frees what is allocated; for open's failures and for close. */
void store_destroy(kvo_store *s);

/* The invariants, spelled out; true, or one line about the first that is broken. For tests and
   audits, at rest. */
bool store_valid(kvo_store *s, char *why, size_t why_bytes);

#define STORE_ENTER(s)            \
    do {                          \
        int r_ = store_enter(s);  \
        if (r_ != KVO_OK)         \
            return r_;            \
    } while (0)

/* The record's policy or recency changed: its copies on disk have an old version. */
static inline void store_dirty(kvo_store *s, uint32_t record)
{
    if (s->changed_records == NULL)
        return;
    _Atomic uint64_t *word = &s->changed_records[record / 64];
    uint64_t bit = 1ull << (record % 64);
    if ((atomic_load_explicit(word, memory_order_relaxed) & bit) == 0)
        atomic_fetch_or(word, bit);
    if (atomic_load_explicit(&s->activity, memory_order_relaxed) == 0)
        atomic_store_explicit(&s->activity, 1, memory_order_relaxed);
}

/* Whether any tier has a queue of victims that a change could make old. */
static inline bool store_queues(kvo_store *s)
{
    for (unsigned t = 0; t < s->tier_count; t++)
        if (atomic_load(&s->tiers[t].queue_limit))
            return true;
    return false;
}

static inline void store_lock(kvo_store *s) { pthread_mutex_lock(&s->lock); }
static inline void store_unlock(kvo_store *s) { pthread_mutex_unlock(&s->lock); }

#endif
