/* SPDX-License-Identifier: Apache-2.0 */
#include "rounds.h"

#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

uint64_t rounds_seed;
static uint64_t chance;

uint64_t rounds_asked(const char *name, uint64_t otherwise)
{
    const char *given = getenv(name);
    return given && *given ? strtoull(given, NULL, 10) : otherwise;
}

void rounds_begin(void)
{
    rounds_seed = rounds_asked("KVO_TEST_SEED", (uint64_t)time(NULL));
    chance = rounds_seed * 0x9e3779b97f4a7c15u;
}

uint32_t rounds_draw(uint32_t below)
{
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((chance >> 33) % below);
}

uint64_t rounds_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

void rounds_rest_us(uint64_t us)
{
    struct timespec t = {(time_t)(us / 1000000u), (long)(us % 1000000u) * 1000};
    nanosleep(&t, NULL);
}

/* ---- directories ---- */

bool rounds_directory(char *path, size_t bytes, const char *name)
{
    const char *base = getenv("TMPDIR");
    snprintf(path, bytes, "%s/kvonce-%s-XXXXXX", base && strlen(base) < 64 ? base : "/tmp", name);
    return mkdtemp(path) != NULL;
}

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *walk)
{
    (void)about, (void)kind, (void)walk;
    return remove(path);
}

void rounds_remove(const char *path) { nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT); }

/* ---- processes ---- */

static pid_t start(void)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return child;
}

pid_t rounds_write(const life *l)
{
    l->known->phase = l->known->close_now = 0;
    pid_t child = start();
    if (child == 0 && l->prepare)
        l->prepare(l);
    if (child == 0)
        _exit(life_write(l));
    return child;
}

void rounds_wait_for(pid_t child, const life *l, uint32_t phase)
{
    siginfo_t ended = {0};
    while (l->known->phase < phase && ended.si_pid == 0) {
        rounds_rest_us(100);
        waitid(P_PID, (id_t)child, &ended, WEXITED | WNOHANG | WNOWAIT);
    }
}

bool rounds_kill(pid_t child, const life *l)
{
    int status = 0;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        known_say(l->known, __LINE__, "the writer died of signal %d", WTERMSIG(status));
    return WIFSIGNALED(status);
}

void rounds_check(const life *l, bool verifies, bool closes)
{
    int status = 0;
    pid_t child = start();
    if (child == 0)
        _exit(life_check(l, verifies, closes));
    waitpid(child, &status, 0);
    if (status != 0)
        known_say(l->known, __LINE__, "the checker ended with status %x", (unsigned)status);
}
