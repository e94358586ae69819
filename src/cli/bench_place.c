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
            remove_flat(path);
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
    (void)rmdir(work_directory);
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

static uint64_t memory_available(void)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    while (file != NULL && kib == 0 && fgets(line, sizeof line, file) != NULL) {
        (void)sscanf(line, "MemAvailable: %llu", &kib);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return kib != 0 ? (uint64_t)kib << 10 : UINT64_MAX;
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
    uint64_t memory = memory_available();
    if (memory < memory_bytes) {
        return cli_fail("needs %s of memory, %s are available", cli_bytes_text(memory_bytes, a),
                        cli_bytes_text(memory, c));
    }
    return 0;
}
