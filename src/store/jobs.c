/* SPDX-License-Identifier: Apache-2.0 */
#include "store/jobs.h"

#include <string.h>

#include "store/fetch.h"
#include "store/put.h"
#include "store/target.h"


#define TRY_NS 5000000u         /* a remove, for a transfer of a block that is to go */
#define RELEASE_NS 2000000u     /* from one parked job's try to the next one's, while none succeeds */
#define RECHECK_NS 250000000u   /* what changes without a word, as a hold that ends */

typedef enum turn_end { TURN_MORE, TURN_BUSY, TURN_DONE } turn_end;

/* ---- a part of a batch, as a batch ---- */

static kvo_names names_part(const store_job *job, size_t first, size_t count)
{
    kvo_names part = job->target.names;
    part.first = (const uint8_t *)part.first + first * part.stride_bytes;
    part.count = count;
    return part;
}

static kvo_memory memory_part(const store_job *job, size_t first)
{
    return (kvo_memory){
        .segments = job->segments + (job->segment_counts ? job->segment_first[first] : first),
        .segment_counts = job->segment_counts ? job->segment_counts + first : NULL,
    };
}

static kvo_put_options put_part(const store_job *job, size_t first)
{
    kvo_put_options o = job->put;
    const kvo_names *names = &job->target.names;
    uint32_t positions = job->queue->store->spaces[names->space].record->block_positions;
    o.level = KVO_SEALED;
    o.position += (uint32_t)first * (positions ? positions : 1);
    if (o.positions)
        o.positions += first;
    if (o.chained && first)
        o.parent = (const uint8_t *)names->first + (first - 1) * names->stride_bytes;
    if (o.parents)
        o.parents = (const uint8_t *)o.parents + first * o.parents_stride_bytes;
    return o;
}

static uint64_t bytes_of(const store_job *job, size_t block)
{
    if (job->segments == NULL)
        return 0;
    kvo_memory memory = memory_part(job, block);
    return store_segments_bytes(memory.segments, memory.segment_counts ? memory.segment_counts[0] : 1);
}

/* Some blocks of a list. */
static void try_remove(store_job *job, size_t first, size_t count)
{
    kvo_store *s = job->queue->store;
    kvo_target part = job->target;
    uint64_t removed = 0;
    if (part.by == KVO_BY_NAMES) {
        part.names = names_part(job, first, count);
    } else {
        part.handles += first;
        part.handle_count = count;
    }
    int level = job->level > KVO_SEALED ? KVO_WRITTEN : KVO_SEALED;
    int r = kvo_remove(s, &part, level, TRY_NS, job->answers + first, &removed);
    job->removed += removed;
    if (r == KVO_SHORT)
        job->status = KVO_SHORT;
}

/* Each is tried once. What is busy and may be tried again is not counted yet. */
static void try_blocks(store_job *job, size_t first, size_t count)
{
    if (job->kind == JOB_REMOVE) { /* it may have handles instead of names */
        try_remove(job, first, count);
        return;
    }
    kvo_store *s = job->queue->store;
    kvo_names names = names_part(job, first, count);
    kvo_answer *answers = job->answers + first;
    bool tentative = job->deadline != 0;
    kvo_memory memory;
    kvo_put_options put;
    switch (job->kind) {
    case JOB_PUT:
        memory = memory_part(job, first);
        put = put_part(job, first);
        store_put_part(s, &names, &memory, &put, job->recency - first, 0, tentative, answers);
        break;
    case JOB_GET:
        memory = memory_part(job, first);
        store_get_part(s, &names, &memory, &job->get, job->recency - first, tentative, answers);
        break;
    default:
        store_prefetch(s, &names, 0, tentative, answers);
    }
}

/* Whether a block's answer is worth another try. */
static bool busy(const store_job *job, size_t block)
{
    const kvo_answer *a = &job->answers[block];
    return job->deadline != 0 && a->status == KVO_BUSY &&
           (a->reserved || job->kind == JOB_PUT || job->kind == JOB_REMOVE);
}

/* ---- turns ---- */

static bool late(const store_job *job)
{
    kvo_store *s = job->queue->store;
    return job->deadline != 0 && job->deadline != KVO_FOREVER && s->env->now_ns(s->env) >= job->deadline;
}

static bool cancelled(const store_job *job) { return atomic_load(&job->cancelled); }

/* Whether a try that others were in the way of may be repeated. */
static bool patient(const store_job *job) { return job->deadline != 0 && !late(job) && !cancelled(job); }

static void count_busy(store_job *job, size_t blocks)
{
    for (size_t i = 0; i < blocks; i++)
        if (job->kind == JOB_PUT)
            store_count_put(job->queue->store, KVO_BUSY);
        else if (job->kind == JOB_GET)
            store_count_get(job->queue->store, KVO_BUSY);
}

static kvo_answer left_as(int status) { return (kvo_answer){.status = status, .tier = KVO_NO_TIER}; }

/* Blocks that were not begun. */
static void leave_rest(store_job *job, int status)
{
    size_t count = job_count(job), first = job->next_block;
    for (size_t i = first; job->answers && i < count; i++)
        job->answers[i] = left_as(status);
    job->next_block = count;
    if (status == KVO_BUSY)
        count_busy(job, count - first);
    else if (first < count)
        job->status = status;
}

/* Blocks that were busy to the last. */
static void leave_again(store_job *job, int status)
{
    size_t count = job_count(job);
    if (status == KVO_BUSY)
        count_busy(job, job->again_count);
    else if (job->again_count)
        job->status = status;
    for (; job->again_count; job->again_count--) {
        job->answers[job->again[job->again_first]] = left_as(status);
        job->again_first = (job->again_first + 1) % count;
    }
}

static void push_again(store_job *job, size_t block)
{
    job->again[(job->again_first + job->again_count++) % job_count(job)] = (uint32_t)block;
}

/* The next blocks of the batch. */
static void try_next(store_job *job)
{
    size_t n = 0, count = job_count(job), first = job->next_block;
    uint64_t bytes = 0;
    while (first + n < count && n < JOBS_SLICE_BLOCKS && bytes < JOBS_SLICE_BYTES)
        bytes += bytes_of(job, first + n++);
    try_blocks(job, first, n);
    job->next_block += n;
    for (size_t i = first; i < first + n; i++)
        if (busy(job, i))
            push_again(job, i);
    job->round = job->again_count;
}

/* Some of those that were busy, one by one. */
static void try_again(store_job *job)
{
    uint64_t bytes = 0;
    for (size_t n = 0; job->round && n < JOBS_SLICE_BLOCKS && bytes < JOBS_SLICE_BYTES; n++) {
        uint32_t block = job->again[job->again_first];
        job->again_first = (job->again_first + 1) % job_count(job);
        job->again_count--;
        job->round--;
        try_blocks(job, block, 1);
        if (busy(job, block)) {
            push_again(job, block);
            continue;
        }
        job->worth = true;
        bytes += bytes_of(job, block);
    }
}

/* All are answered: is there more to do for them? */
static turn_end blocks_done(store_job *job)
{
    size_t count = job_count(job);
    bool put = job->kind == JOB_PUT && job->level > KVO_SEALED;
    for (size_t i = 0; job->kind == JOB_REMOVE && job->status == KVO_OK && i < count; i++)
        if (job->answers[i].status == KVO_BUSY)
            job->status = KVO_BUSY;
    for (size_t i = 0; put && i < count; i++)
        job->again[i] = (uint32_t)job->answers[i].status; /* each try of the level begins from these */
    job->next_block = 0;
    job->worth = true;
    if (!put && !(job->kind == JOB_REMOVE && job->level == KVO_SAFE))
        return TURN_DONE;
    job->stage = JOB_LEVEL;
    return TURN_MORE;
}

/* First every block once, then rounds of those that were busy while a round is worth it, then a round each time
   that something has changed. A job that is late begins no more blocks, but ends its round; one that was parked has
   a round to go, as a call that waits looks once more at its end. */
static turn_end run_blocks(store_job *job)
{
    if (cancelled(job)) {
        leave_rest(job, KVO_CANCELLED);
        leave_again(job, KVO_CANCELLED);
        return blocks_done(job);
    }
    if (job->next_block < job_count(job)) {
        if (late(job))
            leave_rest(job, KVO_BUSY);
        else
            try_next(job);
        return TURN_MORE;
    }
    if (job->round) {
        try_again(job);
        return TURN_MORE;
    }
    if (job->again_count == 0)
        return blocks_done(job);
    if (late(job)) {
        leave_again(job, KVO_BUSY);
        return TURN_MORE;
    }
    bool worth = job->worth;
    job->round = job->again_count;
    job->worth = false;
    return worth ? TURN_MORE : TURN_BUSY;
}

/* Whether a block of a put, if it is one that is there, has the level that was asked for. */
static bool reached(kvo_store *s, kvo_answer *a, int level)
{
    if (a->status != KVO_STORED && a->status != KVO_EXISTS)
        return true;
    uint32_t record = store_by_handle(s, a->handle);
    if (record != BLOCK_NONE)
        store_answer(s, record, a);
    return a->level >= level;
}

/* What a cancelled put leaves undone of its level. */
static turn_end leave_level(store_job *job)
{
    for (size_t i = 0; i < job_count(job); i++) {
        job->answers[i].status = (int)job->again[i];
        if (reached(job->queue->store, &job->answers[i], job->level))
            continue;
        job->answers[i].status = KVO_SHORT;
        job->status = KVO_CANCELLED;
    }
    return TURN_DONE;
}

/* Sealed blocks to their level: written in slices, then one flush. What is there counts, also after the
   deadline. */
static turn_end run_level(store_job *job)
{
    kvo_store *s = job->queue->store;
    bool others = false;
    size_t count = job_count(job), first = job->next_block;
    if (job->kind == JOB_REMOVE) {
        if (store_remove_flush(s, job->answers, count) != 0)
            job->status = KVO_SHORT;
        return TURN_DONE;
    }
    if (cancelled(job))
        return leave_level(job);
    size_t n = count - first < JOBS_SLICE_BLOCKS ? count - first : JOBS_SLICE_BLOCKS;
    for (size_t i = first; i < first + n; i++)
        job->answers[i].status = (int)job->again[i];
    store_sync_answers(s, n ? job->answers + first : NULL, n, KVO_WRITTEN, 0, &others);
    job->worth &= !others;
    job->next_block += n;
    if (job->next_block < count)
        return TURN_MORE;
    if (!job->worth && patient(job)) { /* all of them again: those that are written cost nothing */
        job->next_block = 0;
        job->worth = true;
        return TURN_BUSY;
    }
    if (job->level == KVO_SAFE)
        store_sync_answers(s, job->answers, count, KVO_SAFE, 0, NULL);
    return TURN_DONE;
}

static turn_end run_sync(store_job *job)
{
    kvo_store *s = job->queue->store;
    bool others = false;
    job->status = store_sync(s, &job->target, KVO_WRITTEN, 0, job->answers, &others);
    if (others && patient(job))
        return TURN_BUSY;
    if (cancelled(job) && job->status != KVO_OK)
        job->status = KVO_CANCELLED;
    else if (job->level == KVO_SAFE)
        job->status = store_sync(s, &job->target, KVO_SAFE, 0, job->answers, NULL);
    return TURN_DONE;
}

/* Of a target that names no blocks. */
static turn_end run_remove(store_job *job)
{
    uint64_t removed = 0;
    kvo_store *s = job->queue->store;
    job->status = kvo_remove(s, &job->target, KVO_WRITTEN, TRY_NS, NULL, &removed);
    job->removed += removed;
    if (job->status == KVO_BUSY && patient(job))
        return TURN_BUSY;
    if (cancelled(job) && job->status == KVO_BUSY)
        job->status = KVO_CANCELLED;
    if (job->level == KVO_SAFE && store_remove_flush(s, NULL, 0) != 0)
        job->status = KVO_SHORT;
    return TURN_DONE;
}

static turn_end run_exists(store_job *job)
{
    kvo_store *s = job->queue->store;
    if (job->hold_ns)
        job->status = kvo_hold(s, &job->target.names, job->hold_ns, &job->hold, job->answers);
    else
        job->status = kvo_exists(s, &job->target.names, job->answers);
    return TURN_DONE;
}

static void begin(store_job *job)
{
    kvo_store *s = job->queue->store;
    job->begun = true;
    job->started_ns = s->env->now_ns(s->env);
    bool blocks = job->kind <= JOB_PREFETCH || (job->kind == JOB_REMOVE && target_listed(&job->target));
    job->stage = blocks ? JOB_BLOCKS : JOB_WHOLE;
    if (cancelled(job) || late(job)) {
        bool whole = !blocks || job->kind == JOB_REMOVE;
        job->status = !whole ? KVO_OK : cancelled(job) ? KVO_CANCELLED : KVO_BUSY;
        leave_rest(job, cancelled(job) ? KVO_CANCELLED : KVO_BUSY);
        job->stage = JOB_DONE;
    } else if (job->kind == JOB_GET) {
        job->recency = store_get_uses(s, &job->target.names);
        for (size_t i = 0; i < job_count(job); i++)
            job->answers[i].reserved = 0; /* ours until the report */
    } else {
        job->recency = atomic_load(&s->clock) + job_count(job);
    }
}

static turn_end run_turn(store_job *job)
{
    if (!job->begun)
        begin(job);
    switch (job->stage) {
    case JOB_BLOCKS:
        return run_blocks(job);
    case JOB_LEVEL:
        return run_level(job);
    case JOB_DONE:
        return TURN_DONE;
    default:
        return job->kind == JOB_SYNC ? run_sync(job) : job->kind == JOB_REMOVE ? run_remove(job) : run_exists(job);
    }
}

/* ---- workers ---- */

void store_job_ready(kvo_store *s, store_job *job)
{
    job->next = NULL;
    *s->jobs.ready_end = job;
    s->jobs.ready_end = &job->next;
    pthread_cond_signal(&s->jobs.wake);
}

static store_job *take(kvo_store *s)
{
    store_jobs *jobs = &s->jobs;
    store_job *job = jobs->ready;
    if (job == NULL)
        return NULL;
    jobs->ready = job->next;
    if (jobs->ready == NULL)
        jobs->ready_end = &jobs->ready;
    job->next = NULL;
    if (jobs->parked) /* somebody else has to look after those */
        pthread_cond_signal(&jobs->wake);
    return job;
}

/* Until something changes. While jobs are parked the store's changes are told, as to any who waits. */
static void park(kvo_store *s, store_job *job)
{
    if (s->jobs.parked == NULL)
        atomic_fetch_add(&s->waiting, 1);
    atomic_store(&s->jobs.tell, true);
    job->parked_ns = s->env->now_ns(s->env);
    job->next = NULL;
    *s->jobs.parked_end = job;
    s->jobs.parked_end = &job->next;
    pthread_cond_signal(&s->jobs.wake);
}

/* Whether there may be news for a parked job. */
static bool news(const kvo_store *s, const store_job *job, uint64_t now)
{
    return atomic_load(&s->changes) != job->seen_changes || now - job->parked_ns >= RECHECK_NS;
}

/* Parked jobs that have something to do: those that are late or cancelled all, and gets, which only look for a name;
   of the others one at a time, the one that has waited longest, or each try of many would look through the whole
   store for nothing. */
static void unpark(kvo_store *s, uint64_t now)
{
    store_jobs *jobs = &s->jobs;
    store_job **at = &jobs->parked;
    while (*at) {
        store_job *job = *at;
        bool may = news(s, job, now);
        bool due = cancelled(job) || late(job) || (may && job->kind == JOB_GET);
        if (!due && may && now >= jobs->release_ns) {
            due = true;
            jobs->release_ns = now + RELEASE_NS;
        }
        if (!due) {
            at = &job->next;
            continue;
        }
        *at = job->next;
        store_job_ready(s, job);
    }
    jobs->parked_end = at;
    if (jobs->parked == NULL) {
        atomic_store(&jobs->tell, false);
        atomic_fetch_sub(&s->waiting, 1);
    }
}

void store_jobs_unpark(kvo_store *s)
{
    if (s->jobs.parked)
        unpark(s, s->env->now_ns(s->env));
}

/* Until a parked job is due, as far as that is known; store_changed() tells the rest. */
static void idle(kvo_store *s)
{
    uint64_t now = s->env->now_ns(s->env), step = RECHECK_NS;
    if (s->jobs.parked == NULL) {
        pthread_cond_wait(&s->jobs.wake, &s->jobs.lock);
        return;
    }
    for (const store_job *job = s->jobs.parked; job; job = job->next) {
        uint64_t left = job->deadline == KVO_FOREVER ? RECHECK_NS : job->deadline > now ? job->deadline - now : 1;
        left = news(s, job, now) && left > RELEASE_NS ? RELEASE_NS : left;
        step = left < step ? left : step;
    }
    base_cond_wait(&s->jobs.wake, &s->jobs.lock, step);
}

bool store_jobs_wait(kvo_store *s, uint64_t deadline)
{
    uint64_t now = s->env->now_ns(s->env), step = 50000000u;
    if (deadline == 0 || (deadline != KVO_FOREVER && now >= deadline))
        return false;
    if (deadline != KVO_FOREVER && deadline - now < step)
        step = deadline - now;
    base_cond_wait(&s->jobs.done, &s->jobs.lock, step); /* an environment may have a clock of its own */
    return true;
}

/* One turn of a job. Under jobs.lock, which it lets go. */
static void run(kvo_store *s, store_job *job)
{
    uint64_t changes = atomic_load(&s->changes); /* what changes during the try is worth another */
    pthread_mutex_unlock(&s->jobs.lock);
    turn_end end = run_turn(job);
    pthread_mutex_lock(&s->jobs.lock);
    job->seen_changes = changes;
    if (job->parked_ns && end != TURN_BUSY) /* the next one may have room too */
        s->jobs.release_ns = 0;
    if (end == TURN_DONE)
        store_job_report(s, job);
    else if (end == TURN_BUSY && !cancelled(job))
        park(s, job);
    else
        store_job_ready(s, job);
}

static void *worker(void *argument)
{
    kvo_store *s = argument;
    pthread_mutex_lock(&s->jobs.lock);
    while (!s->jobs.stopping) {
        store_jobs_unpark(s);
        store_job *job = take(s);
        if (job)
            run(s, job);
        else
            idle(s);
    }
    pthread_mutex_unlock(&s->jobs.lock);
    return NULL;
}

int store_workers_start(kvo_store *s)
{
    store_jobs *jobs = &s->jobs;
    while (jobs->worker_count < s->options.workers &&
           base_thread_start(&jobs->workers[jobs->worker_count], worker, s) == 0)
        jobs->worker_count++;
    return jobs->worker_count >= 2 ? KVO_OK : KVO_E_MEMORY;
}

void store_workers_stop(kvo_store *s)
{
    store_jobs *jobs = &s->jobs;
    pthread_mutex_lock(&jobs->lock);
    jobs->stopping = true;
    pthread_cond_broadcast(&jobs->wake);
    pthread_mutex_unlock(&jobs->lock);
    for (uint32_t i = 0; i < jobs->worker_count; i++)
        pthread_join(jobs->workers[i], NULL);
    jobs->worker_count = 0;
}

/* ---- open and close ---- */

void store_jobs_open(kvo_store *s)
{
    pthread_mutex_init(&s->jobs.lock, NULL);
    base_cond_init(&s->jobs.wake);
    base_cond_init(&s->jobs.done);
    s->jobs.ready_end = &s->jobs.ready;
    s->jobs.parked_end = &s->jobs.parked;
}

void store_jobs_close(kvo_store *s)
{
    store_workers_stop(s);
    store_jobs_memory_free(s);
    pthread_cond_destroy(&s->jobs.done);
    pthread_cond_destroy(&s->jobs.wake);
    pthread_mutex_destroy(&s->jobs.lock);
}
