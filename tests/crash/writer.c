/* SPDX-License-Identifier: Apache-2.0 */
/* The process that is killed. Each thread owns every fourth name, in groups of one sequence. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "life.h"

typedef struct worker {
    const life *life;
    kvo_store *store;
    kvo_space space;
    kvo_queue *queue;
    uint32_t owner;
    uint64_t random;
    uint8_t bytes[KNOWN_GROUP][KNOWN_PAYLOAD_MAX];
} worker;

/* Some names of one group. */
typedef struct batch {
    uint64_t numbers[KNOWN_GROUP];
    known_name *known[KNOWN_GROUP];
    uint8_t names[KNOWN_GROUP][KNOWN_NAME_BYTES];
    kvo_segment segments[KNOWN_GROUP];
    kvo_answer answers[KNOWN_GROUP];
    known_before before[KNOWN_GROUP];
    size_t count;
} batch;

static uint32_t draw(worker *w)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w->random >> 33);
}

static void batch_draw(worker *w, batch *b, size_t count)
{
    uint64_t group = draw(w) % (KNOWN_NAMES / KNOWN_OWNERS / KNOWN_GROUP), first = draw(w) % KNOWN_GROUP;
    memset(b, 0, sizeof *b);
    b->count = count;
    for (size_t i = 0; i < count; i++) {
        b->numbers[i] = w->owner + KNOWN_OWNERS * (group * KNOWN_GROUP + (first + i) % KNOWN_GROUP);
        b->known[i] = &w->life->known->names[b->numbers[i]];
        known_name_of(b->numbers[i], b->names[i]);
    }
}

static kvo_names names_of(const worker *w, const batch *b)
{
    return (kvo_names){
        .first = b->names, .name_bytes = KNOWN_NAME_BYTES, .count = b->count, .space = w->space};
}

static kvo_target target_of(const worker *w, const batch *b)
{
    return (kvo_target){.by = KVO_BY_NAMES, .names = names_of(w, b)};
}

static void say(const worker *w, uint32_t line, const batch *b, size_t i, const char *what)
{
    known_say(w->life->known, line, "%s: name %llu answered %s (versions %u to %u, may miss %u, evicted %u)", what,
              (unsigned long long)b->numbers[i], kvo_status_name(b->answers[i].status), b->known[i]->oldest,
              b->known[i]->newest, b->known[i]->may_miss, b->known[i]->evicted);
}

/* An error, where no device dies, is wrong. */
static bool is_error(const worker *w, const batch *b, size_t i, const char *what)
{
    if (b->answers[i].status < KVO_E_ARGUMENT)
        return false;
    if (!w->life->device_dies)
        say(w, __LINE__, b, i, what);
    return true;
}

static uint32_t next_policy(worker *w) { return ++w->life->known->policies_given[w->owner]; }

static int level_of(worker *w) { return draw(w) % 4 ? w->life->level : KVO_SEALED; }

static kvo_put_options put_options(const batch *b, int level)
{
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.level = level;
    o.policy = known_policy(b->before[0].policy);
    o.sequence = known_sequence(b->numbers[0]);
    return o;
}

static void fill(worker *w, batch *b, size_t i)
{
    b->segments[i] = (kvo_segment){w->bytes[i], known_length(b->numbers[i], b->before[i].version)};
    known_payload(w->bytes[i], b->segments[i].bytes, b->numbers[i], b->before[i].version);
}

/* ---- steps ---- */

static void put_answered(worker *w, batch *b, size_t i, int level)
{
    known_name *n = b->known[i];
    switch (b->answers[i].status) {
    case KVO_STORED:
        known_put_done(n, &b->before[i], level == w->life->level);
        break;
    case KVO_EXISTS:
        known_undone(n, &b->before[i]);
        if (level == w->life->level)
            known_reached(n);
        break;
    case KVO_BUSY:
    case KVO_FULL:
    case KVO_SIZE:
        known_undone(n, &b->before[i]);
        break;
    default:
        n->current = 0;
        is_error(w, b, i, "put");
    }
}

static void put(worker *w, size_t count)
{
    batch b;
    batch_draw(w, &b, count);
    uint32_t policy = next_policy(w);
    for (size_t i = 0; i < count; i++) {
        b.before[i] = known_put_begin(b.known[i], policy);
        fill(w, &b, i);
    }
    int level = level_of(w);
    kvo_put_options o = put_options(&b, level);
    kvo_names names = names_of(w, &b);
    kvo_memory memory = {b.segments, NULL};
    kvo_put(w->store, &names, &memory, &o, b.answers);
    for (size_t i = 0; i < count; i++)
        put_answered(w, &b, i, level);
}

static void put_as_job(worker *w)
{
    batch b;
    kvo_job job;
    kvo_report report;
    size_t taken = 0;
    batch_draw(w, &b, 1);
    b.before[0] = known_put_begin(b.known[0], next_policy(w));
    fill(w, &b, 0);
    kvo_put_options o = put_options(&b, w->life->level);
    kvo_names names = names_of(w, &b);
    kvo_memory memory = {b.segments, NULL};
    int r = kvo_submit_put(w->queue, &names, &memory, &o, b.answers, NULL, &job);
    while (r == KVO_OK && taken == 0)
        r = kvo_poll(w->queue, &report, 1, KVO_FOREVER, &taken);
    if (r != KVO_OK)
        known_say(w->life->known, __LINE__, "a job answered %s", kvo_status_name(r));
    put_answered(w, &b, 0, w->life->level);
}

static void put_in_place(worker *w)
{
    batch b;
    kvo_reservation reservation;
    batch_draw(w, &b, 1);
    b.before[0] = known_put_begin(b.known[0], next_policy(w));
    fill(w, &b, 0);
    int level = level_of(w);
    kvo_put_options o = put_options(&b, level);
    kvo_names names = names_of(w, &b);
    uint32_t bytes = (uint32_t)b.segments[0].bytes;
    kvo_reserve(w->store, &names, &bytes, &o, &reservation, b.answers);
    if (b.answers[0].status == KVO_EXISTS) {
        known_undone(b.known[0], &b.before[0]);
        return;
    }
    if (b.answers[0].status == KVO_OK) {
        memcpy(reservation.memory, w->bytes[0], bytes);
        kvo_seal(w->store, &reservation, 1, level, o.deadline_ns, b.answers);
    }
    put_answered(w, &b, 0, level);
}

static void rewrite(worker *w)
{
    batch b;
    batch_draw(w, &b, 1);
    b.before[0] = known_rewrite_begin(b.known[0]);
    fill(w, &b, 0);
    int level = level_of(w);
    kvo_put_options o = put_options(&b, level);
    kvo_names names = names_of(w, &b);
    kvo_memory memory = {b.segments, NULL};
    kvo_rewrite(w->store, &names, &memory, b.before[0].version % 16, &o, b.answers);
    switch (b.answers[0].status) {
    case KVO_STORED:
        known_rewrite_done(b.known[0], &b.before[0], level == w->life->level,
                           w->life->level == KVO_WRITTEN);
        break;
    case KVO_MISS:
    case KVO_BUSY:
    case KVO_FULL:
    case KVO_REFUSED:
        known_undone(b.known[0], &b.before[0]);
        break;
    default:
        b.known[0]->current = 0;
        is_error(w, &b, 0, "rewrite");
    }
}

static void remove_names(worker *w)
{
    batch b;
    batch_draw(w, &b, 1 + draw(w) % 2);
    for (size_t i = 0; i < b.count; i++)
        known_remove_begin(b.known[i]);
    int level = level_of(w);
    kvo_target target = target_of(w, &b);
    kvo_remove(w->store, &target, level, KVO_FOREVER, b.answers, NULL);
    for (size_t i = 0; i < b.count; i++) {
        int status = b.answers[i].status;
        known_remove_done(b.known[i], level == w->life->level && (status == KVO_OK || status == KVO_MISS));
        if (status != KVO_OK && status != KVO_MISS && !w->life->device_dies)
            say(w, __LINE__, &b, i, "remove");
    }
}

static void remove_sequence(worker *w)
{
    batch b;
    batch_draw(w, &b, KNOWN_GROUP);
    for (size_t i = 0; i < b.count; i++)
        known_remove_begin(b.known[i]);
    kvo_target target = {.by = KVO_BY_SEQUENCE, .sequence = known_sequence(b.numbers[0])};
    int r = kvo_remove(w->store, &target, w->life->level, KVO_FOREVER, NULL, NULL);
    for (size_t i = 0; i < b.count; i++)
        known_remove_done(b.known[i], r == KVO_OK);
    if (r != KVO_OK && !w->life->device_dies)
        known_say(w->life->known, __LINE__, "remove of a sequence answered %s", kvo_status_name(r));
}

static void set_policy(worker *w)
{
    batch b;
    batch_draw(w, &b, 1);
    b.before[0] = known_policy_begin(b.known[0], next_policy(w));
    kvo_policy policy = known_policy(b.before[0].policy);
    kvo_target target = target_of(w, &b);
    kvo_policy_set(w->store, &target, &policy, KVO_POLICY_ALL, b.answers, NULL);
    known_policy_done(b.known[0], &b.before[0], b.answers[0].status == KVO_OK);
}

static void sync_names(worker *w)
{
    batch b;
    batch_draw(w, &b, KNOWN_GROUP);
    kvo_target target = target_of(w, &b);
    int r = kvo_sync(w->store, &target, w->life->level, KVO_FOREVER, b.answers);
    for (size_t i = 0; i < b.count; i++) {
        if (is_error(w, &b, i, "sync") || b.answers[i].status != KVO_OK)
            continue;
        known_reached(b.known[i]);
        if (r == KVO_OK)
            known_policy_written(b.known[i]);
    }
}

static void write_out(worker *w)
{
    /* That of power cuts is a sync, see known_policy_written() in sync_names(). */
    if (kvo_write_out(w->store) != KVO_OK || w->life->level == KVO_SAFE)
        return;
    for (uint64_t n = w->owner; n < KNOWN_NAMES; n += KNOWN_OWNERS)
        known_policy_written(&w->life->known->names[n]);
}

static bool missing_is_wrong(const known_name *n)
{
    if (n->current == 0)
        return false;
    /* The event of an eviction comes with it, not before. */
    for (int i = 0; i < 1000 && !n->evicted; i++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    return !n->evicted;
}

static void get(worker *w)
{
    batch b;
    batch_draw(w, &b, 1);
    known_name *n = b.known[0];
    uint32_t version = n->current ? n->current : n->newest;
    b.segments[0] = (kvo_segment){w->bytes[0], known_length(b.numbers[0], version)};
    kvo_names names = names_of(w, &b);
    kvo_memory memory = {b.segments, NULL};
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    o.no_promote = draw(w) % 2 == 0;
    kvo_get(w->store, &names, &memory, &o, b.answers);
    int status = b.answers[0].status;
    if (status == KVO_OK && n->current && !n->evicted &&
        !known_payload_is(w->bytes[0], b.segments[0].bytes, b.numbers[0], n->current)) {
        w->life->known->wrong_bytes++;
        say(w, __LINE__, &b, 0, "wrong bytes");
    }
    if ((status == KVO_MISS || status == KVO_SIZE) && !w->life->device_dies && missing_is_wrong(n))
        say(w, __LINE__, &b, 0, "get");
    is_error(w, &b, 0, "get");
}

static void step(worker *w)
{
    uint32_t kind = draw(w) % 100;
    if (kind < 30)
        put(w, 1);
    else if (kind < 36)
        put(w, KNOWN_GROUP);
    else if (kind < 44)
        put_as_job(w);
    else if (kind < 48)
        put_in_place(w);
    else if (kind < 57)
        rewrite(w);
    else if (kind < 65)
        remove_names(w);
    else if (kind < 67)
        remove_sequence(w);
    else if (kind < 77)
        set_policy(w);
    else if (kind < 83)
        sync_names(w);
    else if (kind < 85)
        write_out(w);
    else
        get(w);
    w->life->known->steps++;
}

/* ---- the process ---- */

static void *work(void *argument)
{
    worker *w = argument;
    while (!w->life->known->close_now)
        step(w);
    return NULL;
}

static worker *worker_new(const life *l, kvo_store *store, kvo_space space, uint32_t owner)
{
    worker *w = calloc(1, sizeof *w);
    if (w == NULL || kvo_queue_open(store, NULL, &w->queue) != KVO_OK)
        abort();
    w->life = l;
    w->store = store;
    w->space = space;
    w->owner = owner;
    w->random = (l->seed + owner + 1) * 0x9e3779b97f4a7c15u;
    return w;
}

int life_open(const life *l, uint32_t flags, kvo_store **store, kvo_space *space)
{
    kvo_options o = KVO_OPTIONS_INIT;
    kvo_error error = {{0}};
    kvo_space_config config = KVO_SPACE_CONFIG_INIT;
    o.block_bytes = 65536;
    o.flags = flags;
    o.write_out_ns = 5000000;
    o.io_engine = l->io_engine;
    o.io_threads = 2;
    o.workers = 2;
    o.on_event = known_on_event;
    o.event_context = l->known;
    int r = l->open(l->tiers, &o, store, &error);
    if (r != KVO_OK || (flags & KVO_OPEN_READ_ONLY)) {
        if (r != KVO_OK && r != KVO_E_NOT_FOUND && !l->device_dies)
            known_say(l->known, __LINE__, "open: %s", error.text);
        return r;
    }
    config.label = "a";
    config.model = "m";
    config.block_positions = 16;
    config.block_bytes_max = KNOWN_PAYLOAD_MAX;
    r = kvo_space_open(*store, &config, space, &error);
    if (r != KVO_OK && !l->device_dies)
        known_say(l->known, __LINE__, "space: %s", error.text);
    return r;
}

int life_write(const life *l)
{
    kvo_store *store;
    kvo_space space;
    pthread_t threads[KNOWN_OWNERS];
    worker *workers[KNOWN_OWNERS];
    l->known->phase = KNOWN_OPENING;
    if (life_open(l, 0, &store, &space) != KVO_OK)
        return 1;
    for (uint32_t i = 0; i < KNOWN_OWNERS; i++)
        workers[i] = worker_new(l, store, space, i);
    l->known->phase = KNOWN_WORKING;
    for (uint32_t i = 0; i < KNOWN_OWNERS; i++)
        if (pthread_create(&threads[i], NULL, work, workers[i]) != 0)
            return 1;
    for (uint32_t i = 0; i < KNOWN_OWNERS; i++)
        pthread_join(threads[i], NULL);
    l->known->phase = KNOWN_CLOSING;
    int r = kvo_close(store, KVO_FOREVER);
    /* Short: memory holds more than the disk. */
    if (r != KVO_OK && !l->device_dies && (r != KVO_SHORT || l->keeps_all))
        known_say(l->known, __LINE__, "close answered %s", kvo_status_name(r));
    for (uint32_t i = 0; i < KNOWN_OWNERS; i++)
        free(workers[i]);
    return 0;
}
