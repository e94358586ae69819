/* SPDX-License-Identifier: Apache-2.0 */
/* On what the rows were measured, and with what. */
#include "bench.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef BENCH_FLAGS
#define BENCH_FLAGS "unknown"
#endif

#if defined(__clang__)
#define COMPILER "clang "
#elif defined(__GNUC__)
#define COMPILER "gcc "
#else
#define COMPILER ""
#endif

/* The value of the first line "key : value" of a file, without the blanks around it; "" if there is none. */
static void value_in(const char *path, const char *key, char *text, size_t bytes)
{
    char line[1024];
    size_t length = strlen(key);
    FILE *file = fopen(path, "r");
    text[0] = 0;
    while (file != NULL && text[0] == 0 && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (colon != NULL && strncmp(line, key, length) == 0) {
            colon += 1 + strspn(colon + 1, " \t");
            (void)snprintf(text, bytes, "%.*s", (int)strcspn(colon, "\n"), colon);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

/* The word in brackets: "always [madvise] never". */
static void chosen_in(const char *path, char *text, size_t bytes)
{
    char line[256] = "";
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        (void)!fgets(line, sizeof line, file);
        (void)fclose(file);
    }
    const char *open = strchr(line, '[');
    (void)snprintf(text, bytes, "%.*s", open != NULL ? (int)strcspn(open + 1, "]") : 7,
                   open != NULL ? open + 1 : "unknown");
}

static const char *vector_unit(void)
{
#if defined(__x86_64__) || defined(__i386__)
    return __builtin_cpu_supports("avx512f") ? "avx512" : __builtin_cpu_supports("avx2") ? "avx2" : "sse2";
#elif defined(__aarch64__)
    return "neon";
#else
    return "unknown";
#endif
}

static const char *file_system(const char *directory)
{
    static const struct {
        unsigned long type;
        const char *name;
    } known[] = {{0xef53, "ext4"},        {0x58465342, "xfs"},     {0x9123683e, "btrfs"}, {0x01021994, "tmpfs"},
                 {0x794c7630, "overlay"}, {0xf2f52010, "f2fs"},    {0x6969, "nfs"},       {0x2fc12fc1, "zfs"},
                 {0x65735546, "fuse"},    {0xca451a4e, "bcachefs"}};
    struct statfs fs;
    if (statfs(directory, &fs) != 0) {
        return "unknown";
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].type == (unsigned long)fs.f_type) {
            return known[i].name;
        }
    }
    return "unknown";
}

/* What processor 0 shares with its neighbours; sysconf() adds up all of a package on some machines. 0: unknown. */
static uint64_t last_cache(void)
{
    unsigned long long kib = 0;
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
    int known = file != NULL && fscanf(file, "%lluK", &kib) == 1;
    if (file != NULL) {
        (void)fclose(file);
    }
    long cache = known ? 0 : sysconf(_SC_LEVEL3_CACHE_SIZE);
    return known ? (uint64_t)kib << 10 : cache > 0 ? (uint64_t)cache : 0;
}

static unsigned cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

static bench_fact *add(bench_fact *facts, size_t *count, const char *name, const char *text)
{
    bench_fact *fact = &facts[(*count)++];
    fact->name = name;
    fact->is_number = 0;
    (void)snprintf(fact->text, sizeof fact->text, "%s", text);
    return fact;
}

static void add_number(bench_fact *facts, size_t *count, const char *name, uint64_t number)
{
    bench_fact *fact = add(facts, count, name, "");
    fact->number = number;
    fact->is_number = 1;
}

static void add_flag(bench_fact *facts, size_t *count, const char *name, int value)
{
    (void)add(facts, count, name, value ? "yes" : "no");
}

size_t bench_machine(const bench *b, bench_fact facts[BENCH_FACTS_MAX])
{
    char text[512];
    struct utsname system;
    size_t count = 0;
    uint64_t cache = last_cache();
    long pages = sysconf(_SC_PHYS_PAGES);

    value_in("/proc/cpuinfo", "model name", text, sizeof text);
    (void)uname(&system);
    (void)add(facts, &count, "cpu", text[0] != 0 ? text : system.machine);
    add_number(facts, &count, "cores", cores());
    (void)add(facts, &count, "vector_unit", vector_unit());
    if (cache != 0) {
        add_number(facts, &count, "cache_bytes", cache);
    } else {
        (void)add(facts, &count, "cache_bytes", "unknown");
    }
    add_number(facts, &count, "memory_bytes", pages > 0 ? (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0);
    chosen_in("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
    (void)add(facts, &count, "huge_pages", text);
    chosen_in("/sys/kernel/mm/transparent_hugepage/shmem_enabled", text, sizeof text);
    (void)add(facts, &count, "huge_pages_shared", text);
    (void)snprintf(text, sizeof text, "%.60s %.180s", system.sysname, system.release);
    (void)add(facts, &count, "kernel", text);
    (void)add(facts, &count, "file_system", file_system(b->directory));
    add_flag(facts, &count, "direct_io", b->direct_io);
    (void)add(facts, &count, "io_engine", b->io_engine == KVO_IO_URING ? "io_uring" : "threads");
    add_flag(facts, &count, "io_registered", b->io_registered);
    (void)add(facts, &count, "raw_engine", b->raw_engine);
    (void)add(facts, &count, "compiler", COMPILER __VERSION__);
    (void)add(facts, &count, "flags", BENCH_FLAGS);
    (void)add(facts, &count, "version", kvo_version());
    (void)snprintf(text, sizeof text, "kvonce %s%s%s%s", b->command, b->full ? " --full" : "",
                   b->quick && b->more == NULL ? " --quick" : "", b->more != NULL ? b->more : "");
    (void)add(facts, &count, "command", text);
    return count;
}
