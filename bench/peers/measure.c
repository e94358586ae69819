/* SPDX-License-Identifier: Apache-2.0 */
/* One system, one block size, once: put, put and sync, get warm, get cold, restart to the first hit, bytes written. */
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

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void say(const char *name, double value)
{
    size_t used = strlen(run.answer);
    (void)snprintf(run.answer + used, PEER_ANSWER - used, "%s\"%s\": %.9g", used > 1 ? ", " : "", name, value);
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

/* ---- The limit: memcpy of the same blocks, in this process, just before ---- */

enum { LIMIT_BYTES = 80 << 20 };

static void measure_memcpy(size_t size)
{
    size_t count = (run.total_bytes < LIMIT_BYTES ? run.total_bytes : LIMIT_BYTES) / size;
    uint8_t *arena = run_memory(count * size);
    double begin = now();
    for (size_t i = 0; i < count; i++) {
        memcpy(arena + i * size, run.blocks + i * size, size);
    }
    double middle = now();
    for (size_t i = 0; i < count; i++) {
        memcpy(run.back + i % PEER_BATCH * size, arena + i * size, size);
    }
    say("memcpy_put", (double)(count * size) / (middle - begin));
    say("memcpy_get", (double)(count * size) / (now() - middle));
    (void)munmap(arena, count * size);
}

/* ---- Operations ---- */

static void put_all(peer_session *s)
{
    for (size_t i = 0; i < s->count; i += PEER_BATCH) {
        run_put(s, i);
    }
}

/* Seconds that the gets of blocks [0, count) took; every block is compared, outside of them. */
static double get_all(peer_session *s, size_t count)
{
    double seconds = 0.0;
    for (size_t first = 0; first < count; first += PEER_BATCH) {
        uint8_t keys[PEER_BATCH * PEER_KEY];
        void *blocks[PEER_BATCH];
        int results[PEER_BATCH];
        size_t n = count - first < PEER_BATCH ? count - first : PEER_BATCH;
        for (size_t i = 0; i < n; i++) {
            run_key(first + i, keys + i * PEER_KEY);
            blocks[i] = run.back + i * s->size;
        }
        double begin = now();
        s->ops->get(s->peer, keys, blocks, n, s->size, results);
        seconds += now() - begin;
        for (size_t i = 0; i < n; i++) {
            if (results[i] != PEER_FOUND) {
                run_give_up("a block that was put is not there");
            }
            if (memcmp(blocks[i], run.blocks + (first + i) * s->size, s->size) != 0) {
                run_give_up("other bytes came back");
            }
        }
    }
    return seconds;
}

static void measure_reopened(peer_session *s, double bytes)
{
    s->ops->close(s->peer);
    run_make_cold(s->place.directory);
    double begin = now();
    run_open(s);
    (void)get_all(s, 1);
    say("restart_to_first_hit", now() - begin);
    s->ops->close(s->peer);
    run_make_cold(s->place.directory);
    run_open(s);
    say("get_cold", bytes / get_all(s, s->count));
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
    double written = written_by(process), device = written_to_device(s->place.directory), begin = now();
    put_all(s);
    say("put", bytes / (now() - begin));
    if (!s->ops->persistent) {
        return;
    }
    if (run_sync(s) != 0) {
        run_give_up("a sync failed");
    }
    say("put_sync", bytes / (now() - begin));
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
    (void)snprintf(run.answer, PEER_ANSWER, "{");
    run.back = run_memory(PEER_BATCH * size);
    measure_memcpy(size);
    s.place = (peer_place){run_place(), size, s.count};
    run_open(&s);
    touch(&s);
    measure_put(&s, bytes);
    say("get_warm", bytes / get_all(&s, s.count));
    if (ops->persistent) {
        measure_reopened(&s, bytes);
    }
    s.ops->close(s.peer);
    (void)strcat(run.answer, "}");
}
