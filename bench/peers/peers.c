/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same blocks through each system, at the word of run.py:
 *
 *     peers MIB
 *
 * prints a line for each system and `{"ready": true}`, then a line for each command that it reads:
 *
 *     place - DIRECTORY           where all that follows happens; it is made and removed; not answered
 *     measure BLOCK_BYTES SYSTEM
 *     fault NAME SYSTEM           NAME: flipped_byte, truncated_file, zeroed_file, kill_after_put
 *
 * All lines are JSON objects. Each command runs in a process of its own, since what it tries may die.
 */
#include "peer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

static const peer_ops *const systems[] = {
    &peer_memcpy, &peer_raw,         &peer_file,           &peer_lmdb,          &peer_rocksdb,
    &peer_redis,  &peer_kvonce_disk, &peer_kvonce_threads, &peer_kvonce_memory, &peer_kvonce_both};
enum { SYSTEMS = sizeof systems / sizeof systems[0] };
enum { BLOCK_MAX = 8 << 20 };

peer_run run;

void run_give_up(const char *why)
{
    char plain[512];
    (void)snprintf(plain, sizeof plain, "%s", why);
    for (char *c = plain; *c != 0; c++) {
        *c = *c == '"' || *c == '\\' || (unsigned char)*c < ' ' ? ' ' : *c;
    }
    (void)snprintf(run.answer, PEER_ANSWER, "{\"missing\": \"%s\"}", plain);
    _exit(0);
}

/* ---- Blocks ---- */

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

void run_key(uint64_t number, uint8_t key[PEER_KEY])
{
    memcpy(key, &number, 8);
    for (uint64_t i = 1; i < PEER_KEY / 8; i++) {
        uint64_t word = mixed(number * 7 + i);
        memcpy(key + 8 * i, &word, 8);
    }
}

void run_fill(uint8_t *blocks, size_t size, size_t count)
{
    for (uint64_t number = 0; number < count; number++) {
        for (size_t i = 0; i < size; i += 8) {
            uint64_t word = mixed(number << 32 | i);
            memcpy(blocks + number * size + i, &word, 8);
        }
    }
}

uint8_t *run_memory(size_t bytes)
{
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        run_give_up("no memory");
    }
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 1, bytes); /* its pages are there before any time is taken */
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

const char *run_place(void)
{
    (void)mkdir(run.directory, 0700);
    clear(run.directory);
    return run.directory;
}

void run_each_file(const char *path, void (*call)(const char *file, void *context), void *context)
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
            run_each_file(inner, call, context);
        } else if (S_ISREG(st.st_mode)) {
            call(inner, context);
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
}

static void drop_file(const char *path, void *context)
{
    (void)context;
    int file = open(path, O_RDONLY);
    if (file >= 0) {
        (void)fdatasync(file);
        (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        (void)close(file);
    }
}

void run_make_cold(const char *path)
{
    if (!run.in_memory) {
        run_each_file(path, drop_file, NULL);
    }
}

/* ---- One system ---- */

void run_open(peer_session *s)
{
    char error[256] = "";
    s->peer = s->ops->open(&s->place, error);
    if (s->peer == NULL) {
        run_give_up(error);
    }
}

void run_put(peer_session *s, size_t first)
{
    uint8_t keys[PEER_BATCH * PEER_KEY];
    const void *blocks[PEER_BATCH];
    size_t n = s->count - first < PEER_BATCH ? s->count - first : PEER_BATCH;
    for (size_t i = 0; i < n; i++) {
        run_key(first + i, keys + i * PEER_KEY);
        blocks[i] = run.blocks + (first + i) * s->size;
    }
    if (s->ops->put(s->peer, keys, blocks, n, s->size) != 0) {
        run_give_up("a put failed");
    }
}

int run_sync(const peer_session *s)
{
    if (s->ops->sync != NULL) {
        return s->ops->sync(s->peer);
    }
    int folder = open(s->place.directory, O_RDONLY | O_DIRECTORY);
    int r = folder >= 0 ? syncfs(folder) : -1;
    (void)(folder >= 0 && close(folder));
    return r;
}

/* ---- Commands ---- */

static void print_systems(void)
{
    for (size_t i = 0; i < SYSTEMS; i++) {
        const peer_ops *ops = systems[i];
        printf("{\"system\": \"%s\", \"durability\": \"%s\", \"checks\": \"%s\", \"persistent\": %s, "
               "\"alone\": %s, \"loads_all\": %s}\n",
               ops->name, ops->durability, ops->checks, ops->persistent ? "true" : "false",
               ops->writer == NULL ? "true" : "false", ops->loads_all ? "true" : "false");
    }
    printf("{\"ready\": true}\n");
    (void)fflush(stdout);
}

static const peer_ops *find(const char *name)
{
    for (size_t i = 0; i < SYSTEMS; i++) {
        if (strcmp(systems[i]->name, name) == 0) {
            return systems[i];
        }
    }
    return NULL;
}

/* Blocks of a new size are made here, so that they are there for every command that follows. */
static void prepare(size_t size)
{
    static size_t filled;
    if (filled != size) {
        run_fill(run.blocks, size, run.total_bytes / size);
        filled = size;
    }
}

static void obey(const char *verb, const char *what, const peer_ops *ops)
{
    if (strcmp(verb, "measure") == 0) {
        prepare((size_t)atol(what));
    } else {
        prepare(1 << 20);
    }
    (void)snprintf(run.answer, PEER_ANSWER, "{\"missing\": \"its process ended early\"}");
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        strcmp(verb, "measure") == 0 ? measure(ops, (size_t)atol(what)) : fault(ops, what);
        _exit(0);
    }
    int status = 0;
    (void)waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) {
        (void)snprintf(run.answer, PEER_ANSWER, "{\"missing\": \"its process died of signal %d\"}",
                       WTERMSIG(status));
    }
    clear(run.directory); /* before the answer: what comes next may be another program's, at the same place */
    (void)rmdir(run.directory);
    printf("%s\n", run.answer);
    (void)fflush(stdout);
}

static void go_to(const char *directory)
{
    static char path[4096];
    struct statfs fs;
    (void)snprintf(path, sizeof path, "%s", directory);
    run.directory = path;
    (void)mkdir(path, 0700);
    run.in_memory = statfs(path, &fs) == 0 && fs.f_type == 0x01021994; /* tmpfs */
}

int main(int argc, char **argv)
{
    char line[4200], verb[16], what[32];
    if (argc != 2 || atoi(argv[1]) < 40) {
        fprintf(stderr, "usage: peers MIB (40 or more)\n");
        return 2;
    }
    run.total_bytes = (size_t)atoi(argv[1]) << 20;
    run.answer = mmap(NULL, PEER_ANSWER, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    run.blocks = run_memory(run.total_bytes);
    (void)signal(SIGPIPE, SIG_IGN); /* a server that ends is an error, not our end */
    print_systems();
    while (fgets(line, sizeof line, stdin) != NULL) {
        int at = 0;
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%15s %31s %n", verb, what, &at) != 2) {
            return 2;
        }
        if (strcmp(verb, "place") == 0) {
            go_to(line + at);
            continue;
        }
        const peer_ops *ops = find(line + at);
        if (ops == NULL || run.directory == NULL ||
            (strcmp(verb, "measure") == 0 && (atol(what) < 4096 || atol(what) > BLOCK_MAX))) {
            return 2;
        }
        obey(verb, what, ops);
    }
    return 0;
}
