/* SPDX-License-Identifier: Apache-2.0 */
/* One system, one block size, once: put, put and sync, get warm, get cold, restart to the first hit, bytes written,
   and the processor time of put and get. */
#include "peer.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

/* Seconds: that went by, and that processors worked for this process, all threads together. */
typedef struct times {
    double wall, cpu;
} times;

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static times now(void)
{
    return (times){seconds_of(CLOCK_MONOTONIC), seconds_of(CLOCK_PROCESS_CPUTIME_ID)};
}

static void add_since(times *sum, times begin)
{
    times end = now();
    sum->wall += end.wall - begin.wall;
    sum->cpu += end.cpu - begin.cpu;
}

static void say(const char *name, double value)
{
    size_t used = strlen(run.answer);
    (void)snprintf(run.answer + used, PEER_ANSWER - used, "%s\"%s\": %.9g", used > 1 ? ", " : "", name,
                   value);
}

static double cpu_per_gib(double bytes, times taken)
{
    return taken.cpu / (bytes / (1 << 30));
}

/* Bytes a second, and processor seconds a GiB. */
static void say_rate(const char *name, double bytes, times taken)
{
    char cpu[64];
    (void)snprintf(cpu, sizeof cpu, "%s_cpu", name);
    say(name, bytes / taken.wall);
    say(cpu, cpu_per_gib(bytes, taken));
}

/* ---- What the kernel counts ---- */

/* Bytes that a process made dirty or wrote directly; below 0: not counted. */
static double written_by(int process)
{
    char path[64], line[128];
    double bytes = -1.0;
    (void)snprintf(path, sizeof path, "/proc/%d/io", process);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "write_bytes:", 12) == 0) {
            bytes = strtod(line + 12, NULL);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return bytes;
}

/* Bytes that the directory's device was given, by anybody: its seventh counter, in sectors. Below 0: it has none. */
static double written_to_device(const char *directory)
{
    char path[96];
    struct stat st;
    double sectors = -1.0;
    if (stat(directory, &st) != 0) {
        return -1.0;
    }
    (void)snprintf(path, sizeof path, "/sys/dev/block/%u:%u/stat", major(st.st_dev), minor(st.st_dev));
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        if (fscanf(file, "%*s %*s %*s %*s %*s %*s %lf", &sectors) != 1) {
            sectors = -1.0;
        }
        (void)fclose(file);
    }
    return sectors < 0.0 ? -1.0 : sectors * 512.0;
}

static void settle(const char *directory)
{
    int folder = open(directory, O_RDONLY | O_DIRECTORY);
    if (folder >= 0) {
        (void)syncfs(folder);
        (void)close(folder);
    }
}

/* ---- The limit: memcpy of the same blocks, in this process, before and after ---- */

enum { LIMIT_BYTES = 80 << 20, LIMIT_PASSES = 6 };

typedef struct limits {
    times put[LIMIT_PASSES], get[LIMIT_PASSES];
    size_t bytes, count; /* of a pass; passes */
} limits;

/* Half of the passes. */
static void measure_memcpy(limits *l, size_t size)
{
    size_t count = (run.total_bytes < LIMIT_BYTES ? run.total_bytes : LIMIT_BYTES) / size;
    uint8_t *arena = run_memory(count * size);
    l->bytes = count * size;
    for (size_t pass = 0; pass < LIMIT_PASSES / 2; pass++, l->count++) {
        times begin = now();
        for (size_t i = 0; i < count; i++) {
            memcpy(arena + i * size, run.blocks + i * size, size);
        }
        add_since(&l->put[l->count], begin);
        begin = now();
        for (size_t i = 0; i < count; i++) {
            memcpy(run.back + i % PEER_BATCH * size, arena + i * size, size);
        }
        add_since(&l->get[l->count], begin);
    }
    (void)munmap(arena, count * size);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A single pass may meet whatever else the machine does. */
static times median(const times *all, size_t count)
{
    double wall[LIMIT_PASSES], cpu[LIMIT_PASSES];
    for (size_t i = 0; i < count; i++) {
        wall[i] = all[i].wall;
        cpu[i] = all[i].cpu;
    }
    qsort(wall, count, sizeof *wall, compare);
    qsort(cpu, count, sizeof *cpu, compare);
    return (times){(wall[(count - 1) / 2] + wall[count / 2]) / 2,
                   (cpu[(count - 1) / 2] + cpu[count / 2]) / 2};
}

/* ---- Operations ---- */

static void put_all(peer_session *s)
{
    for (size_t i = 0; i < s->count; i += PEER_BATCH) {
        run_put(s, i);
    }
}

/* What the gets of blocks [0, count) took; every block is compared, outside of that. */
static times get_all(peer_session *s, size_t count)
{
    times taken = {0};
    for (size_t first = 0; first < count; first += PEER_BATCH) {
        uint8_t keys[PEER_BATCH * PEER_KEY];
        void *blocks[PEER_BATCH];
        int results[PEER_BATCH];
        size_t n = count - first < PEER_BATCH ? count - first : PEER_BATCH;
        for (size_t i = 0; i < n; i++) {
            run_key(first + i, keys + i * PEER_KEY);
            blocks[i] = run.back + i * s->size;
        }
        times begin = now();
        s->ops->get(s->peer, keys, blocks, n, s->size, results);
        add_since(&taken, begin);
        for (size_t i = 0; i < n; i++) {
            if (results[i] != PEER_FOUND) {
                run_give_up("a block that was put is not there");
            }
            if (memcmp(blocks[i], run.blocks + (first + i) * s->size, s->size) != 0) {
                run_give_up("other bytes came back");
            }
        }
    }
    return taken;
}

static void measure_reopened(peer_session *s, double bytes)
{
    s->ops->close(s->peer);
    run_make_cold(s->place.directory);
    times opened = {0}, begin = now();
    run_open(s);
    add_since(&opened, begin);
    say("restart_to_first_hit", opened.wall + get_all(s, 1).wall);
    if (s->ops->loads_all) {
        return;
    }
    s->ops->close(s->peer);
    run_make_cold(s->place.directory);
    run_open(s);
    say("get_cold", bytes / get_all(s, s->count).wall);
}

/*
 * A guest's free memory may lie unbacked: its first use costs several copies, and which system would pay changes from
 * round to round. So as much as a system takes is used once and freed, right before.
 */
static void warm_free_memory(void)
{
    uint8_t *memory = run_memory(2 * run.total_bytes);
    (void)munmap(memory, 2 * run.total_bytes);
}

/* Memory of its own has its pages before the time is taken, as all other memory here. */
static void touch(peer_session *s)
{
    if (s->ops->empty != NULL) {
        put_all(s);
        if (s->ops->empty(s->peer) != 0) {
            run_give_up("its blocks could not be removed");
        }
    }
}

static void measure_put(peer_session *s, double bytes)
{
    settle(s->place.directory);
    int process = s->ops->writer != NULL ? s->ops->writer(s->peer) : (int)getpid();
    double written = written_by(process), device = written_to_device(s->place.directory);
    times put = {0}, both = {0}, begin = now();
    put_all(s);
    add_since(&put, begin);
    say("put", bytes / put.wall);
    if (s->ops->persistent && run_sync(s) != 0) {
        run_give_up("a sync failed");
    }
    add_since(&both, begin);
    /* With what its threads still had to do when the put was back. */
    say("put_cpu", cpu_per_gib(bytes, both));
    if (!s->ops->persistent) {
        return;
    }
    say("put_sync", bytes / both.wall);
    if (!run.in_memory) {
        settle(s->place.directory);
        double process_after = written_by(process), device_after = written_to_device(s->place.directory);
        if (written >= 0.0 && process_after >= 0.0) {
            say("written_bytes_per_payload_byte", (process_after - written) / bytes);
        }
        if (device >= 0.0 && device_after >= 0.0) {
            say("device_bytes_per_payload_byte", (device_after - device) / bytes);
        }
    }
}

void measure(const peer_ops *ops, size_t size)
{
    peer_session s = {.ops = ops, .size = size, .count = run.total_bytes / size};
    const double bytes = (double)(s.size * s.count);
    limits l = {0};
    (void)snprintf(run.answer, PEER_ANSWER, "{");
    run.back = run_memory(PEER_BATCH * size);
    measure_memcpy(&l, size);
    s.place = (peer_place){run_place(), size, s.count};
    warm_free_memory();
    run_open(&s);
    touch(&s);
    measure_put(&s, bytes);
    say_rate("get_warm", bytes, get_all(&s, s.count));
    if (ops->persistent) {
        measure_reopened(&s, bytes);
    }
    s.ops->close(s.peer);
    measure_memcpy(&l, size);
    say_rate("memcpy_put", (double)l.bytes, median(l.put, l.count));
    say_rate("memcpy_get", (double)l.bytes, median(l.get, l.count));
    (void)strcat(run.answer, "}");
}
