/* SPDX-License-Identifier: Apache-2.0 */
/* What a process may have. Whoever takes more is killed, at some later moment and without a word; so openers ask. */
#include "base/env_posix_limits.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

/* A small file of the kernel's, as text; false: there is none. */
static bool read_text(const char *path, char *text, size_t bytes)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    const ssize_t got = read(file, text, bytes - 1);
    close(file);
    text[got > 0 ? got : 0] = 0;
    return got > 0;
}

/* "max", or a number, which is huge where there is no limit. */
static void lower_to(uint64_t *bytes, const char *path)
{
    char text[64];
    if (!read_text(path, text, sizeof text) || text[0] < '0' || text[0] > '9')
        return;
    const uint64_t limit = strtoull(text, NULL, 10);
    if (limit != 0 && limit < *bytes)
        *bytes = limit;
}

/* Limits of a group hold for all groups in it. `from` is where the hierarchy is mounted; in a container the path that
   the kernel tells may not be below it, and the mount point is the process's own group. */
static void lower_to_groups(uint64_t *bytes, const char *from, const char *group, const char *name)
{
    char path[512], file[640];
    if ((size_t)snprintf(path, sizeof path, "%s%s", from, group) >= sizeof path)
        return;
    for (char *end = path + strlen(path); end != NULL && end >= path + strlen(from); end = strrchr(path, '/')) {
        *end = 0;
        snprintf(file, sizeof file, "%s/%s", path, name);
        lower_to(bytes, file);
    }
}

static void lower_to_cgroup(uint64_t *bytes)
{
    char text[4096], *rest;
    if (!read_text("/proc/self/cgroup", text, sizeof text))
        return;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL)
            continue;
        *group++ = 0;
        if (controllers[1] == 0)
            lower_to_groups(bytes, "/sys/fs/cgroup", group, "memory.max");
        else if (strcmp(controllers + 1, "memory") == 0)
            lower_to_groups(bytes, "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes");
    }
}

void base_posix_limits(base_env *env, base_limits *limits)
{
    struct rlimit file;
    struct sysinfo machine;

    (void)env;
    *limits = (base_limits){UINT64_MAX, UINT64_MAX};
    if (getrlimit(RLIMIT_FSIZE, &file) == 0 && file.rlim_cur != RLIM_INFINITY)
        limits->file_bytes = file.rlim_cur;
    if (sysinfo(&machine) == 0)
        limits->memory_bytes = ((uint64_t)machine.totalram + machine.totalswap) * machine.mem_unit;
    lower_to_cgroup(&limits->memory_bytes);
}
