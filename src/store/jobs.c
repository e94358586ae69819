/* SPDX-License-Identifier: Apache-2.0 */
#include "store/jobs.h"

#include <signal.h>
#include <string.h>
#include <time.h>

#include "store/fetch.h"
#include "store/put.h"

#define BACKOFF_LEAST_NS 500000u
#define BACKOFF_MOST_NS 20000000u

typedef enum slice_end { SLICE_MORE, SLICE_BUSY, SLICE_DONE } slice_end;

/* ---- a part of a batch, as a batch ---- */

static kvo_names names_part(const store_job *job, size_t first, size_t count)
{
    kvo_names part = job->target.names;
    size_t stride = part.stride_bytes ? part.stride_bytes : part.name_bytes;
    part.first = (const uint8_t *)part.first + first * stride;
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
    size_t stride = names->stride_bytes ? names->stride_bytes : names->name_bytes;
    uint32_t positions = job->queue->store->spaces[names->space].record->block_positions;
    o.level = KVO_SEALED;
    o.deadline_ns = 0;
    o.position += (uint32_t)first * (positions ? positions : 1);
    if (o.positions)
        o.positions += first;
    if (o.chained && first)
        o.parent = (const uint8_t *)names->first + (first - 1) * stride;
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

/* Each is tried without waiting. What is busy and may be tried again is not counted yet. */
static void try_blocks(store_job *job, size_t first, size_t count)
{
    kvo_store *s = job->queue->store;
    kvo_names names = names_part(job, first, count);
    kvo_answer *answers = job->answers + first;
    bool tentative = job->deadline != 0;
    if (job->kind == JOB_PREFETCH) {
        store_prefetch(s, &names, 0, answers);
        return;
    }
    kvo_memory memory = memory_part(job, first);
    if (job->kind == JOB_PUT) {
        kvo_put_options o = put_part(job, first);
        store_put(s, &names, &memory, &o, tentative, answers);
        return;
    }
    kvo_get_options o = job->get;
    o.deadline_ns = 0;
    store_get(s, &names, &memory, &o, tentative, answers);
}

/* ---- slices ---- */

static bool late(const store_job *job)
{
    kvo_store *s = job->queue->store;
    return job->deadline != 0 && job->deadline != KVO_FOREVER && s->env->now_ns(s->env) >= job->deadline;
}

/* Runs in slices. */
static bool cut(const store_job *job) { return job->kind <= JOB_PREFETCH && !job->waits; }

/* What was not begun. */
static void leave(store_job *job, int status)
{
    kvo_store *s = job->queue->store;
    size_t count = job_count(job), undone = job->again_count + count - job->next_block;
    for (size_t i = 0; i < job->again_count; i++)
        job->answers[job->again[i]].status = status;
    for (size_t i = job->next_block; job->answers && i < count; i++)
        job->answers[i] = (kvo_answer){.status = status, .tier = KVO_NO_TIER};
    for (size_t i = 0; status == KVO_BUSY && i < undone; i++)
        if (job->kind == JOB_PUT)
            store_count_put(s, status);
        else if (job->kind == JOB_GET)
            store_count_get(s, status);
    job->next_block = count;
    job->again_count = 0;
    if (status == KVO_CANCELLED && (undone || !cut(job)))
        job->status = KVO_CANCELLED;
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
        if (job->answers[i].status == KVO_BUSY && job->deadline != 0)
            job->again[job->again_count++] = (uint32_t)i;
}

/* Those that were busy, one by one. true: for some it was worth it. */
static bool try_again(store_job *job)
{
    size_t left = 0, before = job->again_count;
    for (size_t i = 0; i < before; i++) {
        uint32_t block = job->again[i];
        if (!late(job) && !atomic_load(&job->cancelled))
            try_blocks(job, block, 1);
        if (job->answers[block].status == KVO_BUSY)
            job->again[left++] = block;
    }
    job->again_count = left;
    return left < before;
}

/* A put whose blocks are sealed may ask for more; also after its deadline: what is there counts. */
static slice_end sealed(store_job *job)
{
    job->waits = job->kind == JOB_PUT && job->level > KVO_SEALED;
    return job->waits ? SLICE_MORE : SLICE_DONE;
}

/* Cancelled before it: the blocks are stored, their level is not reached. */
static void leave_level(store_job *job)
{
    for (size_t i = 0; i < job_count(job); i++)
        if (job->answers[i].status == KVO_STORED || job->answers[i].status == KVO_EXISTS) {
            job->answers[i].status = KVO_SHORT;
            job->status = KVO_CANCELLED;
        }
}

static slice_end run_slice(store_job *job)
{
    if (atomic_load(&job->cancelled))
        leave(job, KVO_CANCELLED);
    else if (late(job))
        leave(job, KVO_BUSY);
    if (job->next_block < job_count(job)) {
        try_next(job);
        return SLICE_MORE;
    }
    if (job->again_count && !try_again(job))
        return SLICE_BUSY;
    return job->again_count ? SLICE_MORE : sealed(job);
}

/* What is left of the deadline, as calls take it. */
static uint64_t remaining(const store_job *job)
{
    kvo_store *s = job->queue->store;
    if (job->deadline == 0 || job->deadline == KVO_FOREVER)
        return job->deadline;
    uint64_t now = s->env->now_ns(s->env);
    return job->deadline > now ? job->deadline - now : 0;
}

static void run_whole(store_job *job)
{
    kvo_store *s = job->queue->store;
    bool cancelled = atomic_load(&job->cancelled);
    if (cancelled && job->kind == JOB_PUT)
        leave_level(job);
    else if (cancelled)
        leave(job, KVO_CANCELLED);
    else if (job->kind == JOB_PUT)
        store_sync_answers(s, job->answers, job_count(job), job->level, job->deadline);
    else if (job->kind == JOB_EXISTS && job->hold_ns)
        job->status = kvo_hold(s, &job->target.names, job->hold_ns, &job->hold, job->answers);
    else if (job->kind == JOB_EXISTS)
        job->status = kvo_exists(s, &job->target.names, job->answers);
    else if (job->kind == JOB_SYNC)
        job->status = kvo_sync(s, &job->target, job->level, remaining(job), job->answers);
    else
        job->status = kvo_remove(s, &job->target, job->level, remaining(job), job->answers, &job->removed);
}

/* ---- workers ---- */

void store_job_ready(kvo_store *s, store_job *job)
{
    job->next = NULL;
    *s->jobs.ready_end = job;
    s->jobs.ready_end = &job->next;
    pthread_cond_signal(&s->jobs.wake);
}

/* Takes the next job that may run now. */
static store_job *take(kvo_store *s)
{
    store_jobs *jobs = &s->jobs;
    for (store_job **at = &jobs->ready; *at; at = &(*at)->next) {
        store_job *job = *at;
        if (job->waits && jobs->waiting_count + 1 >= jobs->worker_count)
            continue;
        *at = job->next;
        if (*at == NULL)
            jobs->ready_end = at;
        job->next = NULL;
        return job;
    }
    return NULL;
}

static void park(kvo_store *s, store_job *job)
{
    job->backoff_ns = job->backoff_ns ? 2 * job->backoff_ns : BACKOFF_LEAST_NS;
    if (job->backoff_ns > BACKOFF_MOST_NS)
        job->backoff_ns = BACKOFF_MOST_NS;
    job->not_before_ns = s->env->now_ns(s->env) + job->backoff_ns;
    job->next = s->jobs.parked;
    s->jobs.parked = job;
}

/* Parked jobs whose time has come, or all that were cancelled. */
static void unpark(kvo_store *s, uint64_t now)
{
    for (store_job **at = &s->jobs.parked; *at;) {
        store_job *job = *at;
        if (job->not_before_ns > now && !atomic_load(&job->cancelled)) {
            at = &job->next;
            continue;
        }
        *at = job->next;
        store_job_ready(s, job);
    }
}

void store_jobs_unpark(kvo_store *s) { unpark(s, 0); }

/* In steps where time counts: an environment may have a clock of its own. */
static void wait_step(kvo_store *s, pthread_cond_t *what, uint64_t step_ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + step_ns;
    until.tv_sec += (time_t)(ns / 1000000000u);
    until.tv_nsec = (long)(ns % 1000000000u);
    pthread_cond_timedwait(what, &s->jobs.lock, &until);
}

static void idle(kvo_store *s)
{
    uint64_t step = BACKOFF_MOST_NS;
    if (s->jobs.parked == NULL) {
        pthread_cond_wait(&s->jobs.wake, &s->jobs.lock);
        return;
    }
    for (const store_job *job = s->jobs.parked; job; job = job->next)
        step = job->backoff_ns < step ? job->backoff_ns : step;
    wait_step(s, &s->jobs.wake, step);
}

bool store_jobs_wait(kvo_store *s, uint64_t deadline)
{
    uint64_t now = s->env->now_ns(s->env), step = 50000000u;
    if (deadline == 0 || (deadline != KVO_FOREVER && now >= deadline))
        return false;
    if (deadline != KVO_FOREVER && deadline - now < step)
        step = deadline - now;
    wait_step(s, &s->jobs.done, step);
    return true;
}

/* One turn of a job. Under jobs.lock, which it lets go. */
static void run(kvo_store *s, store_job *job)
{
    store_jobs *jobs = &s->jobs;
    bool waits = job->waits;
    job->running = true;
    jobs->waiting_count += waits;
    pthread_mutex_unlock(&jobs->lock);
    if (job->started_ns == 0)
        job->started_ns = s->env->now_ns(s->env);
    slice_end end = SLICE_DONE;
    if (cut(job))
        end = run_slice(job);
    else
        run_whole(job);
    pthread_mutex_lock(&jobs->lock);
    job->running = false;
    jobs->waiting_count -= waits;
    if (waits) /* another that was passed over may run */
        pthread_cond_signal(&jobs->wake);
    if (end == SLICE_DONE)
        store_job_report(s, job);
    else if (end == SLICE_BUSY && !atomic_load(&job->cancelled))
        park(s, job);
    else {
        job->backoff_ns = 0;
        store_job_ready(s, job);
    }
}

static void *worker(void *argument)
{
    kvo_store *s = argument;
    pthread_mutex_lock(&s->jobs.lock);
    while (!s->jobs.stopping) {
        if (s->jobs.parked)
            unpark(s, s->env->now_ns(s->env));
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
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (jobs->worker_count < s->options.workers &&
           pthread_create(&jobs->workers[jobs->worker_count], NULL, worker, s) == 0)
        jobs->worker_count++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
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
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->jobs.lock, NULL);
    pthread_cond_init(&s->jobs.wake, &monotonic);
    pthread_cond_init(&s->jobs.done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    s->jobs.ready_end = &s->jobs.ready;
}

void store_jobs_close(kvo_store *s)
{
    store_workers_stop(s);
    pthread_cond_destroy(&s->jobs.done);
    pthread_cond_destroy(&s->jobs.wake);
    pthread_mutex_destroy(&s->jobs.lock);
}
