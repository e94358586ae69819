/* SPDX-License-Identifier: Apache-2.0 */
/* Out of the store: get, match, exists, touch, pins, holds; rule 8. */
#include "fixture.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static kvo_get_options at_once(void)
{
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    o.deadline_ns = 0;
    return o;
}

/* ---- get ---- */

static void a_get_fills_many_segments(void **state)
{
    (void)state;
    uint8_t bytes[5000];
    kvo_segment segments[6] = {{NULL, 0},         {bytes, 1},  {bytes + 1, 4095}, {bytes + 4096, 0},
                               {bytes + 4096, 904}, {NULL, 0}};
    kvo_segment two[8];
    uint32_t counts[2] = {6, 2};
    uint8_t more[300];
    kvo_answer a[2];
    open_store("dram:8blk,disk:@0:64blk");
    put(1, 5000);
    put(2, 300);
    memcpy(two, segments, sizeof segments);
    two[6] = (kvo_segment){more, 299};
    two[7] = (kvo_segment){more + 299, 1};
    kvo_memory memory = {two, counts};
    for (int below = 0; below < 2; below++) {
        kvo_names names = names_of(1, 2);
        memset(bytes, 0, sizeof bytes);
        assert_int_equal(kvo_get(store, &names, &memory, NULL, a), KVO_OK);
        assert_int_equal(a[0].status, KVO_OK);
        assert_int_equal(a[1].status, KVO_OK);
        assert_int_equal(a[0].tier, below);
        assert_true(payload_is(bytes, 5000, 1, 0));
        assert_true(payload_is(more, 300, 2, 0));
        fill_with(100, 20, 65536);
    }
}

static void another_length_is_size_and_leaves_the_buffer(void **state)
{
    (void)state;
    uint8_t bytes[6000];
    kvo_answer a;
    open_store("dram:4blk,disk:@0:64blk");
    put(1, 5000);
    for (int below = 0; below < 2; below++) {
        const size_t lengths[] = {0, 4999, 5001, 6000};
        for (size_t i = 0; i < 4; i++) {
            kvo_names names = names_of(1, 1);
            kvo_segment segment = {bytes, lengths[i]};
            kvo_memory memory = {&segment, NULL};
            memset(bytes, 0xa5, sizeof bytes);
            assert_int_equal(kvo_get(store, &names, &memory, NULL, &a), KVO_OK);
            assert_int_equal(a.status, KVO_SIZE);
            for (size_t k = 0; k < sizeof bytes; k++)
                assert_int_equal(bytes[k], 0xa5);
        }
        fill_with(100, 10, 65536);
    }
    assert_int_equal(info_of(1).uses, 1);
    check_valid();
}

static void a_get_promotes_unless_it_is_told_not_to(void **state)
{
    (void)state;
    kvo_answer a;
    kvo_get_options o = at_once();
    o.no_promote = 1;
    open_store("dram:4blk,disk:@0:64blk");
    put(1, 65536);
    fill_with(100, 10, 65536);
    assert_int_equal(get_as(1, 65536, 0, &o, &a), KVO_OK);
    assert_int_equal(a.tier, 1);
    assert_int_equal(a.tier_mask, 2);
    assert_int_equal(tier_stat(1).promotions, 0);
    assert_int_equal(get_as(1, 65536, 0, NULL, &a), KVO_OK);
    assert_int_equal(a.tier, 1); /* that served it */
    assert_int_equal(a.tier_mask, 3);
    assert_int_equal(tier_stat(1).promotions, 1);
    assert_int_equal(get_as(1, 65536, 0, NULL, &a), KVO_OK);
    assert_int_equal(a.tier, 0);
    assert_int_equal(tier_stat(1).hits, 2);
    assert_int_equal(tier_stat(0).hits, 1);
    check_valid();
}

static void a_batch_larger_than_memory_is_served_from_below(void **state)
{
    (void)state;
    enum { COUNT = 60 };
    uint8_t *memory = malloc(COUNT * 65536);
    kvo_segment segments[COUNT];
    kvo_answer a[COUNT];
    open_store("dram:4blk,disk:@0:100blk");
    fill_with(0, COUNT, 65536);
    kvo_names names = names_of(0, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        segments[i] = (kvo_segment){memory + i * 65536, 65536};
    kvo_memory m = {segments, NULL};
    assert_int_equal(kvo_get(store, &names, &m, NULL, a), KVO_OK);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(a[i].status, KVO_OK);
        assert_true(payload_is(segments[i].base, 65536, i, 0));
        assert_int_equal(info_of(i).uses, 2);
        assert_true(i == 0 || info_of(i - 1).last_use > info_of(i).last_use);
    }
    check_valid();
    free(memory);
}

static void *get_one(void *context)
{
    uint8_t *memory = context;
    kvo_answer a;
    kvo_names names = names_of(1, 1);
    kvo_segment segment = {memory, 65536};
    kvo_memory m = {&segment, NULL};
    kvo_get(store, &names, &m, NULL, &a);
    return (void *)(uintptr_t)(a.status == KVO_OK && payload_is(memory, 65536, 1, 0));
}

static void readers_of_one_block_below_share_a_transfer(void **state)
{
    (void)state;
    pthread_t threads[4];
    uint8_t *memory = malloc(4 * 65536);
    open_store("dram:4blk,disk:@0:64blk");
    put(1, 65536);
    fill_with(100, 10, 65536);
    for (size_t i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, get_one, memory + i * 65536);
    for (size_t i = 0; i < 4; i++) {
        void *ok;
        pthread_join(threads[i], &ok);
        assert_non_null(ok);
    }
    assert_int_equal(tier_stat(1).promotions, 1);
    assert_int_equal(tier_stat(1).read_bytes, 65536);
    check_valid();
    free(memory);
}

/* ---- look-up ---- */

static void match_stops_at_the_first_that_is_not_there(void **state)
{
    (void)state;
    kvo_answer a[6];
    size_t matched = 9;
    kvo_reservation r;
    uint32_t bytes = 100;
    open_store("dram:64blk");
    fill_with(0, 3, 100);
    fill_with(4, 1, 100);
    kvo_names names = names_of(0, 6);
    assert_int_equal(kvo_match(store, &names, a, &matched), KVO_OK);
    assert_int_equal(matched, 3);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(a[i].status, i < 3 ? KVO_OK : KVO_MISS);
    assert_int_equal(kvo_exists(store, &names, a), KVO_OK);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(a[i].status, i == 3 || i == 5 ? KVO_MISS : KVO_OK);
    kvo_names one = names_of(3, 1);
    kvo_reserve(store, &one, &bytes, NULL, &r, a);
    kvo_match(store, &names, a, &matched);
    assert_int_equal(matched, 3);
    assert_int_equal(a[3].status, KVO_PENDING);
    assert_int_equal(a[4].status, KVO_MISS);
    assert_int_equal(kvo_match(store, &names, NULL, &matched), KVO_OK);
    assert_int_equal(matched, 3);
    names.count = 0;
    assert_int_equal(kvo_match(store, &names, NULL, &matched), KVO_OK);
    assert_int_equal(matched, 0);
}

/* Bucket and tag of a name in the index, as index.c has them. */
static uint64_t place_in_index(uint64_t number)
{
    block_identity key;
    kvo_names names = names_of(number, 1);
    identity_key(&names, 0, &key);
    return ((key.key_hash & 0xffffffffu) * store->index.bucket_count >> 32) << 16 | key.key_hash >> 48;
}

/* The index keeps 16 bits of a name's hash: what it finds by them is compared with the name in full. */
static void names_with_one_place_in_the_index_are_told_apart(void **state)
{
    (void)state;
    enum { NAMES = 40000, TAGS = 65536 };
    uint64_t one = 0, other = 0, *places = calloc(NAMES, sizeof *places);
    uint32_t *last = calloc(TAGS, sizeof *last); /* by tag: the last name with it, + 1 */
    open_store("dram:8blk,disk:@0:64blk");
    for (uint64_t i = 0; i < NAMES && one == other; i++) {
        places[i] = place_in_index(i);
        uint32_t before = last[places[i] % TAGS];
        last[places[i] % TAGS] = (uint32_t)i + 1;
        if (before && places[before - 1] == places[i]) {
            one = before - 1;
            other = i;
        }
    }
    assert_int_not_equal(one, other);
    kvo_answer answer;
    kvo_names names = names_of(other, 1);
    size_t matched;
    put(one, 300);
    assert_int_equal(exists(other, &answer), KVO_MISS);
    assert_int_equal(kvo_match(store, &names, NULL, &matched), KVO_OK);
    assert_int_equal(matched, 0);
    assert_int_equal(get(other, 300), KVO_MISS);
    assert_int_equal(drop(other, KVO_WRITTEN), KVO_MISS);
    assert_int_equal(put(other, 300), KVO_STORED);
    assert_int_equal(get(one, 300), KVO_OK);
    assert_int_equal(get(other, 300), KVO_OK);
    assert_int_equal(drop(one, KVO_WRITTEN), KVO_OK);
    assert_int_equal(get(other, 300), KVO_OK);
    check_valid();
    free(last);
    free(places);
}

static void states_stand_alone(void **state)
{
    (void)state;
    kvo_answer a[6];
    uint8_t bytes[200];
    size_t matched;
    open_store("dram:64blk");
    fill_with(0, 6, 100); /* ranges of the same names */
    kvo_names names = names_of(0, 6);
    names.kind = KVO_KIND_STATE;
    assert_int_equal(kvo_match(store, &names, a, &matched), KVO_OK);
    assert_int_equal(matched, 0);
    for (uint64_t i = 1; i < 5; i += 3) {
        kvo_names one = names_of(i, 1);
        kvo_segment segment = {bytes, 200};
        kvo_memory memory = {&segment, NULL};
        one.kind = KVO_KIND_STATE;
        payload_make(bytes, 200, i, 3);
        kvo_put(store, &one, &memory, NULL, a);
        assert_int_equal(a[0].status, KVO_STORED);
    }
    assert_int_equal(kvo_match(store, &names, a, &matched), KVO_OK);
    assert_int_equal(matched, 5);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(a[i].status, i == 1 || i == 4 ? KVO_OK : KVO_MISS);
    assert_int_equal(get(1, 100), KVO_OK);
}

/* The key is more than the name. */
static void layers_and_heads_tell_blocks_apart(void **state)
{
    (void)state;
    uint8_t bytes[50];
    kvo_answer a;
    open_store("dram:64blk");
    kvo_segment segment = {bytes, 50};
    kvo_memory memory = {&segment, NULL};
    for (unsigned i = 0; i < 4; i++) {
        kvo_names names = names_of(1, 1);
        names.layer_first = i == 1 ? 8 : 0;
        names.layer_count = i == 2 ? 8 : 0;
        names.head_group = i == 3 ? 1 : 0;
        payload_make(bytes, 50, 1, i);
        kvo_put(store, &names, &memory, NULL, &a);
        assert_int_equal(a.status, KVO_STORED);
    }
    kvo_names longer = names_of(1, 1);
    uint8_t name[48] = {0};
    memcpy(name, longer.first, NAME_BYTES);
    longer.first = name;
    longer.name_bytes = 48; /* a name that begins like another is another */
    kvo_exists(store, &longer, &a);
    assert_int_equal(a.status, KVO_MISS);
    assert_int_equal(store_stat().blocks, 4);
    check_valid();
}

/* ---- rule 8 ---- */

static base_env counting;
static _Atomic uint64_t allocations;

static void *count_alloc(base_env *env, size_t bytes)
{
    (void)env;
    allocations++;
    return base_env_posix()->alloc(base_env_posix(), bytes);
}

static void open_counting(void)
{
    kvo_tier_config tiers[2] = {KVO_TIER_CONFIG_INIT, KVO_TIER_CONFIG_INIT};
    tiers[0].kind = KVO_TIER_DRAM;
    tiers[0].capacity_blocks = 4;
    tiers[1].kind = KVO_TIER_DISK;
    tiers[1].path = fixture_path(0);
    tiers[1].capacity_blocks = 64;
    counting = *base_env_posix();
    counting.alloc = count_alloc;
    options.flags |= KVO_OPEN_STEPPED;
    assert_int_equal(store_open(&counting, tiers, 2, &options, &store, NULL), KVO_OK);
    space = open_space("a", 65536);
}

static void look_up_changes_nothing(void **state)
{
    (void)state;
    kvo_answer a[12];
    kvo_policy policies[12];
    size_t matched;
    open_counting();
    fill_with(0, 10, 65536);
    kvo_block_info before[12];
    for (uint64_t i = 0; i < 12; i++)
        before[i] = info_of(i);
    kvo_stat stat = store_stat();
    uint64_t allocated = allocations, reads = tier_stat(1).read_bytes;
    kvo_names names = names_of(0, 12);
    kvo_target target = {.by = KVO_BY_NAMES, .names = names};
    for (int i = 0; i < 100; i++) {
        kvo_match(store, &names, a, &matched);
        kvo_exists(store, &names, a);
        kvo_policy_get(store, &target, policies, a);
    }
    assert_int_equal(matched, 10);
    assert_int_equal(allocations, allocated);
    assert_int_equal(store_stat().references, stat.references);
    assert_int_equal(store_stat().gets, stat.gets);
    assert_int_equal(tier_stat(1).read_bytes, reads);
    for (uint64_t i = 0; i < 12; i++) {
        kvo_block_info after = info_of(i);
        assert_memory_equal(&after, &before[i], sizeof after);
    }
    check_valid();
    close_store();
}

static void touch_counts_a_use_by_name_and_handle(void **state)
{
    (void)state;
    kvo_answer a[3];
    open_store("dram:64blk");
    fill_with(0, 2, 100);
    uint64_t references = store_stat().references;
    kvo_target target = target_of(0, 3);
    assert_int_equal(kvo_touch(store, &target, a), KVO_OK);
    assert_int_equal(a[0].status, KVO_OK);
    assert_int_equal(a[2].status, KVO_MISS);
    assert_int_equal(info_of(0).uses, 2);
    assert_true(info_of(0).last_use > info_of(1).last_use);
    assert_int_equal(store_stat().references, references + 3);
    kvo_handle handles[3] = {a[1].handle, 12345, a[1].handle + (1ull << 32)};
    target = (kvo_target){.by = KVO_BY_HANDLES, .handles = handles, .handle_count = 3};
    assert_int_equal(kvo_touch(store, &target, a), KVO_OK);
    assert_int_equal(a[0].status, KVO_OK);
    assert_int_equal(a[1].status, KVO_GONE);
    assert_int_equal(a[2].status, KVO_GONE);
    assert_int_equal(info_of(1).uses, 3);
    assert_int_equal(kvo_touch(store, &target, NULL), KVO_OK);
    target.by = KVO_BY_ALL;
    assert_int_equal(kvo_touch(store, &target, NULL), KVO_E_ARGUMENT);
}

static int ghost_get(uint64_t number, size_t bytes)
{
    kvo_names names = names_of(number, 1);
    kvo_segment segment = {NULL, bytes};
    kvo_memory memory = {&segment, NULL};
    kvo_answer answer;
    assert_int_equal(kvo_get(store, &names, &memory, NULL, &answer), KVO_OK);
    return answer.status;
}

/* Records alone answer as bytes do. */
static void a_ghost_answers_like_a_store(void **state)
{
    (void)state;
    kvo_answer answers[12];
    kvo_segment segments[12];
    options.flags = KVO_OPEN_GHOST;
    open_store("dram:4blk,disk:@0:64blk");
    for (size_t i = 0; i < 12; i++)
        segments[i] = (kvo_segment){NULL, 100};
    kvo_names names = names_of(1, 12);
    kvo_memory memory = {segments, NULL};
    assert_int_equal(kvo_put(store, &names, &memory, NULL, answers), KVO_OK);
    for (size_t i = 0; i < 12; i++)
        assert_int_equal(answers[i].status, KVO_STORED);
    assert_int_equal(ghost_get(1, 100), KVO_OK);
    assert_int_equal(ghost_get(12, 100), KVO_OK);
    assert_int_equal(ghost_get(1, 101), KVO_SIZE);
    assert_int_equal(ghost_get(13, 100), KVO_MISS);
    names = names_of(8, 12); /* 8 .. 12 are there */
    assert_int_equal(kvo_get(store, &names, &memory, NULL, answers), KVO_OK);
    for (size_t i = 0; i < 12; i++)
        assert_int_equal(answers[i].status, i < 5 ? KVO_OK : KVO_MISS);
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_get_fills_many_segments),
        FIXTURE_TEST(another_length_is_size_and_leaves_the_buffer),
        FIXTURE_TEST(a_get_promotes_unless_it_is_told_not_to),
        FIXTURE_TEST(a_batch_larger_than_memory_is_served_from_below),
        FIXTURE_TEST(readers_of_one_block_below_share_a_transfer),
        FIXTURE_TEST(match_stops_at_the_first_that_is_not_there),
        FIXTURE_TEST(names_with_one_place_in_the_index_are_told_apart),
        FIXTURE_TEST(states_stand_alone),
        FIXTURE_TEST(layers_and_heads_tell_blocks_apart),
        FIXTURE_TEST(look_up_changes_nothing),
        FIXTURE_TEST(a_ghost_answers_like_a_store),
        FIXTURE_TEST(touch_counts_a_use_by_name_and_handle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
