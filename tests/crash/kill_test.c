/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that works at a store, or is opening or closing it, is killed at a random moment, and another process
 * looks at what is left; the same directories through the whole loop, so that they age.
 * KVO_TEST_KILLS: how often, 200 unless given; KVO_TEST_SECONDS: for how long instead; KVO_TEST_SEED: what is done
 * and when it is killed, as far as a machine does the same thing twice.
 */
#include <stdio.h>

#include "rounds.h"

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

enum { IN_WORK, IN_OPENING, IN_CLOSING, PLACES };

static const char *const places[PLACES] = {"at work", "while opening", "while closing"};

/* How long the last opening and closing took. */
typedef struct span {
    uint64_t open_us, close_us;
} span;

/* Whether it was killed, and not faster. */
static bool kill_one(const life *l, int where, span *s)
{
    pid_t child = rounds_write(l);
    rounds_wait_for(child, l, KNOWN_OPENING);
    uint64_t begin = rounds_now_us();
    if (where == IN_OPENING) {
        rounds_rest_us(rounds_draw((uint32_t)(s->open_us * 5 / 4 + 1000)));
    } else {
        rounds_wait_for(child, l, KNOWN_WORKING);
        s->open_us = rounds_now_us() - begin;
        rounds_rest_us(rounds_draw(60000));
    }
    if (where == IN_CLOSING) {
        l->known->close_now = 1;
        rounds_wait_for(child, l, KNOWN_CLOSING);
        rounds_rest_us(rounds_draw((uint32_t)(s->close_us * 5 / 4 + 1000)));
    }
    return rounds_kill(child, l);
}

static void check_one(const life *l, bool verifies, bool closes, span *s)
{
    uint64_t begin = rounds_now_us();
    rounds_check(l, verifies, closes);
    if (closes)
        s->close_us = (rounds_now_us() - begin) / 4;
}

typedef struct loop {
    unsigned count, kills, by_place[PLACES];
    uint64_t end_us; /* instead of a count, if not 0 */
} loop;

static bool more(const loop *p) { return p->end_us ? rounds_now_us() < p->end_us : p->kills < p->count; }

static bool run(life *lives, loop *p)
{
    span spans[STORES] = {{0, 0}};
    for (unsigned round = 0; more(p); round++) {
        life *l = &lives[round % STORES];
        span *s = &spans[round % STORES];
        uint32_t kind = rounds_draw(8);
        int where = kind == 0 ? IN_OPENING : kind == 1 ? IN_CLOSING : IN_WORK;
        l->seed = rounds_seed + round;
        l->io_engine = rounds_draw(3) ? KVO_IO_AUTO : KVO_IO_THREADS;
        bool killed = kill_one(l, where, s);
        p->kills += killed;
        p->by_place[where] += killed;
        if (l->known->wrong_line == 0)
            check_one(l, rounds_draw(8) == 0, rounds_draw(4) == 0, s);
        if (l->known->wrong_line == 0)
            continue;
        printf("round %u, %s, killed %s: line %u: %s (KVO_TEST_SEED=%llu; the directory stays)\n", round, l->tiers,
               places[where], l->known->wrong_line, l->known->wrong, (unsigned long long)rounds_seed);
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
    printf("counted: %u crash rounds, %llu payloads compared, %llu wrong bytes, %llu lost blocks\n", p->kills,
           (unsigned long long)verified, (unsigned long long)wrong, (unsigned long long)lost);
    printf("%u %s, %u %s, %u %s; %llu calls, %llu policies, %llu evictions, %llu came back\n",
           p->by_place[0], places[0], p->by_place[1], places[1], p->by_place[2], places[2],
           (unsigned long long)steps, (unsigned long long)policies, (unsigned long long)evictions,
           (unsigned long long)returned);
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
    char root[128], tiers[STORES][256];
    life lives[STORES];
    uint64_t us = rounds_asked("KVO_TEST_SECONDS", 0) * 1000000u;
    loop p = {.count = (unsigned)rounds_asked("KVO_TEST_KILLS", 200), .end_us = us ? rounds_now_us() + us : 0};
    rounds_begin();
    if (!rounds_directory(root, sizeof root, "kill") || !make_lives(lives, root, tiers)) {
        perror(root);
        return 1;
    }
    bool right = run(lives, &p);
    report(lives, &p);
    if (right)
        rounds_remove(root);
    return !right;
}
