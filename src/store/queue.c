/* SPDX-License-Identifier: Apache-2.0 */
/* Queues: what is submitted is copied into a job, and each job comes back as one report. */
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "store/jobs.h"
#include "store/put.h"
#include "store/target.h"

/* ---- copying what was submitted ---- */

/* Counts with base NULL, then hands out. */
typedef struct space_for {
    uint8_t *base;
    size_t used;
} space_for;

static void *room_for(space_for *f, size_t bytes)
{
    size_t at = f->used;
    f->used += (bytes + 15) / 16 * 16;
    return f->base ? f->base + at : NULL;
}

static const void *copy(space_for *f, const void *from, size_t bytes)
{
    void *to = from && bytes ? room_for(f, bytes) : NULL;
    return to ? memcpy(to, from, bytes) : NULL;
}

/* The names side by side. */
static void copy_names(space_for *f, kvo_names *names)
{
    size_t stride = names->stride_bytes ? names->stride_bytes : names->name_bytes;
    uint8_t *to = room_for(f, names->count * names->name_bytes);
    for (size_t i = 0; to && i < names->count; i++)
        memcpy(to + i * names->name_bytes, (const uint8_t *)names->first + i * stride, names->name_bytes);
    names->first = to;
    names->stride_bytes = names->name_bytes;
}

static void copy_put(space_for *f, const kvo_names *names, kvo_put_options *o)
{
    size_t count = names->count, bytes = names->name_bytes;
    size_t stride = o->parents_stride_bytes ? o->parents_stride_bytes : bytes;
    o->positions = copy(f, o->positions, count * sizeof *o->positions);
    o->parent = copy(f, o->parent, bytes);
    o->parents = o->parents && count ? copy(f, o->parents, (count - 1) * stride + bytes) : NULL;
    o->parents_stride_bytes = stride;
}

static size_t segment_sum(const kvo_memory *memory, size_t count)
{
    size_t sum = count;
    if (memory->segment_counts) {
        sum = 0;
        for (size_t i = 0; i < count; i++)
            sum += memory->segment_counts[i];
    }
    return sum;
}

static void copy_memory(space_for *f, const kvo_memory *memory, store_job *job)
{
    size_t count = job->target.names.count, sum = segment_sum(memory, count);
    void *segments = room_for(f, sum * sizeof *job->segments), *counts = NULL, *first = NULL;
    if (memory->segment_counts) {
        counts = room_for(f, count * sizeof *job->segment_counts);
        first = room_for(f, count * sizeof *job->segment_first);
    }
    job->segments = segments;
    job->segment_counts = counts;
    job->segment_first = first;
    if (segments == NULL)
        return;
    if (sum)
        memcpy(segments, memory->segments, sum * sizeof *job->segments);
    for (size_t i = 0, at = 0; counts && i < count; i++) {
        job->segment_counts[i] = memory->segment_counts[i];
        job->segment_first[i] = at;
        at += memory->segment_counts[i];
    }
}

static void copy_all(space_for *f, const kvo_memory *memory, store_job *job)
{
    kvo_target *t = &job->target;
    if (job->kind == JOB_PUT)
        copy_put(f, &t->names, &job->put);
    if (t->by == KVO_BY_NAMES)
        copy_names(f, &t->names);
    if (t->by == KVO_BY_HANDLES)
        t->handles = copy(f, t->handles, t->handle_count * sizeof *t->handles);
    if (memory)
        copy_memory(f, memory, job);
    if (job->kind <= JOB_PREFETCH || job->kind == JOB_REMOVE)
        job->again = room_for(f, job_count(job) * sizeof *job->again);
    job->own_answers = job->kind == JOB_REMOVE && job->answers == NULL;
    if (job->own_answers)
        job->answers = room_for(f, job_count(job) * sizeof *job->answers);
}

/* Most jobs are small: their memory is kept for the next ones, as mapping it anew costs more than the rest. */
#define SMALL_BYTES 16384u
#define SPARE_MOST 64u

static void *memory_take(kvo_store *s, size_t bytes)
{
    store_job *job = NULL;
    if (bytes == SMALL_BYTES) {
        pthread_mutex_lock(&s->jobs.lock);
        job = s->jobs.spare;
        if (job) {
            s->jobs.spare = job->next;
            s->jobs.spare_count--;
        }
        pthread_mutex_unlock(&s->jobs.lock);
    }
    return job ? job : s->env->alloc(s->env, bytes);
}

static void memory_give(kvo_store *s, store_job *job, size_t bytes)
{
    bool kept = false;
    pthread_mutex_lock(&s->jobs.lock);
    if (bytes == SMALL_BYTES && s->jobs.spare_count < SPARE_MOST) {
        job->next = s->jobs.spare;
        s->jobs.spare = job;
        s->jobs.spare_count++;
        kept = true;
    }
    pthread_mutex_unlock(&s->jobs.lock);
    if (!kept)
        s->env->free(s->env, job, bytes);
}

void store_jobs_memory_free(kvo_store *s)
{
    for (store_job *job; (job = s->jobs.spare) != NULL;) {
        s->jobs.spare = job->next;
        s->env->free(s->env, job, SMALL_BYTES);
    }
}

/* A job of its own from one that points to what the caller gave. */
static store_job *job_make(kvo_store *s, const store_job *given, const kvo_memory *memory)
{
    store_job counted = *given;
    space_for f = {.used = 0};
    room_for(&f, sizeof *given);
    copy_all(&f, memory, &counted);
    size_t bytes = f.used < SMALL_BYTES ? SMALL_BYTES : f.used;
    store_job *job = memory_take(s, bytes);
    if (job == NULL)
        return NULL;
    *job = *given;
    f = (space_for){.base = (uint8_t *)job};
    room_for(&f, sizeof *job);
    copy_all(&f, memory, job);
    job->alloc_bytes = bytes;
    return job;
}

/* Not under jobs.lock. A hold that nobody was told of ends. */
static void job_drop(kvo_store *s, store_job *job)
{
    if (job->hold)
        kvo_release(s, job->hold);
    memory_give(s, job, job->alloc_bytes);
}

/* ---- into the queue, and out ---- */

static int submit(kvo_queue *q, store_job *given, const kvo_memory *memory, uint64_t deadline_ns, kvo_job *number)
{
    kvo_store *s = q->store;
    given->queue = q;
    given->submitted_ns = s->env->now_ns(s->env);
    given->deadline = store_deadline(s, deadline_ns);
    store_job *job = job_make(s, given, memory);
    if (job == NULL)
        return KVO_E_MEMORY;
    pthread_mutex_lock(&s->jobs.lock);
    int r = q->closing ? KVO_E_STATE : q->pending >= q->jobs_max ? KVO_BUSY : KVO_OK;
    if (r == KVO_OK) {
        job->number = ++q->last_number;
        if (number)
            *number = job->number; /* before anybody can report it */
        job->older = q->newest;
        if (q->newest)
            q->newest->newer = job;
        else
            q->oldest = job;
        q->newest = job;
        q->pending++;
        q->unfinished++;
        store_job_ready(s, job);
    }
    pthread_mutex_unlock(&s->jobs.lock);
    if (r != KVO_OK)
        memory_give(s, job, job->alloc_bytes);
    return r;
}

static void unlink_unfinished(kvo_queue *q, store_job *job)
{
    *(job->older ? &job->older->newer : &q->oldest) = job->newer;
    *(job->newer ? &job->newer->older : &q->newest) = job->older;
}

void store_job_report(kvo_store *s, store_job *job)
{
    kvo_queue *q = job->queue;
    static const uint64_t one = 1;
    job->ended_ns = s->env->now_ns(s->env);
    unlink_unfinished(q, job);
    q->unfinished--;
    job->next = NULL;
    *q->done_end = job;
    ssize_t told = q->done_end == &q->done ? write(q->event, &one, sizeof one) : 0;
    (void)told; /* it fails only at 2^64 - 2 of them */
    q->done_end = &job->next;
    pthread_cond_broadcast(&s->jobs.done);
}

/* Under jobs.lock. */
static store_job *take_done(kvo_queue *q)
{
    store_job *job = q->done;
    uint64_t drained;
    if (job == NULL)
        return NULL;
    q->done = job->next;
    q->pending--;
    if (q->done == NULL) {
        q->done_end = &q->done;
        ssize_t got = read(q->event, &drained, sizeof drained);
        (void)got; /* a caller that read it has been told not to */
    }
    return job;
}

/* ---- queues ---- */

static int enter(const kvo_queue *q) { return q ? store_enter(q->store) : KVO_E_ARGUMENT; }

int kvo_queue_open(kvo_store *s, const kvo_queue_options *given, kvo_queue **out)
{
    kvo_queue_options o = KVO_QUEUE_OPTIONS_INIT;
    if (out)
        *out = NULL;
    STORE_ENTER(s);
    int r = base_options_take(&o, sizeof o, given);
    if (r != KVO_OK || out == NULL)
        return r != KVO_OK ? r : KVO_E_ARGUMENT;
    if (o.jobs_max > 65536)
        return KVO_E_RANGE;
    kvo_queue *q = s->env->alloc(s->env, sizeof *q);
    if (q == NULL)
        return KVO_E_MEMORY;
    *q = (kvo_queue){.store = s, .jobs_max = o.jobs_max ? o.jobs_max : 1024, .done_end = &q->done};
    q->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_lock(&s->jobs.lock);
    r = q->event < 0 ? KVO_E_MEMORY : store_workers_start(s);
    if (r == KVO_OK) {
        q->next = s->jobs.queues;
        s->jobs.queues = q;
    }
    pthread_mutex_unlock(&s->jobs.lock);
    if (r != KVO_OK) {
        if (q->event >= 0)
            close(q->event);
        s->env->free(s->env, q, sizeof *q);
        return r;
    }
    *out = q;
    return KVO_OK;
}

/* Under jobs.lock: no more jobs, and what is left is cancelled. */
static void wind_down(kvo_store *s, kvo_queue *q)
{
    q->closing = true;
    for (store_job *job = q->oldest; job; job = job->newer)
        atomic_store(&job->cancelled, true);
    store_jobs_unpark(s);
}

/* Under jobs.lock, which it lets go. false: not in time. */
static bool wait_idle(kvo_store *s, const kvo_queue *q, uint64_t deadline)
{
    while (q->unfinished && store_jobs_wait(s, deadline)) {}
    return q->unfinished == 0;
}

/* Under jobs.lock: out of the store, with its reports. */
static store_job *take_out(kvo_store *s, kvo_queue *q)
{
    kvo_queue **at = &s->jobs.queues;
    while (*at != q)
        at = &(*at)->next;
    *at = q->next;
    return q->done;
}

/* Not under it. */
static void queue_free(kvo_store *s, kvo_queue *q, store_job *reports)
{
    for (store_job *job; (job = reports) != NULL;) {
        reports = job->next;
        job_drop(s, job);
    }
    close(q->event);
    s->env->free(s->env, q, sizeof *q);
}

int kvo_queue_close(kvo_queue *q, uint64_t deadline_ns)
{
    if (q == NULL)
        return KVO_OK;
    int r = enter(q);
    if (r != KVO_OK)
        return r;
    kvo_store *s = q->store;
    uint64_t deadline = store_deadline(s, deadline_ns);
    pthread_mutex_lock(&s->jobs.lock);
    wind_down(s, q);
    bool idle = wait_idle(s, q, deadline);
    store_job *reports = idle ? take_out(s, q) : NULL;
    pthread_mutex_unlock(&s->jobs.lock);
    if (idle)
        queue_free(s, q, reports);
    return idle ? KVO_OK : KVO_BUSY;
}

int store_queues_close(kvo_store *s, uint64_t deadline)
{
    bool idle = true;
    pthread_mutex_lock(&s->jobs.lock);
    for (kvo_queue *q = s->jobs.queues; q; q = q->next)
        wind_down(s, q);
    for (kvo_queue *q = s->jobs.queues; q; q = q->next)
        idle = wait_idle(s, q, deadline) && idle;
    for (kvo_queue *q; idle && (q = s->jobs.queues) != NULL;) {
        store_job *reports = take_out(s, q);
        pthread_mutex_unlock(&s->jobs.lock);
        queue_free(s, q, reports);
        pthread_mutex_lock(&s->jobs.lock);
    }
    pthread_mutex_unlock(&s->jobs.lock);
    return idle ? KVO_OK : KVO_BUSY;
}

/* ---- submitting ---- */

static int check_memory(const kvo_names *names, const kvo_memory *memory, const kvo_answer *answers)
{
    if (memory == NULL || (names->count && (answers == NULL || memory->segments == NULL)))
        return KVO_E_ARGUMENT;
    return KVO_OK;
}

int kvo_submit_put(kvo_queue *q, const kvo_names *names, const kvo_memory *memory, const kvo_put_options *options,
                   kvo_answer *answers, void *context, kvo_job *job)
{
    store_job given = {.kind = JOB_PUT, .context = context, .answers = answers};
    int r = enter(q);
    if (r == KVO_OK)
        r = store_put_begin(q->store, names, options, &given.put);
    if (r == KVO_OK)
        r = check_memory(names, memory, answers);
    if (r != KVO_OK)
        return r;
    given.target = (kvo_target){.by = KVO_BY_NAMES, .names = *names};
    given.level = given.put.level;
    return submit(q, &given, memory, given.put.deadline_ns, job);
}

static int submit_get(kvo_queue *q, store_job *given, const kvo_names *names, const kvo_memory *memory,
                      const kvo_get_options *options, kvo_job *job)
{
    given->get = (kvo_get_options)KVO_GET_OPTIONS_INIT;
    int r = store_check_names(q->store, names);
    if (r == KVO_OK)
        r = base_options_take(&given->get, sizeof given->get, options);
    if (r != KVO_OK)
        return r;
    given->target = (kvo_target){.by = KVO_BY_NAMES, .names = *names};
    return submit(q, given, memory, given->get.deadline_ns, job);
}

int kvo_submit_get(kvo_queue *q, const kvo_names *names, const kvo_memory *memory, const kvo_get_options *options,
                   kvo_answer *answers, void *context, kvo_job *job)
{
    store_job given = {.kind = JOB_GET, .context = context, .answers = answers};
    int r = enter(q);
    if (r == KVO_OK)
        r = names ? check_memory(names, memory, answers) : KVO_E_ARGUMENT;
    return r == KVO_OK ? submit_get(q, &given, names, memory, options, job) : r;
}

int kvo_submit_prefetch(kvo_queue *q, const kvo_names *names, const kvo_get_options *options, kvo_answer *answers,
                        void *context, kvo_job *job)
{
    store_job given = {.kind = JOB_PREFETCH, .context = context, .answers = answers};
    int r = enter(q);
    if (r == KVO_OK)
        r = store_prefetch_check(q->store, names, answers);
    return r == KVO_OK ? submit_get(q, &given, names, NULL, options, job) : r;
}

int kvo_submit_exists(kvo_queue *q, const kvo_names *names, uint64_t hold_ns, kvo_answer *answers, void *context,
                      kvo_job *job)
{
    store_job given = {.kind = JOB_EXISTS, .context = context, .answers = answers, .hold_ns = hold_ns};
    int r = enter(q);
    if (r == KVO_OK)
        r = store_check_names(q->store, names);
    if (r != KVO_OK)
        return r;
    if (names->count && answers == NULL)
        return KVO_E_ARGUMENT;
    given.target = (kvo_target){.by = KVO_BY_NAMES, .names = *names};
    return submit(q, &given, NULL, KVO_FOREVER, job);
}

int kvo_submit_sync(kvo_queue *q, const kvo_target *target, int level, uint64_t deadline_ns, kvo_answer *answers,
                    void *context, kvo_job *job)
{
    static const kvo_target all = {.by = KVO_BY_ALL};
    store_job given = {.kind = JOB_SYNC, .context = context, .answers = answers, .level = level};
    given.target = target ? *target : all;
    int r = enter(q);
    if (r == KVO_OK)
        r = store_sync_check(q->store, &given.target, level);
    return r == KVO_OK ? submit(q, &given, NULL, deadline_ns, job) : r;
}

int kvo_submit_remove(kvo_queue *q, const kvo_target *target, int level, uint64_t deadline_ns, kvo_answer *answers,
                      void *context, kvo_job *job)
{
    store_job given = {.kind = JOB_REMOVE, .context = context, .answers = answers, .level = level};
    int r = enter(q);
    if (r == KVO_OK)
        r = store_remove_check(q->store, target, level);
    if (r != KVO_OK)
        return r;
    given.target = *target;
    return submit(q, &given, NULL, deadline_ns, job);
}

/* ---- reports ---- */

int kvo_cancel(kvo_queue *q, kvo_job number)
{
    int r = enter(q);
    if (r != KVO_OK)
        return r;
    kvo_store *s = q->store;
    pthread_mutex_lock(&s->jobs.lock);
    store_job *job = q->oldest;
    while (job && job->number != number)
        job = job->newer;
    if (job) {
        atomic_store(&job->cancelled, true);
        store_jobs_unpark(s);
    }
    pthread_mutex_unlock(&s->jobs.lock);
    return job ? KVO_OK : KVO_GONE;
}

static void report(const store_job *job, kvo_report *out)
{
    *out = (kvo_report){
        .job = job->number,
        .context = job->context,
        .status = job->status,
        .answers = job->own_answers ? NULL : job->answers,
        .count = job->answers && !job->own_answers ? job_count(job) : 0,
        .removed = job->removed,
        .hold = job->hold,
        .waited_ns = job->started_ns - job->submitted_ns,
        .taken_ns = job->ended_ns - job->submitted_ns,
    };
    for (size_t i = 0; i < out->count; i++) {
        int status = job->answers[i].status;
        out->ok_count += status == KVO_OK || status == KVO_STORED || status == KVO_EXISTS;
    }
}

int kvo_poll(kvo_queue *q, kvo_report *reports, size_t capacity, uint64_t timeout_ns, size_t *count)
{
    int r = enter(q);
    if (r != KVO_OK)
        return r;
    if (count == NULL || (capacity && reports == NULL))
        return KVO_E_ARGUMENT;
    kvo_store *s = q->store;
    uint64_t deadline = store_deadline(s, timeout_ns);
    store_job *taken = NULL, **end = &taken;
    *count = 0;
    pthread_mutex_lock(&s->jobs.lock);
    while (capacity && q->done == NULL && q->pending && store_jobs_wait(s, deadline)) {}
    for (store_job *job; *count < capacity && (job = take_done(q)) != NULL; ++*count) {
        *end = job;
        end = &job->next;
        job->next = NULL;
    }
    pthread_mutex_unlock(&s->jobs.lock);
    for (size_t i = 0; taken; i++) {
        store_job *job = taken;
        taken = job->next;
        report(job, &reports[i]);
        if (KVO_PLANTED(REPORT_TWICE) && !taken && *count < capacity)
            reports[(*count)++] = reports[i];
        memory_give(s, job, job->alloc_bytes);
    }
    return KVO_OK;
}

int kvo_queue_event(const kvo_queue *q) { return enter(q) == KVO_OK ? q->event : -1; }

int kvo_pending(kvo_queue *q, uint64_t *count)
{
    int r = enter(q);
    if (r != KVO_OK || count == NULL)
        return r != KVO_OK ? r : KVO_E_ARGUMENT;
    pthread_mutex_lock(&q->store->jobs.lock);
    *count = q->pending;
    pthread_mutex_unlock(&q->store->jobs.lock);
    return KVO_OK;
}

/* Not those that are submitted meanwhile. */
int kvo_drain(kvo_queue *q, uint64_t deadline_ns)
{
    int r = enter(q);
    if (r != KVO_OK)
        return r;
    kvo_store *s = q->store;
    uint64_t deadline = store_deadline(s, deadline_ns);
    pthread_mutex_lock(&s->jobs.lock);
    kvo_job last = q->last_number;
    bool in_time = true;
    while (q->oldest && q->oldest->number <= last && in_time)
        in_time = store_jobs_wait(s, deadline);
    pthread_mutex_unlock(&s->jobs.lock);
    return in_time ? KVO_OK : KVO_SHORT;
}
