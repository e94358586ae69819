/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs and the threads that run them, in turns. A turn of a job that names blocks is a slice of them; each
 * block is tried once without waiting, and those that were busy are tried again later, some in a turn. Other
 * jobs are tried whole. A job that others are in the way of is parked until something changes, so a
 * worker never waits for room or for somebody else's transfer, and no job keeps another one waiting.
 *
 * jobs.lock is a leaf: no other lock is taken under it, and it is never held over work.
 */
#ifndef STORE_JOBS_H
#define STORE_JOBS_H

#include "store/store.h"

#define JOBS_SLICE_BLOCKS 32u
#define JOBS_SLICE_BYTES (64u << 20)

typedef enum job_kind { JOB_PUT, JOB_GET, JOB_PREFETCH, JOB_EXISTS, JOB_SYNC, JOB_REMOVE } job_kind;

typedef struct store_job {
    struct store_job *next;         /* in ready, parked or done; NULL while it runs */
    struct store_job *newer, *older; /* in its queue's list of unfinished jobs */
    kvo_queue *queue;
    kvo_job number;
    void *context;
    size_t alloc_bytes;
    job_kind kind;
    enum { JOB_BLOCKS, JOB_WHOLE, JOB_LEVEL, JOB_DONE } stage;
    bool begun;
    atomic_bool cancelled;

    uint64_t submitted_ns, started_ns, ended_ns;
    uint64_t deadline; /* absolute; 0 = try once */
    uint64_t parked_ns, seen_changes; /* when, and what of store.changes the last try began with */
    uint64_t recency; /* of the batch's first block */

    /* Copies of what was submitted, behind this struct; payload and answers are the caller's. */
    kvo_target target; /* the names of all kinds */
    int level;
    kvo_put_options put;
    kvo_get_options get;
    kvo_segment *segments;
    uint32_t *segment_counts; /* NULL: one a block */
    size_t *segment_first;    /* with segment_counts */
    kvo_answer *answers;
    bool own_answers; /* the caller wants none */

    size_t next_block; /* those before have been tried; JOB_LEVEL: are written, or busy */
    uint32_t *again;   /* of them, the busy ones: a ring. JOB_LEVEL: what the put answered */
    size_t again_first, again_count;
    size_t round; /* of them, not tried again in this round yet */
    bool worth;   /* in this round some came through; JOB_LEVEL: none was busy */
    int status;
    uint64_t removed;
    uint64_t hold_ns, hold; /* of an exists: how long, and its token */
} store_job;

struct kvo_queue {
    kvo_store *store;
    kvo_queue *next;
    int event; /* readable while `done` is not empty */
    bool closing;
    uint32_t jobs_max;
    uint64_t last_number;
    uint64_t pending;    /* unfinished, or done and not taken */
    uint64_t unfinished;
    store_job *oldest, *newest;
    store_job *done, **done_end;
};

/* Under jobs.lock. 0 or a kvo_status. */
int store_workers_start(kvo_store *s);
void store_workers_stop(kvo_store *s);
/* Under jobs.lock: for a worker to take. */
void store_job_ready(kvo_store *s, store_job *job);
/* Under jobs.lock: parked jobs that were cancelled come forward. */
void store_jobs_unpark(kvo_store *s);
/* Waits on jobs.done in steps; false: the deadline has passed. */
bool store_jobs_wait(kvo_store *s, uint64_t deadline);
/* queue.c, under jobs.lock: to its queue's reports. */
void store_job_report(kvo_store *s, store_job *job);

static inline size_t job_count(const store_job *job)
{
    return job->target.by == KVO_BY_NAMES     ? job->target.names.count
           : job->target.by == KVO_BY_HANDLES ? job->target.handle_count
                                              : 0;
}

#endif
