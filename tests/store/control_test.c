/* SPDX-License-Identifier: Apache-2.0 */
/* kvo_stat.control_bytes is the memory that the store has, and 256 bytes a block are enough for all of it. */
#include "fixture.h"

#include <stdatomic.h>

/* What is not control state, before the first transfer: the I/O engine. */
enum { ENGINE_BYTES = 64 * 1024, SLOTS = 200000, BLOCK_BYTES_MAX = 256 };

static base_env machine;
static _Atomic size_t allocated;

static void *count_alloc(base_env *env, size_t bytes)
{
    (void)env;
    allocated += bytes;
    return base_env_posix()->alloc(base_env_posix(), bytes);
}

static void count_free(base_env *env, void *memory, size_t bytes)
{
    (void)env;
    allocated -= memory ? bytes : 0;
    base_env_posix()->free(base_env_posix(), memory, bytes);
}

/* The disk's file is a hole, and the arena no more than an address: their sizes do not matter here. */
static int make_hole(base_env *env, int file, uint64_t bytes) { return env->truncate(env, file, bytes); }

static int no_arena(base_env *env, size_t bytes, void **writable, const void **readable)
{
    (void)env, (void)bytes;
    *readable = *writable = &machine;
    return 0;
}

static void no_arena_gone(base_env *env, size_t bytes, void *writable, const void *readable)
{
    (void)env, (void)bytes, (void)writable, (void)readable;
}

static void open_counted(kvo_tier_config *tiers, uint32_t count)
{
    kvo_error error = {{0}};
    machine = *base_env_posix();
    machine.alloc = count_alloc;
    machine.free = count_free;
    machine.allocate = make_hole;
    machine.limits = NULL;
    machine.map_arena = no_arena;
    machine.unmap_arena = no_arena_gone;
    allocated = 0;
    options.flags |= KVO_OPEN_STEPPED;
    if (store_open(&machine, tiers, count, &options, &store, &error) != KVO_OK)
        fail_msg("open: %s", error.text);
}

static size_t not_counted(void) { return allocated - store_stat().control_bytes; }

static kvo_tier_config slots_of(int kind, const char *path, uint64_t blocks)
{
    kvo_tier_config c = KVO_TIER_CONFIG_INIT;
    c.kind = kind;
    c.path = path;
    c.capacity_blocks = blocks;
    return c;
}

static void check_shape(kvo_tier_config *tiers, uint32_t count)
{
    open_counted(tiers, count);
    size_t engine = not_counted();
    assert_true(engine <= ENGINE_BYTES);
    if (options.flags & KVO_OPEN_GHOST)
        assert_int_equal(engine, 0);
    space = open_space("a", 4096); /* its description counts too */
    assert_int_equal(not_counted(), engine);
    assert_true(store_stat().control_bytes / SLOTS < BLOCK_BYTES_MAX);
    close_store();
    assert_int_equal(allocated, 0);
    fixture_remove(0);
}

static void every_shape_stays_within_its_bytes_a_block(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {5 << 20, 1 << 20, 65536};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        options.block_bytes = sizes[i];
        options.flags = KVO_OPEN_GHOST;
        kvo_tier_config ghost[2] = {slots_of(KVO_TIER_DRAM, NULL, SLOTS / 5),
                                    slots_of(KVO_TIER_DISK, "none", SLOTS - SLOTS / 5)};
        check_shape(ghost, 2);
        ghost[0].capacity_blocks = SLOTS;
        check_shape(ghost, 1);
        options.flags = 0;
        kvo_tier_config real[2] = {slots_of(KVO_TIER_DRAM, NULL, SLOTS / 5),
                                   slots_of(KVO_TIER_DISK, fixture_path(0), SLOTS - SLOTS / 5)};
        check_shape(real, 2);
        real[1].capacity_blocks = SLOTS;
        check_shape(real + 1, 1);
    }
}

/* Slots that are smaller than the usual block's cost memory while they are there. */
static void small_slots_are_counted_while_they_last(void **state)
{
    (void)state;
    options.block_bytes = 65536;
    kvo_tier_config disk = slots_of(KVO_TIER_DISK, fixture_path(0), 512);
    open_counted(&disk, 1);
    space = open_space("a", 65536);
    assert_int_equal(put(1000, 65536), KVO_STORED); /* the engine has its memory for transfers from now on */
    size_t engine = not_counted();
    uint64_t before = store_stat().control_bytes;
    for (uint64_t i = 0; i < 300; i++)
        assert_int_equal(put(i, 3000), KVO_STORED);
    assert_true(store_stat().control_bytes > before);
    assert_int_equal(not_counted(), engine);
    kvo_target small = target_of(0, 300);
    assert_int_equal(kvo_remove(store, &small, KVO_WRITTEN, KVO_FOREVER, NULL, NULL), KVO_OK);
    assert_int_equal(store_stat().control_bytes, before);
    assert_int_equal(not_counted(), engine);
    close_store();
    assert_int_equal(allocated, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(every_shape_stays_within_its_bytes_a_block),
        FIXTURE_TEST(small_slots_are_counted_while_they_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
