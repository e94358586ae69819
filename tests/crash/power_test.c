/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The power goes, for real: an ext4 of our own is shut down under a store that works at it, without its journal being
 * written, and mounted again. What was reported safe is there; what was removed at that level is not.
 * KVO_TEST_ROUNDS: how often, 30 unless given; KVO_TEST_SEED. Skips where there is no root or no loop device.
 */
#include <stdio.h>
#include <sys/stat.h>

#include "loop.h"
#include "rounds.h"
#include "test.h"

enum { STORES = 3 };

static const struct {
    const char *before, *behind;
    bool keeps_all;
} kinds[STORES] = {{"disk:", ":64M", true}, {"dram:4M,disk:", ":64M", true}, {"dram:4M,disk:", ":4M", false}};

typedef struct place {
    char root[128], image[160], mounted[160], boot[160];
    unsigned boots;
} place;

/* Off and on again. */
static bool restart(place *p)
{
    return loop_unmount(p->mounted) && loop_mount(p->image, p->mounted) && loop_new_boot(p->boot, ++p->boots);
}

static bool cut_one(place *p, const life *l)
{
    uint32_t kind = rounds_draw(6);
    pid_t child = rounds_write(l);
    if (kind == 0) {
        rounds_wait_for(child, l, KNOWN_OPENING);
        rounds_rest_us(rounds_draw(30000));
    } else {
        rounds_wait_for(child, l, KNOWN_WORKING);
        rounds_rest_us(20000 + rounds_draw(200000));
    }
    if (kind == 1) {
        l->known->close_now = 1;
        rounds_wait_for(child, l, KNOWN_CLOSING);
        rounds_rest_us(rounds_draw(20000));
    }
    bool right = loop_cut(p->mounted);
    /* What it is told of a dead device must be true too. */
    rounds_rest_us(rounds_draw(30000));
    rounds_kill(child, l);
    return right && restart(p);
}

static bool run(place *p, life *lives, unsigned rounds, unsigned *cuts)
{
    for (unsigned round = 0; round < rounds; round++, ++*cuts) {
        life *l = &lives[round % STORES];
        l->seed = rounds_seed + round;
        l->io_engine = rounds_draw(3) ? KVO_IO_AUTO : KVO_IO_THREADS;
        l->device_dies = true;
        bool right = cut_one(p, l);
        l->device_dies = false;
        if (right && l->known->wrong_line == 0)
            rounds_check(l, rounds_draw(2) == 0, rounds_draw(2) == 0);
        if (!right || l->known->wrong_line) {
            printf("round %u, %s: line %u: %s (KVO_TEST_SEED=%llu)\n", round, l->tiers, l->known->wrong_line,
                   l->known->wrong, (unsigned long long)rounds_seed);
            return false;
        }
    }
    return true;
}

static bool make_place(place *p)
{
    if (!rounds_directory(p->root, sizeof p->root, "power"))
        return false;
    snprintf(p->image, sizeof p->image, "%s/image", p->root);
    snprintf(p->mounted, sizeof p->mounted, "%s/mounted", p->root);
    snprintf(p->boot, sizeof p->boot, "%s/boot", p->root);
    return mkdir(p->mounted, 0700) == 0 && loop_make(p->image, 192, "") && loop_mount(p->image, p->mounted) &&
           loop_new_boot(p->boot, ++p->boots);
}

static void report(const life *lives, unsigned cuts)
{
    uint64_t verified = 0, wrong = 0, lost = 0, returned = 0, steps = 0;
    for (unsigned i = 0; i < STORES; i++) {
        verified += lives[i].known->verified;
        wrong += lives[i].known->wrong_bytes;
        lost += lives[i].known->lost;
        returned += lives[i].known->returned;
        steps += lives[i].known->steps;
    }
    printf("counted: %u power cuts, %llu payloads compared, %llu wrong bytes, %llu lost blocks\n", cuts,
           (unsigned long long)verified, (unsigned long long)wrong, (unsigned long long)lost);
    printf("%llu came back; %llu calls\n", (unsigned long long)returned, (unsigned long long)steps);
}

int main(void)
{
    place p = {.boots = 0};
    char tiers[STORES][256];
    life lives[STORES];
    unsigned rounds = (unsigned)rounds_asked("KVO_TEST_ROUNDS", 30), cuts = 0;
    const char *why = loop_ready();
    if (why) {
        printf("skipped: %s\n", why);
        return TEST_SKIPPED;
    }
    rounds_begin();
    bool right = make_place(&p);
    for (unsigned i = 0; i < STORES && right; i++) {
        snprintf(tiers[i], sizeof tiers[i], "%s%s/%u%s", kinds[i].before, p.mounted, i, kinds[i].behind);
        lives[i] = (life){.tiers = tiers[i], .level = KVO_SAFE, .keeps_all = kinds[i].keeps_all,
                          .known = known_new(), .open = kvo_open};
        right = lives[i].known != NULL;
    }
    if (right) {
        right = run(&p, lives, rounds, &cuts);
        report(lives, cuts);
    }
    loop_unmount(p.mounted);
    rounds_remove(p.root);
    return !right;
}
