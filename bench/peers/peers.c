/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same blocks through each system, on the same file system, in turns: put, put and sync, get warm, get cold, restart to
 * the first hit, bytes that were written for each byte of payload; and what each does with a byte turned over, a file
 * cut short, a file of zeros and a kill -9 right after a put.
 *
 *     peers DIRECTORY [--rounds N] [--mib N] [--only SYSTEM]
 *
 * Prints a JSON object a line. Every block that comes back is compared.
 */
#include "peer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const peer_ops *const systems[] = {&peer_memcpy, &peer_raw,   &peer_file,        &peer_lmdb,
                                          &peer_rocksdb, &peer_redis, &peer_kvonce_disk, &peer_kvonce};
enum { SYSTEMS = sizeof systems / sizeof systems[0], ROUNDS_MAX = 32 };

static const size_t sizes[] = {64u << 10, 1u << 20, 5u << 20};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

enum { PUT, PUT_SYNC, GET_WARM, GET_COLD, RESTART, WRITTEN, OPERATIONS };
static const char *const operation_names[] = {"put", "put_sync", "get_warm", "get_cold", "restart_to_first_hit",
                                              "written_bytes_per_payload_byte"};
static const char *const operation_units[] = {"bytes/s", "bytes/s", "bytes/s", "bytes/s", "s", "ratio"};

static struct run {
    const char *directory, *only;
    unsigned rounds;
    size_t total_bytes;
    int in_memory; /* the file system */
    uint8_t *blocks, *back;
    double values[SYSTEMS][SIZES][OPERATIONS][ROUNDS_MAX];
} run;

static int die(const char *what, const char *why)
{
    fprintf(stderr, "peers: %s: %s\n", what, why);
    exit(2);
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- Blocks ---- */

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static void key_of(uint64_t number, uint8_t key[PEER_KEY])
{
    memcpy(key, &number, 8);
    for (uint64_t i = 1; i < PEER_KEY / 8; i++) {
        uint64_t word = mixed(number * 7 + i);
        memcpy(key + 8 * i, &word, 8);
    }
}

static void fill(uint8_t *block, size_t bytes, uint64_t number)
{
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = mixed(number << 32 | i);
        memcpy(block + i, &word, 8);
    }
}

static uint8_t *aligned_memory(size_t bytes)
{
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        (void)die("memory", strerror(errno));
    }
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

/* ---- The place ---- */

static void clear(const char *path)
{
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        char inner[4600];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        (void)snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        if (unlink(inner) != 0) {
            clear(inner);
            (void)rmdir(inner);
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
}

static const char *place_for(const peer_ops *ops)
{
    static char path[4200];
    (void)ops;
    (void)snprintf(path, sizeof path, "%s/peers-work", run.directory);
    (void)mkdir(path, 0700);
    clear(path);
    return path;
}

static void each_file(const char *path, void (*call)(const char *file, void *context), void *context)
{
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        char inner[4600];
        struct stat st;
        (void)snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] == '.' || lstat(inner, &st) != 0) {
            continue;
        }
        if (S_ISDIR(st.st_mode)) {
            each_file(inner, call, context);
        } else if (S_ISREG(st.st_mode)) {
            call(inner, context);
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
}

static void forget_file(const char *path, void *context)
{
    (void)context;
    int file = open(path, O_RDONLY);
    if (file >= 0) {
        (void)fdatasync(file);
        (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        (void)close(file);
    }
}

/* Out of the page cache; of a file system in memory nothing can leave it. */
static void make_cold(const char *path)
{
    if (!run.in_memory) {
        each_file(path, forget_file, NULL);
    }
}

/* Bytes that the kernel counts as sent to a device by a process, as they are made dirty or written directly. */
static double written_by(int process)
{
    char path[64], line[128];
    double bytes = NAN;
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

/* ---- Measuring ---- */

typedef struct session {
    const peer_ops *ops;
    void *peer;
    peer_place place;
    size_t size, count; /* of and in blocks */
} session;

static void open_peer(session *s)
{
    char error[256] = "";
    s->peer = s->ops->open(&s->place, error);
    if (s->peer == NULL) {
        (void)die(s->ops->name, error);
    }
}

static void put_batch(session *s, size_t first)
{
    uint8_t keys[PEER_BATCH * PEER_KEY];
    const void *blocks[PEER_BATCH];
    size_t n = s->count - first < PEER_BATCH ? s->count - first : PEER_BATCH;
    for (size_t i = 0; i < n; i++) {
        key_of(first + i, keys + i * PEER_KEY);
        blocks[i] = run.blocks + (first + i) * s->size;
    }
    if (s->ops->put(s->peer, keys, blocks, n, s->size) != 0) {
        (void)die(s->ops->name, "put failed");
    }
}

/* Seconds of the gets of blocks [first, count), each compared afterwards. */
static double get_from(session *s, size_t first)
{
    double seconds = 0.0;
    for (; first < s->count; first += PEER_BATCH) {
        uint8_t keys[PEER_BATCH * PEER_KEY];
        void *blocks[PEER_BATCH];
        int results[PEER_BATCH];
        size_t n = s->count - first < PEER_BATCH ? s->count - first : PEER_BATCH;
        for (size_t i = 0; i < n; i++) {
            key_of(first + i, keys + i * PEER_KEY);
            blocks[i] = run.back + i * s->size;
        }
        double begin = now();
        s->ops->get(s->peer, keys, blocks, n, s->size, results);
        seconds += now() - begin;
        for (size_t i = 0; i < n; i++) {
            if (results[i] != PEER_FOUND || memcmp(blocks[i], run.blocks + (first + i) * s->size, s->size) != 0) {
                (void)die(s->ops->name, results[i] != PEER_FOUND ? "a block is not there" : "other bytes came back");
            }
        }
    }
    return seconds;
}

static double get_first(session *s)
{
    size_t count = s->count;
    s->count = 1;
    double seconds = get_from(s, 0);
    s->count = count;
    return seconds;
}

static void measure_persistent(session *s, double values[OPERATIONS])
{
    const double bytes = (double)(s->size * s->count);
    s->ops->close(s->peer);
    make_cold(s->place.directory);
    double begin = now();
    open_peer(s);
    (void)get_first(s);
    values[RESTART] = now() - begin;
    s->ops->close(s->peer);
    make_cold(s->place.directory);
    open_peer(s);
    values[GET_COLD] = bytes / get_from(s, 0);
}

static void measure(const peer_ops *ops, size_t size, double values[OPERATIONS])
{
    session s = {.ops = ops, .size = size, .count = run.total_bytes / size};
    const double bytes = (double)(s.size * s.count);
    for (int i = 0; i < OPERATIONS; i++) {
        values[i] = NAN;
    }
    s.place = (peer_place){place_for(ops), size, s.count};
    open_peer(&s);
    int process = ops->writer != NULL ? ops->writer(s.peer) : (int)getpid();
    double written = written_by(process), begin = now();
    for (size_t i = 0; i < s.count; i += PEER_BATCH) {
        put_batch(&s, i);
    }
    double put = now() - begin;
    values[PUT] = bytes / put;
    if (ops->sync != NULL) {
        if (ops->sync(s.peer) != 0) {
            (void)die(ops->name, "sync failed");
        }
        values[PUT_SYNC] = bytes / (now() - begin);
    }
    if (ops->persistent && !run.in_memory) {
        values[WRITTEN] = (written_by(process) - written) / bytes;
    }
    values[GET_WARM] = bytes / get_from(&s, 0);
    if (ops->persistent) {
        measure_persistent(&s, values);
    }
    ops->close(s.peer);
    clear(s.place.directory);
}

/* ---- Faults ---- */

enum { FLIP, CUT, ZEROS, KILL, FAULTS };
static const char *const fault_names[] = {"flipped_byte", "truncated_file", "zeroed_file", "kill_after_put"};
enum { FAULT_BLOCKS = 8, VICTIM = 3, FAULT_SIZE = 1 << 20 };

/* Where the middle of a block's payload lies, if anywhere as it is. */
typedef struct search {
    const uint8_t *wanted; /* 64 bytes */
    char file[4600];
    off_t at;
} search;

static void look_into(const char *path, void *context)
{
    search *s = context;
    struct stat st;
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &st) != 0 || st.st_size < 64) {
        (void)(file >= 0 && close(file));
        return;
    }
    uint8_t *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, file, 0);
    const uint8_t *found = bytes != MAP_FAILED ? memmem(bytes, (size_t)st.st_size, s->wanted, 64) : NULL;
    if (found != NULL) {
        (void)snprintf(s->file, sizeof s->file, "%s", path);
        s->at = found - bytes;
    }
    if (bytes != MAP_FAILED) {
        (void)munmap(bytes, (size_t)st.st_size);
    }
    (void)close(file);
}

static int harm(int fault, const search *where)
{
    uint8_t byte = 0;
    struct stat st;
    int file = open(where->file, O_RDWR);
    int r = file < 0 || fstat(file, &st) != 0 ? -1 : 0;
    if (r == 0 && fault == FLIP) {
        r = pread(file, &byte, 1, where->at) == 1 ? 0 : -1;
        byte ^= 0x10;
        r = r == 0 && pwrite(file, &byte, 1, where->at) == 1 ? 0 : -1;
    } else if (r == 0) {
        r = ftruncate(file, fault == CUT ? where->at : 0);
        r = r == 0 && fault == ZEROS ? ftruncate(file, st.st_size) : r;
    }
    if (file >= 0) {
        (void)fsync(file);
        (void)close(file);
    }
    return r;
}

/* In a process of its own, since it may die: puts the blocks; then closes, or is killed. */
static void fault_writer(session *s, int fault)
{
    open_peer(s);
    put_batch(s, 0);
    if (fault == KILL) {
        if (s->ops->writer != NULL) {
            (void)kill(s->ops->writer(s->peer), SIGKILL);
        }
        (void)kill(getpid(), SIGKILL);
    }
    if (s->ops->sync != NULL) {
        (void)s->ops->sync(s->peer);
    }
    s->ops->close(s->peer);
    _exit(0);
}

/* Likewise: opens and gets all; counts are 16 bits each, by what came. */
typedef struct outcome {
    int opened, right, wrong, miss, error, crashed;
} outcome;

static void fault_reader(session *s, outcome *o)
{
    char error[256] = "";
    s->peer = s->ops->open(&s->place, error);
    o->opened = s->peer != NULL;
    for (size_t i = 0; o->opened && i < FAULT_BLOCKS; i++) {
        uint8_t key[PEER_KEY];
        void *block = run.back;
        int result = PEER_ERROR;
        key_of(i, key);
        memset(run.back, 0, s->size);
        s->ops->get(s->peer, key, &block, 1, s->size, &result);
        int same = memcmp(run.back, run.blocks + i * s->size, s->size) == 0;
        o->right += result == PEER_FOUND && same;
        o->wrong += result == PEER_FOUND && !same;
        o->miss += result == PEER_MISS;
        o->error += result == PEER_ERROR;
    }
    if (o->opened) {
        s->ops->close(s->peer);
    }
    _exit(0);
}

static int wait_for(pid_t child)
{
    int status = 0;
    for (int i = 0; i < 6000; i++) {
        if (waitpid(child, &status, WNOHANG) == child) {
            return status;
        }
        const struct timespec pause = {0, 10000000};
        (void)nanosleep(&pause, NULL);
    }
    (void)kill(child, SIGKILL);
    (void)waitpid(child, &status, 0);
    return status;
}

static void print_outcome(const session *s, int fault, const outcome *o, const char *missing)
{
    printf("{\"system\": \"%s\", \"operation\": \"%s\", \"block_bytes\": %zu, \"file_system\": \"%s\"", s->ops->name,
           fault_names[fault], s->size, run.in_memory ? "memory" : "disk");
    if (missing != NULL) {
        printf(", \"missing\": \"%s\"}\n", missing);
    } else {
        printf(", \"blocks\": %d, \"opened\": %s, \"right\": %d, \"wrong\": %d, \"miss\": %d, \"error\": %d, \"crashed\": %d}\n",
               FAULT_BLOCKS, o->opened ? "true" : "false", o->right, o->wrong, o->miss, o->error, o->crashed);
    }
    (void)fflush(stdout);
}

static void try_fault(const peer_ops *ops, int fault, outcome *shared)
{
    session s = {.ops = ops, .size = FAULT_SIZE, .count = FAULT_BLOCKS};
    search where = {.wanted = run.blocks + VICTIM * FAULT_SIZE + FAULT_SIZE / 2};
    s.place = (peer_place){place_for(ops), s.size, s.count};
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        fault_writer(&s, fault);
    }
    (void)wait_for(child);
    if (fault != KILL) {
        each_file(s.place.directory, look_into, &where);
        if (where.file[0] == 0 || harm(fault, &where) != 0) {
            print_outcome(&s, fault, NULL, "the payload lies in no file as it is");
            return;
        }
        make_cold(s.place.directory);
    }
    *shared = (outcome){0};
    child = fork();
    if (child == 0) {
        fault_reader(&s, shared);
    }
    int status = wait_for(child);
    shared->crashed = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    print_outcome(&s, fault, shared, NULL);
    clear(s.place.directory);
}

/* ---- All of it ---- */

static int wanted(const peer_ops *ops)
{
    return run.only == NULL || strcmp(run.only, ops->name) == 0;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, run.rounds, sizeof *values, by_size);
    return run.rounds % 2 ? values[run.rounds / 2] : (values[run.rounds / 2 - 1] + values[run.rounds / 2]) / 2;
}

/* memcpy's on a file system in memory; else the raw file's, but for what a page cache may serve. */
static double limit_of(size_t size, int operation, double medians[SYSTEMS][SIZES][OPERATIONS])
{
    int warm = operation == GET_WARM || operation == PUT;
    return operation >= RESTART ? NAN
           : run.in_memory || warm
               ? medians[0][size][operation == PUT_SYNC ? PUT : operation == GET_COLD ? GET_WARM : operation]
               : medians[1][size][operation];
}

static void print_values(double medians[SYSTEMS][SIZES][OPERATIONS], size_t p, size_t size, int operation)
{
    double value = medians[p][size][operation], limit = limit_of(size, operation, medians);
    printf("{\"system\": \"%s\", \"operation\": \"%s\", \"block_bytes\": %zu, \"file_system\": \"%s\", \"unit\": \"%s\", ",
           systems[p]->name, operation_names[operation], sizes[size], run.in_memory ? "memory" : "disk",
           operation_units[operation]);
    printf("\"durability\": \"%s\", \"value\": %.6g, ", systems[p]->durability, value);
    if (isfinite(limit) && limit > 0.0) {
        printf("\"ratio_to_limit\": %.4g, ", value / limit);
    }
    printf("\"least\": %.6g, \"most\": %.6g, \"rounds\": %u}\n", run.values[p][size][operation][0],
           run.values[p][size][operation][run.rounds - 1], run.rounds);
}

static void measure_all(void)
{
    static double medians[SYSTEMS][SIZES][OPERATIONS];
    for (size_t size = 0; size < SIZES; size++) {
        for (size_t i = 0; i < run.total_bytes / sizes[size]; i++) {
            fill(run.blocks + i * sizes[size], sizes[size], i);
        }
        for (unsigned round = 0; round < run.rounds; round++) {
            for (size_t p = 0; p < SYSTEMS; p++) {
                double values[OPERATIONS];
                if (!wanted(systems[p])) {
                    continue;
                }
                measure(systems[p], sizes[size], values);
                for (int o = 0; o < OPERATIONS; o++) {
                    run.values[p][size][o][round] = values[o];
                }
            }
        }
        for (size_t p = 0; p < SYSTEMS; p++) {
            for (int o = 0; wanted(systems[p]) && o < OPERATIONS; o++) {
                medians[p][size][o] = isnan(run.values[p][size][o][0]) ? NAN : median(run.values[p][size][o]);
            }
        }
        for (size_t p = 0; p < SYSTEMS; p++) {
            for (int o = 0; wanted(systems[p]) && o < OPERATIONS; o++) {
                if (!isnan(medians[p][size][o])) {
                    print_values(medians, p, size, o);
                }
            }
        }
        (void)fflush(stdout);
    }
}

static void try_faults(void)
{
    outcome *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < FAULT_BLOCKS; i++) {
        fill(run.blocks + i * FAULT_SIZE, FAULT_SIZE, i);
    }
    for (size_t p = 0; p < SYSTEMS; p++) {
        for (int fault = 0; fault < FAULTS; fault++) {
            if (wanted(systems[p]) && systems[p]->persistent) {
                try_fault(systems[p], fault, shared);
            }
        }
    }
}

int main(int argc, char **argv)
{
    struct statfs fs;
    run.rounds = 3;
    run.total_bytes = 160u << 20;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) {
            run.rounds = (unsigned)atoi(argv[++i]);
        } else if (strcmp(argv[i], "--mib") == 0 && i + 1 < argc) {
            run.total_bytes = (size_t)atoi(argv[++i]) << 20;
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            run.only = argv[++i];
        } else {
            run.directory = argv[i];
        }
    }
    if (run.directory == NULL || statfs(run.directory, &fs) != 0 || run.rounds < 1 || run.rounds > ROUNDS_MAX ||
        run.total_bytes < 40u << 20) {
        return die("usage", "peers DIRECTORY [--rounds 1..32] [--mib 40..] [--only SYSTEM]");
    }
    run.in_memory = fs.f_type == 0x01021994;
    run.blocks = aligned_memory(run.total_bytes);
    run.back = aligned_memory(PEER_BATCH * sizes[SIZES - 1]);
    memset(run.back, 1, PEER_BATCH * sizes[SIZES - 1]);
    measure_all();
    try_faults();
    (void)rmdir(place_for(systems[0]));
    return 0;
}
