/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that works at a store, or is opening or closing it, is killed at a random moment, and another process
 * looks at what is left; the same directories through the whole loop, so that they age.
 * KVO_TEST_KILLS: how often, 200 unless given; KVO_TEST_SECONDS: for how long instead; KVO_TEST_SEED: what is done
 * and when it is killed, as far as a machine does the same thing twice.
 */
#include <errno.h>
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

#include "life.h"

enum { STORES = 4 };

static const struct {
    const char *tiers; /* behind a directory's name */
    const char *before;
    bool keeps_all;
} kinds[STORES] = {
    {":64M", "disk:", true},
    {":64M", "dram:4M,disk:", true},
    {":4M", "disk:", false},
    {":4M", "dram:4M,disk:", false},
};

static uint64_t seed, chance;

static uint32_t draw(uint32_t below)
{
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((chance >> 33) % below);
}

static uint64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static void rest_us(uint64_t us)
{
    struct timespec t = {(time_t)(us / 1000000u), (long)(us % 1000000u) * 1000};
    nanosleep(&t, NULL);
}

/* ---- rounds ---- */

enum { IN_WORK, IN_OPENING, IN_CLOSING, PLACES };

static const char *const places[PLACES] = {"at work", "while opening", "while closing"};

/* How long the last opening and closing took. */
typedef struct span {
    uint64_t open_us, close_us;
} span;

static void wait_for_phase(pid_t child, const life *l, uint32_t phase)
{
    siginfo_t ended = {0};
    while (l->known->phase < phase && ended.si_pid == 0) {
        rest_us(100);
        waitid(P_PID, (id_t)child, &ended, WEXITED | WNOHANG | WNOWAIT);
    }
}

static pid_t start(int (*body)(const life *l, bool a, bool b), const life *l, bool a, bool b)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(body(l, a, b));
    }
    return child;
}

static int write_body(const life *l, bool a, bool b)
{
    (void)a, (void)b;
    return life_write(l);
}

/* Whether it was killed, and not faster. */
static bool kill_one(const life *l, int where, span *s)
{
    int status;
    l->known->phase = l->known->close_now = 0;
    pid_t child = start(write_body, l, false, false);
    wait_for_phase(child, l, KNOWN_OPENING);
    uint64_t begin = now_us();
    if (where == IN_OPENING) {
        rest_us(draw((uint32_t)(s->open_us * 5 / 4 + 1000)));
    } else {
        wait_for_phase(child, l, KNOWN_WORKING);
        s->open_us = now_us() - begin;
        rest_us(draw(60000));
    }
    if (where == IN_CLOSING) {
        l->known->close_now = 1;
        wait_for_phase(child, l, KNOWN_CLOSING);
        rest_us(draw((uint32_t)(s->close_us * 5 / 4 + 1000)));
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        known_say(l->known, __LINE__, "the writer died of signal %d", WTERMSIG(status));
    return WIFSIGNALED(status);
}

static void check_one(const life *l, bool verifies, bool closes, span *s)
{
    int status;
    uint64_t begin = now_us();
    pid_t child = start(life_check, l, verifies, closes);
    waitpid(child, &status, 0);
    if (closes)
        s->close_us = (now_us() - begin) / 4;
    if (status != 0)
        known_say(l->known, __LINE__, "the checker ended with status %x", (unsigned)status);
}

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *walk)
{
    (void)about, (void)kind, (void)walk;
    return remove(path);
}

typedef struct loop {
    unsigned count, kills, by_place[PLACES];
    uint64_t end_us; /* instead of a count, if not 0 */
} loop;

static bool more(const loop *p) { return p->end_us ? now_us() < p->end_us : p->kills < p->count; }

static bool run(life *lives, loop *p)
{
    span spans[STORES] = {{0, 0}};
    for (unsigned round = 0; more(p); round++) {
        life *l = &lives[round % STORES];
        span *s = &spans[round % STORES];
        uint32_t kind = draw(8);
        int where = kind == 0 ? IN_OPENING : kind == 1 ? IN_CLOSING : IN_WORK;
        l->seed = seed + round;
        l->io_engine = draw(3) ? KVO_IO_AUTO : KVO_IO_THREADS;
        bool killed = kill_one(l, where, s);
        p->kills += killed;
        p->by_place[where] += killed;
        if (l->known->wrong_line == 0)
            check_one(l, draw(8) == 0, draw(4) == 0, s);
        if (l->known->wrong_line == 0)
            continue;
        printf("round %u, %s, killed %s: line %u: %s (KVO_TEST_SEED=%llu; the directory stays)\n", round, l->tiers,
               places[where], l->known->wrong_line, l->known->wrong, (unsigned long long)seed);
        return false;
    }
    return true;
}

static void report(const life *lives, const loop *p)
{
    uint64_t verified = 0, policies = 0, wrong = 0, lost = 0, returned = 0, evictions = 0, steps = 0;
    for (unsigned i = 0; i < STORES; i++) {
        const known *k = lives[i].known;
        verified += k->verified;
        policies += k->policies;
        wrong += k->wrong_bytes;
        lost += k->lost;
        returned += k->returned;
        evictions += k->evictions;
        steps += k->steps;
    }
    printf("%u kills, %llu blocks verified, %llu wrong bytes, %llu lost\n", p->kills, (unsigned long long)verified,
           (unsigned long long)wrong, (unsigned long long)lost);
    printf("%u %s, %u %s, %u %s; %llu calls, %llu policies, %llu evictions, %llu came back\n", p->by_place[0], places[0],
           p->by_place[1], places[1], p->by_place[2], places[2], (unsigned long long)steps,
           (unsigned long long)policies, (unsigned long long)evictions, (unsigned long long)returned);
}

/* A number of the environment. */
static uint64_t asked(const char *name, uint64_t otherwise)
{
    const char *given = getenv(name);
    return given && *given ? strtoull(given, NULL, 10) : otherwise;
}

static bool make_lives(life *lives, const char *root, char tiers[STORES][256])
{
    for (unsigned i = 0; i < STORES; i++) {
        snprintf(tiers[i], 256, "%s%s/%u%s", kinds[i].before, root, i, kinds[i].tiers);
        lives[i] = (life){.tiers = tiers[i],
                          .level = KVO_WRITTEN,
                          .keeps_all = kinds[i].keeps_all,
                          .known = known_new(),
                          .open = kvo_open};
        if (lives[i].known == NULL)
            return false;
    }
    return true;
}

int main(void)
{
    const char *base = getenv("TMPDIR");
    char root[128], tiers[STORES][256];
    life lives[STORES];
    uint64_t seconds = asked("KVO_TEST_SECONDS", 0);
    loop p = {.count = (unsigned)asked("KVO_TEST_KILLS", 200), .end_us = seconds ? now_us() + seconds * 1000000u : 0};
    seed = asked("KVO_TEST_SEED", (uint64_t)time(NULL));
    chance = seed * 0x9e3779b97f4a7c15u;
    snprintf(root, sizeof root, "%s/kvonce-kill-XXXXXX", base && strlen(base) < 64 ? base : "/tmp");
    if (mkdtemp(root) == NULL || !make_lives(lives, root, tiers)) {
        perror(root);
        return 1;
    }
    bool right = run(lives, &p);
    report(lives, &p);
    if (right)
        nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    return !right;
}
