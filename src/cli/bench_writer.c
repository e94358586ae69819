/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define CALL 16 /* blocks a put */

struct bench_writer {
    bench_store *store;
    uint64_t first, block_bytes;
    const kvo_put_options *options;
    uint8_t *memory;
    kvo_segment *segments;
    pthread_t thread;
    atomic_int stop;
    atomic_int code;
    _Atomic uint64_t blocks;
};

static void *run(void *argument)
{
    bench_writer *w = argument;
    uint8_t names[CALL * BENCH_NAME_BYTES];
    while (atomic_load(&w->code) == 0 && !atomic_load(&w->stop) && bench_stopped() == 0) {
        bench_names(names, w->first + atomic_load(&w->blocks), CALL);
        atomic_store(&w->code, bench_put(w->store, names, CALL, w->segments, w->options));
        atomic_fetch_add(&w->blocks, CALL);
    }
    return NULL;
}

static void free_writer(bench_writer *w)
{
    free(w->segments);
    bench_unmap(w->memory, CALL * w->block_bytes);
    free(w);
}

bench_writer *bench_writer_start(bench_store *store, uint64_t first, uint64_t block_bytes,
                                 const kvo_put_options *options)
{
    bench_writer *w = cli_alloc(1, sizeof *w);
    w->store = store;
    w->first = first;
    w->block_bytes = block_bytes;
    w->options = options;
    w->memory = bench_map(CALL * block_bytes);
    w->segments = bench_segments(w->memory, block_bytes, CALL);
    if (pthread_create(&w->thread, NULL, run, w) != 0) {
        free_writer(w);
        (void)cli_fail("cannot start a thread");
        return NULL;
    }
    return w;
}

uint64_t bench_writer_blocks(const bench_writer *w)
{
    return atomic_load(&w->blocks);
}

int bench_writer_wait(const bench_writer *w, uint64_t blocks)
{
    const struct timespec pause = {0, 200000};
    uint64_t seen = bench_writer_blocks(w);
    for (double last = bench_now(); seen < blocks;) {
        (void)nanosleep(&pause, NULL);
        uint64_t now = bench_writer_blocks(w);
        if (now != seen) {
            last = bench_now();
            seen = now;
        }
        int code = bench_stopped();
        code = code != 0 ? code : atomic_load(&w->code);
        if (code != 0) {
            return code;
        }
        if (bench_now() - last > 60.0) {
            return cli_fail("the writer does not get on");
        }
    }
    return 0;
}

int bench_writer_stop(bench_writer *w, uint64_t *next)
{
    atomic_store(&w->stop, 1);
    (void)pthread_join(w->thread, NULL);
    int code = atomic_load(&w->code);
    if (next != NULL) {
        *next = w->first + atomic_load(&w->blocks);
    }
    free_writer(w);
    return code;
}

static int written(const bench_store *s, uint64_t *bytes)
{
    kvo_tier_stat tier;
    *bytes = 0;
    for (uint32_t i = 0; i < KVO_TIERS_MAX; i++) {
        int status = kvo_stat_tier(s->store, i, &tier);
        if (status == KVO_E_RANGE) {
            break;
        }
        if (status != KVO_OK) {
            return bench_refused("stat", status);
        }
        *bytes += tier.written_bytes;
    }
    return 0;
}

int bench_settle(bench_store *s)
{
    const struct timespec pause = {0, 20000000};
    uint64_t before = UINT64_MAX, now = 0;
    int code = 0;
    for (int i = 0; code == 0 && now != before && i < 500; i++) {
        before = now;
        (void)nanosleep(&pause, NULL);
        code = written(s, &now);
    }
    return code;
}
