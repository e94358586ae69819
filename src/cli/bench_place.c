/* SPDX-License-Identifier: Apache-2.0 */
/* The work directory, which goes whatever happens but SIGKILL; ctrl-C; what room the machine has. */
#include "bench.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* For what runs at exit and on signals, where nothing can be handed over. */
static char work_directory[2048];
static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    (void)number;
    stopped = 1;
}

void bench_catch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        /* A second one ends the program at once, as it would without us. */
        struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
        (void)sigaction(numbers[i], &action, NULL);
    }
}

int bench_stopped(void)
{
    return stopped ? CLI_STOPPED : 0;
}

/* A directory of files, as a store's is. */
static void remove_flat(const char *path)
{
    DIR *directory = opendir(path);
    const struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        (void)unlinkat(dirfd(directory), entry->d_name, 0);
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
    (void)rmdir(path);
}

static void remove_all(void)
{
    DIR *directory = opendir(work_directory);
    const struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        char path[sizeof work_directory + 1 + sizeof entry->d_name];
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            (void)snprintf(path, sizeof path, "%s/%s", work_directory, entry->d_name);
            if (unlink(path) != 0) {
                remove_flat(path);
            }
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
    (void)rmdir(work_directory);
}

void bench_stop(void)
{
    stopped = 1;
}

int bench_place_make(bench *b, const char *parent)
{
    char path[sizeof work_directory];
    if (parent == NULL) {
        parent = getenv("TMPDIR");
    }
    if (parent == NULL || *parent == 0) {
        parent = "/var/tmp";
    }
    if (strchr(parent, ',') != NULL) {
        return cli_fail("%s: a directory of a store has no comma in its path", parent);
    }
    if ((size_t)snprintf(path, sizeof path, "%s/kvonce-bench-XXXXXX", parent) >= sizeof path - 16) {
        return cli_fail("--dir: the path is too long");
    }
    if (mkdtemp(path) == NULL) {
        return cli_fail("%s: cannot make a directory there: %s", parent, strerror(errno));
    }
    memcpy(work_directory, path, sizeof path);
    memcpy(b->directory, path, sizeof path);
    if (atexit(remove_all) != 0) {
        remove_all();
        return cli_fail("out of memory");
    }
    return 0;
}

void bench_place_clear(const bench *b, const char *store)
{
    char path[sizeof work_directory + 64];
    (void)snprintf(path, sizeof path, "%s/%s", b->directory, store);
    remove_flat(path);
}

/* The number after `key`, blank included, in the first line that begins so; `fallback` if none does. */
static uint64_t number_in(const char *path, const char *key, uint64_t fallback)
{
    char line[256];
    unsigned long long number;
    int found = 0;
    FILE *file = fopen(path, "r");
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        found = strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), "%llu", &number) == 1;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return found ? number : fallback;
}

/* Of one control group: its limit less what cannot be dropped. */
static uint64_t group_room(const char *group)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", group);
    uint64_t limit = number_in(path, "", UINT64_MAX);
    (void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.stat", group);
    uint64_t used = number_in(path, "anon ", 0) + number_in(path, "shmem ", 0);
    return limit == UINT64_MAX ? UINT64_MAX : limit > used ? limit - used : 0;
}

/* Ours and all above it: each one's limit holds. */
static uint64_t groups_room(void)
{
    char group[2048] = "";
    uint64_t least = group_room("");
    FILE *file = fopen("/proc/self/cgroup", "r");
    int found = file != NULL && fscanf(file, "0::%2047s", group) == 1;
    if (file != NULL) {
        (void)fclose(file);
    }
    for (char *slash; found && (slash = strrchr(group, '/')) != NULL; *slash = 0) {
        uint64_t room = group_room(group);
        least = room < least ? room : least;
    }
    return least;
}

uint64_t bench_memory_available(void)
{
    uint64_t kib = number_in("/proc/meminfo", "MemAvailable:", UINT64_MAX >> 10), room = groups_room();
    return kib == UINT64_MAX >> 10 || room < kib << 10 ? room : kib << 10;
}

int bench_place_has(const bench *b, uint64_t disk_bytes, uint64_t memory_bytes)
{
    struct statvfs fs;
    char a[CLI_COUNT_TEXT], c[CLI_COUNT_TEXT];
    if (statvfs(b->directory, &fs) != 0) {
        return cli_fail("%s: %s", b->directory, strerror(errno));
    }
    uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (room < disk_bytes) {
        return cli_fail("%s: needs %s of disk, %s are free: name another place with --dir", b->directory,
                        cli_bytes_text(disk_bytes, a), cli_bytes_text(room, c));
    }
    uint64_t memory = bench_memory_available();
    if (memory < memory_bytes) {
        return cli_fail("needs %s of memory, %s are available", cli_bytes_text(memory_bytes, a),
                        cli_bytes_text(memory, c));
    }
    return 0;
}
