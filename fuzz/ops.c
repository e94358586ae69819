/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls in any order on a small store of memory and disk: two bytes a call, what it does and to which block. Among
 * them calls of the machine that fail, flipped bits, closes, and crashes that leave what was written. After each call
 * the store is in order and idle; what is read is a version that may be there; what was removed or rewritten at
 * level *written* is not back, and a pin's memory stays as it is.
 */
#include "blocks.h"

#include <stdlib.h>
#include <string.h>

enum { NAMES = 12, PINS = 3, STEPS_MAX = 200 };

/* A version is a bit of `may`: what may be read under the name now. A crash brings back what `may_return` has. */
typedef struct known {
    uint32_t may, may_return;
    unsigned last; /* version given out */
    bool may_miss;
} known;

typedef struct pinned {
    kvo_pin pin;
    unsigned number, version;
} pinned;

static machine m;
static kvo_store *store;
static kvo_space space;
static known names[NAMES];
static pinned pins[PINS];
static kvo_reservation reservation;
static unsigned reserved_name, reserved_version;
static uint64_t hold;
static bool failing; /* since a call of the machine was told to fail: any answer is possible */

static uint32_t bit(unsigned version) { return 1u << version % 32; }
static size_t length_of(unsigned number, unsigned version)
{
    return 1 + (number * 1021u + version * 2903u) % BLOCKS_BYTES_MAX;
}

/* ---- the store ---- */

static void open_store(void)
{
    kvo_options o = KVO_OPTIONS_INIT;
    kvo_tier_config tiers[2] = {KVO_TIER_CONFIG_INIT, KVO_TIER_CONFIG_INIT};
    kvo_error error = {""};
    tiers[0].kind = KVO_TIER_DRAM;
    tiers[0].capacity_blocks = 5;
    tiers[1].kind = KVO_TIER_DISK;
    tiers[1].path = "/s";
    tiers[1].capacity_blocks = 9;
    o.flags = KVO_OPEN_STEPPED;
    o.block_bytes = BLOCKS_BYTES_MAX;
    o.write_out_ns = 86400ull * 1000000000u;
    o.io_engine = (int)MOVE_SIMULATED;
    o.tenants_max = 4;
    o.pins_max = o.holds_max = 16;
    MUST(store_open(&m.env, tiers, 2, &o, &store, &error) == KVO_OK, "it does not open: %s", error.text);
    space = blocks_space(store);
    MUST(space != 0, "the space does not open");
}

static void forget_handles(void)
{
    memset(pins, 0, sizeof pins);
    memset(&reservation, 0, sizeof reservation);
    hold = 0;
}

static void close_store(void)
{
    m.fail_in = 0;
    int status = kvo_close(store, 0);
    MUST(status == KVO_OK || status == KVO_SHORT || failing, "close: %s", kvo_status_name(status));
    machine_must_be_idle(&m);
    forget_handles();
}

/* What is in memory alone is gone, what the medium has may be back: an evicted copy too, at most once removed. */
static void after_restart(bool crash)
{
    for (unsigned i = 0; i < NAMES; i++) {
        names[i].may = crash ? names[i].may_return : names[i].may;
        names[i].may_miss = true;
    }
    failing = false;
}

/* The machine as it is, without the process. */
static void crash(void)
{
    machine after;
    m.fail_in = 0;
    machine_copy(&after, &m);
    (void)kvo_close(store, 0);
    machine_end(&m);
    m = after;
    m.env.context = &m;
    forget_handles();
    after_restart(true);
    open_store();
}

/* ---- calls; each knows what may be read afterwards ---- */

static void step_put(unsigned number, unsigned how)
{
    known *k = &names[number];
    unsigned version = k->last + 1;
    int level = how % 2 ? KVO_WRITTEN : KVO_SEALED;
    int status = block_put(store, space, number, version, length_of(number, version), level);
    if (status == KVO_STORED || status == KVO_SHORT || failing) {
        bool sure = !failing;
        k->last = version;
        k->may = bit(version) | (sure ? 0 : k->may);
        k->may_return |= bit(version);
        k->may_miss = !sure || k->may_miss;
        if (status == KVO_STORED && level == KVO_WRITTEN && sure)
            k->may_return = bit(version);
    } else
        MUST(status == KVO_EXISTS || status == KVO_SIZE || status == KVO_BUSY || status == KVO_FULL, "put: %s",
             kvo_status_name(status));
    MUST((status != KVO_EXISTS && status != KVO_SIZE) || k->may, "block %u exists, and nobody put it", number);
}

static void step_rewrite(unsigned number, unsigned how)
{
    known *k = &names[number];
    unsigned version = k->last + 1;
    int level = how % 2 ? KVO_WRITTEN : KVO_SEALED;
    int status = block_rewrite(store, space, number, version, length_of(number, version), level);
    bool done = status == KVO_STORED || status == KVO_SHORT;
    MUST(!done || k->may, "block %u was rewritten, and nobody put it", number);
    if (done || failing) {
        k->last = version;
        k->may = bit(version) | (failing ? k->may : 0);
        k->may_return |= bit(version);
        if (done && !failing)
            k->may_return = bit(version);
    }
}

static void step_get(unsigned number)
{
    static uint8_t bytes[BLOCKS_BYTES_MAX];
    known *k = &names[number];
    kvo_answer found = block_look(store, space, number);
    if (found.status != KVO_OK)
        return;
    MUST(k->may, "block %u is there, and nobody put it", number);
    kvo_answer got = block_get(store, space, number, bytes, found.payload_bytes);
    if (got.status != KVO_OK)
        return;
    for (unsigned v = 0; v <= k->last; v++)
        if (k->may & bit(v) && length_of(number, v) == found.payload_bytes &&
            block_is(bytes, found.payload_bytes, number, v)) {
            k->may = bit(v); /* the others are known not to be */
            return;
        }
    fuzz_fail(__FILE__, __LINE__, "block %u: %u bytes that may not be there", number, found.payload_bytes);
}

static void step_remove(unsigned number)
{
    known *k = &names[number];
    kvo_target target = {.by = KVO_BY_NAMES, .names = block_names(number, space)};
    kvo_answer answer = {.status = KVO_BUSY};
    int status = kvo_remove(store, &target, KVO_WRITTEN, 0, &answer, NULL);
    bool gone = status == KVO_OK && (answer.status == KVO_OK || answer.status == KVO_MISS);
    if (gone) {
        k->may = 0;
        MUST(block_look(store, space, number).status == KVO_MISS || reservation.handle, "block %u is still there",
             number);
        if (!failing)
            k->may_return = 0;
    }
}

static void step_pin(unsigned number)
{
    kvo_names one = block_names(number, space);
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    kvo_answer answer;
    o.deadline_ns = 0;
    for (unsigned i = 0; i < PINS; i++) {
        if (pins[i].pin.token)
            continue;
        if (kvo_pin_blocks(store, &one, &o, &pins[i].pin, &answer) != KVO_OK || pins[i].pin.token == 0)
            return;
        pins[i].number = number;
        for (pins[i].version = 0; pins[i].version <= names[number].last; pins[i].version++)
            if (names[number].may & bit(pins[i].version) &&
                length_of(number, pins[i].version) == pins[i].pin.payload_bytes &&
                block_is(pins[i].pin.memory, pins[i].pin.payload_bytes, number, pins[i].version))
                return;
        fuzz_fail(__FILE__, __LINE__, "block %u: a pin of bytes that may not be there", number);
    }
}

static void step_unpin(unsigned which)
{
    if (pins[which % PINS].pin.token == 0)
        return;
    MUST(kvo_unpin(store, &pins[which % PINS].pin, 1) == KVO_OK, "a pin was not one");
    MUST(pins[which % PINS].pin.token == 0, "a token is still there");
}

/* No intent: a thread of the store's carries it out at its own time, and a machine is for one thread. */
static void step_policy(unsigned number, unsigned how)
{
    kvo_target target = {.by = how % 3 ? KVO_BY_NAMES : KVO_BY_ALL, .names = block_names(number, space)};
    kvo_target one = {.by = KVO_BY_NAMES, .names = block_names(number, space)};
    kvo_policy policy = KVO_POLICY_INIT, is;
    kvo_answer answer;
    policy.qos = (uint8_t)(how % 4);
    policy.priority = (uint8_t)(how * 7 % 101);
    uint32_t mask = KVO_POLICY_QOS | KVO_POLICY_PRIORITY;
    MUST(kvo_policy_set(store, &target, &policy, mask, NULL, NULL) == KVO_OK, "a policy is refused");
    MUST(kvo_policy_get(store, &one, &is, &answer) == KVO_OK, "a policy cannot be read");
    bool same = is.qos == policy.qos && is.priority == policy.priority;
    MUST(answer.status != KVO_OK || same, "block %u has another policy than it was given", number);
}

static void step_reserve(unsigned number)
{
    known *k = &names[number];
    kvo_names one = block_names(number, space);
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_answer answer = {.status = KVO_BUSY};
    uint32_t bytes = (uint32_t)length_of(number, k->last + 1);
    o.deadline_ns = 0;
    if (reservation.handle)
        return;
    if (kvo_reserve(store, &one, &bytes, &o, &reservation, &answer) != KVO_OK || reservation.handle == 0)
        return;
    reserved_name = number;
    reserved_version = ++k->last;
    block_fill(reservation.memory, bytes, number, k->last);
    MUST(block_look(store, space, number).status == KVO_PENDING, "a reservation can be seen");
}

static void step_seal(unsigned how)
{
    known *k = &names[reserved_name];
    kvo_answer answer = {.status = KVO_GONE};
    if (reservation.handle == 0)
        return;
    if (how % 4 == 0)
        MUST(kvo_abort(store, &reservation, 1, &answer) == KVO_OK, "a reservation is not given back");
    else {
        /* The block may be older than what was put since under a name that was free again; first seal wins. */
        int status = kvo_seal(store, &reservation, 1, how % 2 ? KVO_WRITTEN : KVO_SEALED, 0, &answer);
        if (status == KVO_OK && answer.status != KVO_GONE) {
            k->may |= bit(reserved_version);
            k->may_return |= bit(reserved_version);
        }
    }
    memset(&reservation, 0, sizeof reservation);
}

static void step_hold(unsigned number)
{
    kvo_names one = block_names(number, space);
    kvo_answer answer;
    if (hold) {
        int status = kvo_release(store, hold);
        MUST(status == KVO_OK || status == KVO_GONE, "a release: %s", kvo_status_name(status));
        hold = 0;
    } else
        MUST(kvo_hold(store, &one, KVO_FOREVER, &hold, &answer) == KVO_OK, "a hold");
}

static void step_match(void)
{
    uint8_t all[NAMES][BLOCKS_NAME_BYTES];
    kvo_answer answers[NAMES], each[NAMES];
    kvo_names batch = {.first = all, .name_bytes = BLOCKS_NAME_BYTES, .count = NAMES, .space = space};
    size_t matched = 99, here = 0;
    for (unsigned i = 0; i < NAMES; i++)
        block_name(i, all[i]);
    MUST(kvo_match(store, &batch, answers, &matched) == KVO_OK, "a match");
    MUST(kvo_exists(store, &batch, each) == KVO_OK, "a look-up");
    while (here < NAMES && each[here].status == KVO_OK)
        here++;
    MUST(here == matched, "%zu of a prefix are there, and match says %zu", here, matched);
    kvo_target target = {.by = KVO_BY_NAMES, .names = batch};
    MUST(kvo_touch(store, &target, answers) == KVO_OK, "a touch");
}

static void step_sync(unsigned number, unsigned how)
{
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    kvo_names one = block_names(number, space);
    kvo_answer answer;
    o.deadline_ns = 0;
    switch (how % 3) {
    case 0:
        (void)kvo_sync(store, NULL, how & 4 ? KVO_SAFE : KVO_WRITTEN, 0, NULL);
        break;
    case 1:
        (void)kvo_prefetch(store, &one, &o, &answer);
        break;
    default:
        (void)kvo_write_out(store);
    }
}

/* One bit of `data` turns round. */
static void step_flip(unsigned number, unsigned how)
{
    const machine_file *f = machine_find(&m, "/s/data");
    uint64_t at = (number * 8191ull + how * 4099ull) % (f->size ? f->size : 1);
    if (f->size)
        f->bytes[at] ^= (uint8_t)(1u << how % 8);
}

static void step_machine(unsigned number, unsigned how)
{
    switch (how % 4) {
    case 0:
        close_store();
        after_restart(false);
        open_store();
        break;
    case 1:
        crash();
        break;
    case 2:
        step_flip(number, how);
        break;
    default:
        m.fail_in = 1 + how / 4;
        failing = true;
    }
}

static void step(unsigned what, unsigned which)
{
    unsigned number = which % NAMES, how = what / 16 + which / NAMES;
    switch (what % 16) {
    case 0:
    case 1:
    case 2:
        step_put(number, how);
        break;
    case 3:
    case 4:
        step_get(number);
        break;
    case 5:
        step_rewrite(number, how);
        break;
    case 6:
        step_remove(number);
        break;
    case 7:
        step_pin(number);
        break;
    case 8:
        step_unpin(number);
        break;
    case 9:
        step_policy(number, how);
        break;
    case 10:
        step_reserve(number);
        break;
    case 11:
        step_seal(how);
        break;
    case 12:
        step_hold(number);
        break;
    case 13:
        step_match();
        break;
    case 14:
        step_sync(number, how);
        break;
    default:
        step_machine(number, how);
    }
}

static void must_be_in_order(void)
{
    char why[256];
    MUST(store_valid(store, why, sizeof why), "%s", why);
    for (unsigned i = 0; i < PINS; i++)
        MUST(pins[i].pin.token == 0 ||
                 block_is(pins[i].pin.memory, pins[i].pin.payload_bytes, pins[i].number, pins[i].version),
             "the memory of a pin of block %u changed", pins[i].number);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_input input = {data, bytes};
    memset(names, 0, sizeof names);
    forget_handles();
    failing = false;
    machine_begin(&m);
    open_store();
    for (unsigned i = 0; i < STEPS_MAX && input.left; i++) {
        unsigned what = fuzz_u8(&input), which = fuzz_u8(&input);
        step(what, which);
        must_be_in_order();
    }
    m.fail_in = 0;
    for (unsigned i = 0; i < NAMES; i++)
        step_get(i);
    blocks_must_be_sound(store);
    close_store();
    machine_end(&m);
    return 0;
}
