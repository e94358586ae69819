/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All sequences of up to three operations on a small store, crashed at every change that the last of them
 * makes to the medium (an earlier one's are those of a shorter sequence), with several images a change: the
 * process dies, or the power fails. Each image is opened and compared with what may be there.
 *
 * exhaustive_test STORE, 0 to 2: one disk; memory and a disk; memory and two disks.
 *
 * KVO_TEST_SEED: what is drawn. KVO_TEST_ROUNDS: so many times the images of a change, 1 unless given.
 * KVO_TEST_SEQUENCE: only this one, as a failure prints it. KVO_TEST_VERBOSE: the store's log.
 */
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_MAX = 3, A = 0, B = 1, C = 2, FRESH = 3, BIG = 8, CHECK = RIG_NAMES - 1 };

static const rig_config configs[] = {
    {"disk:/0:4blk", 12288},
    {"dram:2blk,disk:/0:4blk", 12288},
    {"dram:2blk,disk:/0:2blk,disk:/1:4blk", 12288},
};

static uint64_t seed;
static uint64_t rounds = 1;
static const char *only;
static sim_medium running, crashed, again;

/* ---- the verbs ---- */

static unsigned absent(const rig *r, unsigned from)
{
    while (r->oracle.names[from].now != RIG_ABSENT)
        from++;
    return from;
}

static unsigned present(const rig *r)
{
    return r->oracle.names[A].now != RIG_ABSENT ? A : r->oracle.names[B].now != RIG_ABSENT ? B : C;
}

static void do_put(rig *r) { rig_put(r, absent(r, A), KVO_SEALED); }
static void do_put_safe(rig *r) { rig_put(r, absent(r, A), KVO_SAFE); }
static void do_get(rig *r) { rig_get(r, present(r)); }

static void do_policy(rig *r)
{
    rig_policy(r, A, KVO_INTENT_NONE);
    rig_policy(r, B, KVO_INTENT_NONE);
}

static void do_rewrite(rig *r) { rig_rewrite(r, present(r), KVO_WRITTEN); }
static void do_rewrite_safe(rig *r) { rig_rewrite(r, present(r), KVO_SAFE); }
static void do_remove(rig *r) { rig_remove(r, present(r), KVO_WRITTEN); }
static void do_remove_safe(rig *r) { rig_remove(r, present(r), KVO_SAFE); }
static void do_sync(rig *r) { rig_sync(r, KVO_WRITTEN); }
static void do_sync_safe(rig *r) { rig_sync(r, KVO_SAFE); }
static void do_write_out(rig *r) { rig_write_out(r); }

static void do_evict(rig *r)
{
    unsigned name = absent(r, BIG);
    for (unsigned i = 0; i < 3; i++)
        rig_put(r, name + i, KVO_SEALED);
}

static void do_drop(rig *r)
{
    unsigned name = present(r);
    rig_policy(r, name, KVO_INTENT_DROP);
    rig_get(r, name);
}

static void do_close(rig *r)
{
    int status = rig_close(r); /* short: memory holds more than the disk has room for */
    if (status != KVO_OK && !(status == KVO_SHORT && r->config->tiers[1] == 'r'))
        rig_fail("close says %s", kvo_status_name(status));
    rig_open(r);
}

static const struct {
    const char *name;
    void (*run)(rig *r);
} verbs[] = {
    {"put", do_put},
    {"put_safe", do_put_safe},
    {"get", do_get},
    {"policy", do_policy},
    {"rewrite", do_rewrite},
    {"rewrite_safe", do_rewrite_safe},
    {"remove", do_remove},
    {"remove_safe", do_remove_safe},
    {"sync", do_sync},
    {"sync_safe", do_sync_safe},
    {"write_out", do_write_out},
    {"evict", do_evict},
    {"drop", do_drop},
    {"close", do_close},
};
enum { VERBS = sizeof verbs / sizeof *verbs };

/* ---- one crash ---- */

/* So that a sequence alone draws what it draws among all. */
static uint64_t state_seed(const char *sequence, size_t point, int crash, uint64_t image)
{
    uint64_t sum = seed * 1000003 + point * 31 + (uint64_t)crash * 7 + image * 1009;
    for (; *sequence; sequence++)
        sum = (sum ^ (uint8_t)*sequence) * 0x100000001b3u;
    return sum ^ sum >> 31;
}

static void crash_to(sim_medium *m, const sim_medium *from, size_t point, int crash, uint64_t random)
{
    if (crash == RIG_DEATH)
        sim_die(m, from, point, random);
    else
        sim_power_cut(m, from, point, random);
}

/* What the headers say is what the checkpoint of a close in order says. */
static void check_both_ways(rig *r)
{
    int status = rig_close(r);
    if (status != KVO_OK && status != KVO_SHORT)
        rig_fail("close after a crash says %s", kvo_status_name(status));
    sim_load(&again, &crashed.now, seed);
    rig_open(r);
    uint64_t listed = rig_listing(r);
    rig_drop(r);
    sim_image_remove(&again.now, "/0/checkpoint");
    sim_image_remove(&again.now, "/1/checkpoint");
    rig other = *r;
    other.medium = &again;
    rig_open(&other);
    if (rig_listing(&other) != listed)
        rig_fail("checkpoint and headers say different things");
    rig_drop(&other);
}

/* A crash in the opening that follows the crash: what had to be there still has to be. */
static void crash_again(const rig_config *config, const rig_oracle *oracle, int crash, size_t first, uint64_t random)
{
    rig r;
    size_t point = first + sim_draw(&random, (uint32_t)(crashed.log_count - first) + 1);
    int second = (int)sim_draw(&random, 2);
    size_t text = strlen(rig_doing);
    snprintf(rig_doing + text, sizeof rig_doing - text, ", then %s at %zu of the opening",
             second == RIG_DEATH ? "death" : "power cut", point - first);
    crash_to(&again, &crashed, point, second, random);
    rig_begin(&r, &again, config);
    r.oracle = *oracle;
    rig_open(&r);
    rig_check_crash(&r, crash == RIG_POWER ? RIG_POWER : second, true);
    rig_counted.states[second]++;
    rig_end(&r);
}

static void try_state(const rig_config *config, const char *sequence, const rig_oracle *oracle, size_t point, int crash,
                      uint64_t image)
{
    uint64_t random = state_seed(sequence, point, crash, image);
    rig r;
    snprintf(rig_doing, sizeof rig_doing, "KVO_TEST_SEED=%llu KVO_TEST_SEQUENCE=%s on %s, %s at change %zu, image %llu",
             (unsigned long long)seed, sequence, config->tiers, crash == RIG_DEATH ? "death" : "power cut", point,
             (unsigned long long)image);
    crash_to(&crashed, &running, point, crash, random);
    rig_begin(&r, &crashed, config);
    r.oracle = *oracle;
    r.tenants = 30000;
    size_t first = crashed.log_count;
    rig_open(&r);
    size_t opened = crashed.log_count;
    rig_check_crash(&r, crash, true);
    rig_counted.states[crash]++;
    if (random % 8 == 0) {
        rig_check_works(&r, CHECK);
        if (random % 16 == 0)
            check_both_ways(&r);
    } else if (random % 8 == 1) {
        rig_drop(&r);
        crashed.log_count = opened;
        crash_again(config, oracle, crash, first, random);
    }
    rig_end(&r);
}

/* The longest sequences are many: one image a change, of either crash. */
static void try_point(const rig_config *config, const char *sequence, const rig_oracle *oracle, size_t point, bool few)
{
    for (uint64_t image = 0; image < rounds * (few ? 1 : 4); image++) {
        int crash = few ? (int)(state_seed(sequence, point, 0, image) >> 7 & 1) : image % 4 ? RIG_POWER : RIG_DEATH;
        try_state(config, sequence, oracle, point, crash, image);
    }
}

/* ---- a sequence ---- */

static sim_image base;
static rig_oracle base_oracle;

static void make_base(const rig_config *config)
{
    rig r;
    sim_medium m;
    sim_open(&m, seed);
    rig_begin(&r, &m, config);
    snprintf(rig_doing, sizeof rig_doing, "KVO_TEST_SEED=%llu, making %s", (unsigned long long)seed, config->tiers);
    rig_open(&r);
    rig_put(&r, A, KVO_SEALED);
    rig_put(&r, B, KVO_SEALED);
    rig_put(&r, C, KVO_SEALED);
    if (rig_close(&r) != KVO_OK)
        rig_fail("close");
    sim_image_copy(&base, &m.now);
    base_oracle = r.oracle;
    rig_end(&r);
    sim_close(&m);
}

static void run_sequence(const rig_config *config, const unsigned *sequence, unsigned length)
{
    char text[256] = "open";
    rig r;
    for (unsigned i = 0, n = 4; i < length; i++)
        n += (unsigned)snprintf(text + n, sizeof text - n, ",%s", verbs[sequence[i]].name);
    if (only && strcmp(only, text) != 0)
        return;
    snprintf(rig_doing, sizeof rig_doing, "KVO_TEST_SEED=%llu KVO_TEST_SEQUENCE=%s on %s", (unsigned long long)seed,
             text, config->tiers);
    sim_load(&running, &base, seed);
    rig_begin(&r, &running, config);
    r.oracle = base_oracle;
    r.tenants = 1000;
    size_t first = 0;
    static rig_oracle before, between, after;
    before = base_oracle;
    rig_open(&r);
    for (unsigned i = 0; i < length; i++) {
        before = r.oracle;
        first = running.log_count;
        verbs[sequence[i]].run(&r);
    }
    after = r.oracle;
    rig_between(&between, &before, &after);
    size_t end = running.log_count;
    rig_drop(&r);
    if (rig_verbose)
        sim_print(&running);
    for (size_t point = first; point <= end; point++)
        try_point(config, text, point < end ? &between : &after, point, length == LENGTH_MAX);
    rig_end(&r);
}

static void run_all(const rig_config *config, unsigned *sequence, unsigned done, unsigned length)
{
    if (done == length) {
        run_sequence(config, sequence, length);
        return;
    }
    for (unsigned i = 0; i < VERBS; i++) {
        sequence[done] = i;
        run_all(config, sequence, done + 1, length);
    }
}

int main(int count, char **arguments)
{
    const char *given = getenv("KVO_TEST_SEED"), *more = getenv("KVO_TEST_ROUNDS");
    unsigned sequence[LENGTH_MAX] = {0};
    size_t which = count > 1 ? (size_t)atoi(arguments[1]) : 0;
    if (which >= sizeof configs / sizeof *configs)
        return 2;
    seed = given ? strtoull(given, NULL, 10) : 1;
    rounds = more ? strtoull(more, NULL, 10) : 1;
    only = getenv("KVO_TEST_SEQUENCE");
    rig_start();
    sim_open(&running, seed);
    sim_open(&crashed, seed);
    sim_open(&again, seed);
    make_base(&configs[which]);
    for (unsigned length = 0; length <= LENGTH_MAX; length++)
        run_all(&configs[which], sequence, 0, length);
    sim_close(&running);
    sim_close(&crashed);
    sim_close(&again);
    sim_image_free(&base);
    printf("%s: %llu deaths, %llu power cuts; %llu overwritten blocks missed, %llu torn headers; seed %llu\n",
           configs[which].tiers, (unsigned long long)rig_counted.states[0], (unsigned long long)rig_counted.states[1],
           (unsigned long long)rig_counted.overwritten, (unsigned long long)rig_counted.damaged,
           (unsigned long long)seed);
    printf("counted: %llu simulated crash states, %llu payloads compared, 0 wrong bytes\n",
           (unsigned long long)(rig_counted.states[0] + rig_counted.states[1]),
           (unsigned long long)rig_counted.payloads);
    return rig_counted.states[0] + rig_counted.states[1] == 0; /* nothing shows nothing */
}
