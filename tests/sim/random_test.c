/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long random sequences on a simulated medium, crashed in the middle, opened, and on: chains of crashes, some
 * in the opening after a crash, in some lives with calls that fail, a device that goes away and comes back,
 * and bits that flip between two lives.
 *
 * KVO_TEST_SEED: the first chain's, which prints its own when it fails. KVO_TEST_ROUNDS: chains, 400 unless given.
 */
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIVES = 10, NAMES = 20, CHECK = RIG_NAMES - 1 };

static const rig_config configs[] = {
    {"disk:/0:4blk", 12288},
    {"disk:/0:12blk", 12288},
    {"dram:2blk,disk:/0:4blk", 12288},
    {"dram:4blk,disk:/0:9blk", 8192},
    {"dram:2blk,disk:/0:2blk,disk:/1:6blk", 12288},
    {"disk:/0:3blk,disk:/1:8blk", 12288},
};

typedef struct chain {
    uint64_t random;
    rig r;
    sim_medium media[2]; /* of this life, and of the next */
    unsigned turn;
    bool scarred; /* a fault has been in this chain: copies may be bad, what is absent may be back */
    rig_oracle before;
} chain;

/* Chains that have found what others rarely meet, always tried: a slot without its segment's header, a failed write
   taken for a copy, a space that was not flushed, a copy destroyed below one that had been discarded. */
static const uint64_t known[] = {525, 1397, 4514, 7383};

static uint64_t flips, crashes_in_opening;
static sim_counts faults;

static uint32_t draw(chain *c, uint32_t limit) { return sim_draw(&c->random, limit); }
static sim_medium *medium(chain *c) { return &c->media[c->turn]; }

/* ---- a life ---- */

static int some_level(chain *c)
{
    static const int levels[] = {KVO_SEALED, KVO_SEALED, KVO_WRITTEN, KVO_SAFE};
    return levels[draw(c, 4)];
}

static int some_level_of_media(chain *c) { return draw(c, 2) ? KVO_SAFE : KVO_WRITTEN; }

static void close_and_open(chain *c)
{
    int status = rig_close(&c->r);
    if (status != KVO_OK && status != KVO_SHORT && !c->r.faulty && !medium(c)->dead)
        rig_fail("close says %s", kvo_status_name(status));
    sim_faults now = medium(c)->faults;
    medium(c)->faults = (sim_faults){0};
    if (!medium(c)->dead) {
        kvo_error error = {{0}};
        status = rig_try_open(&c->r, &error);
        if (status != KVO_OK && !medium(c)->dead)
            rig_fail("open says %s: %s", kvo_status_name(status), error.text);
        /* What could not be read before may be read now. */
        if (c->r.store && c->scarred && !medium(c)->dead)
            rig_check_crash(&c->r, RIG_DEATH, false);
    }
    medium(c)->faults = now;
}

static void step(chain *c)
{
    rig *r = &c->r;
    unsigned name = draw(c, NAMES);
    switch (draw(c, 20)) {
    case 0:
        rig_remove(r, name, some_level_of_media(c));
        break;
    case 1:
        rig_rewrite(r, name, some_level(c));
        break;
    case 2:
        rig_sync(r, some_level_of_media(c));
        break;
    case 3:
        rig_write_out(r);
        break;
    case 4:
    case 5:
        rig_policy(r, name, draw(c, 6) ? KVO_INTENT_NONE : KVO_INTENT_DROP);
        break;
    case 6:
        if (draw(c, 3) == 0 && !medium(c)->lost)
            close_and_open(c);
        break;
    case 7:
    case 8:
    case 9:
    case 10:
        rig_get(r, name);
        break;
    default:
        rig_put(r, name, some_level(c));
    }
}

static void some_faults(chain *c)
{
    sim_faults *f = &medium(c)->faults;
    c->scarred = c->r.faulty = true;
    *f = (sim_faults){.delays = 20};
    f->read_errors = draw(c, 3) ? 0 : 50;
    f->write_errors = draw(c, 2) ? 0 : 50;
    f->no_space = draw(c, 2) ? 0 : 50;
    f->short_writes = draw(c, 2) ? 0 : 50;
    f->flush_errors = draw(c, 2) ? 0 : 100;
}

/* The device goes and comes back; the store works again without being opened anew. */
static void device_away(chain *c)
{
    bool faulty = c->r.faulty;
    sim_faults now = medium(c)->faults;
    c->scarred = c->r.faulty = medium(c)->lost = true;
    for (uint32_t i = draw(c, 5) + 1; i > 0; i--)
        step(c);
    medium(c)->lost = false;
    medium(c)->faults = (sim_faults){0};
    int status = rig_put(&c->r, CHECK, KVO_WRITTEN);
    if (status != KVO_STORED && status != KVO_EXISTS && !medium(c)->dead)
        rig_fail("the device is back, and a put says %s", kvo_status_name(status));
    rig_check_valid(&c->r);
    medium(c)->faults = now;
    c->r.faulty = faulty || c->scarred;
}

static void live(chain *c)
{
    uint32_t steps = 5 + draw(c, 40);
    sim_medium *m = medium(c);
    if (draw(c, 4) == 0)
        some_faults(c);
    if (draw(c, 4))
        m->crash_at = m->log_count + draw(c, 80);
    for (uint32_t i = 0; i < steps && !m->dead && c->r.store; i++) {
        snprintf(rig_doing + 64, sizeof rig_doing - 64, "step %u", i);
        c->before = c->r.oracle;
        if (draw(c, 60) == 0)
            device_away(c);
        else
            step(c);
        if (!m->dead)
            rig_check_valid(&c->r);
    }
    if (!m->dead)
        c->before = c->r.oracle; /* between two calls */
}

/* ---- and a death ---- */

static void count_faults(const sim_medium *m)
{
    faults.read_errors += m->counts.read_errors;
    faults.write_errors += m->counts.write_errors;
    faults.no_space += m->counts.no_space;
    faults.short_writes += m->counts.short_writes;
    faults.flush_errors += m->counts.flush_errors;
    faults.delays += m->counts.delays;
    faults.lost_calls += m->counts.lost_calls;
}

static void flip_bits(chain *c, rig_oracle *oracle)
{
    static const char *const paths[] = {"/0/data", "/0/policy", "/0/ledger.a", "/0/checkpoint"};
    const char *path = paths[draw(c, 4) % (draw(c, 2) ? 4 : 1)];
    sim_file *f = sim_image_find(&medium(c)->now, path);
    if (f == NULL || f->size == 0)
        return;
    for (uint32_t n = 1 + draw(c, 4); n > 0; n--, flips++)
        sim_image_flip(&medium(c)->now, path, (uint64_t)draw(c, (uint32_t)f->size) * 8 + draw(c, 8));
    sim_image_copy(&medium(c)->start, &medium(c)->now);
    c->scarred = c->r.rotten = true;
    for (unsigned i = 0; i < RIG_NAMES; i++)
        for (int crash = 0; crash < RIG_CRASHES; crash++)
            oracle->names[i].must[crash] = RIG_ABSENT;
}

static void crash_medium(chain *c, int crash)
{
    sim_medium *from = medium(c);
    size_t point = from->dead ? from->crash_at : from->log_count;
    if (rig_verbose)
        fprintf(stderr, "  %s at change %zu of %zu\n", crash == RIG_DEATH ? "death" : "power cut", point,
                from->log_count);
    if (rig_verbose)
        sim_print(from);
    count_faults(from);
    if (c->r.store)
        rig_drop(&c->r);
    c->turn ^= 1;
    memset(&medium(c)->counts, 0, sizeof medium(c)->counts);
    if (crash == RIG_DEATH)
        sim_die(medium(c), from, point, c->random);
    else
        sim_power_cut(medium(c), from, point, c->random);
    c->r.medium = medium(c);
}

/* Crashes, and opens, which may crash too. */
static void die(chain *c)
{
    rig_oracle between;
    int crash = (int)draw(c, 2);
    rig_between(&between, &c->before, &c->r.oracle);
    crash_medium(c, crash);
    if (crash == RIG_POWER && draw(c, 8) == 0)
        flip_bits(c, &between);
    for (;;) {
        kvo_error error = {{0}};
        sim_medium *m = medium(c);
        if (draw(c, 4) == 0)
            m->crash_at = m->log_count + draw(c, 8);
        c->r.oracle = between;
        c->r.faulty = false;
        int status = rig_try_open(&c->r, &error);
        if (status == KVO_OK && !m->dead)
            break;
        if (!m->dead)
            rig_fail("open after a %s says %s: %s", crash == RIG_DEATH ? "death" : "power cut",
                     kvo_status_name(status), error.text);
        crashes_in_opening++;
        int next = (int)draw(c, 2);
        crash_medium(c, next);
        crash = crash == RIG_POWER ? RIG_POWER : next;
    }
    medium(c)->crash_at = SIZE_MAX;
    c->r.faulty = c->scarred;
    rig_check_crash(&c->r, crash, !c->scarred);
    rig_counted.states[crash]++;
}

static void run_chain(uint64_t seed)
{
    static chain c;
    memset(&c.r, 0, sizeof c.r);
    c.random = seed;
    c.scarred = false;
    const rig_config *config = &configs[draw(&c, sizeof configs / sizeof *configs)];
    sim_open(&c.media[0], seed);
    sim_open(&c.media[1], seed);
    c.turn = 0;
    rig_begin(&c.r, medium(&c), config);
    memset(rig_doing, ' ', 64);
    int n = snprintf(rig_doing, 64, "KVO_TEST_SEED=%llu KVO_TEST_ROUNDS=1:", (unsigned long long)seed);
    rig_doing[n] = ' ';
    kvo_error error = {{0}};
    if (draw(&c, 2))
        medium(&c)->crash_at = draw(&c, 30);
    c.before = c.r.oracle;
    if (rig_try_open(&c.r, &error) != KVO_OK && !medium(&c)->dead)
        rig_fail("the first open: %s", error.text);
    for (unsigned life = 0; life < LIVES; life++) {
        if (c.r.store && !medium(&c)->dead)
            live(&c);
        die(&c);
    }
    medium(&c)->faults = (sim_faults){0};
    count_faults(medium(&c));
    rig_end(&c.r);
    sim_close(&c.media[0]);
    sim_close(&c.media[1]);
}

int main(void)
{
    const char *given = getenv("KVO_TEST_SEED"), *more = getenv("KVO_TEST_ROUNDS");
    uint64_t seed = given ? strtoull(given, NULL, 10) : 1, rounds = more ? strtoull(more, NULL, 10) : 400;
    rig_start();
    for (uint64_t i = 0; i < rounds; i++)
        run_chain(seed + i);
    for (size_t i = 0; given == NULL && i < sizeof known / sizeof *known; i++)
        run_chain(known[i]);
    rounds += given ? 0 : sizeof known / sizeof *known;
    uint64_t injected = faults.read_errors + faults.write_errors + faults.no_space + faults.short_writes +
                        faults.flush_errors + faults.lost_calls;
    printf("%llu chains: %llu deaths, %llu power cuts, %llu crashes in an opening, %llu operations; seeds from %llu\n",
           (unsigned long long)rounds, (unsigned long long)rig_counted.states[0],
           (unsigned long long)rig_counted.states[1], (unsigned long long)crashes_in_opening,
           (unsigned long long)rig_counted.operations, (unsigned long long)seed);
    printf("counted: %llu simulated crash states, %llu injected faults, %llu flipped bits on a simulated medium, "
           "%llu payloads compared, 0 wrong bytes\n",
           (unsigned long long)(rig_counted.states[0] + rig_counted.states[1]), (unsigned long long)injected,
           (unsigned long long)flips, (unsigned long long)rig_counted.payloads);
    return rig_counted.states[0] + rig_counted.states[1] == 0; /* nothing shows nothing */
}
