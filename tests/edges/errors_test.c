/* SPDX-License-Identifier: Apache-2.0 */
/* Errors by their number: of memory that a device cannot reach, of media, of memory that is not there; and tables that
   are full. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "fixture.h"
#include "ledger/ledger.h"

#define BYTES 65536u
#define STAGED_BYTES (BYTES + 4096u)

static base_env machine;
static _Atomic int read_fails, write_fails; /* with this error: the next read, or write, of a block */
static _Atomic int reads_to_fail;
static _Atomic size_t no_memory_of; /* neither so many bytes are given, nor a mebibyte or more */

static ssize_t read_there(base_env *env, int file, const struct iovec *iov, int count, uint64_t offset)
{
    (void)env;
    if (iov_bytes(iov, count) > BYTES && atomic_load(&reads_to_fail) > 0) {
        atomic_fetch_sub(&reads_to_fail, 1);
        return -atomic_load(&read_fails);
    }
    return base_env_posix()->read(base_env_posix(), file, iov, count, offset);
}

static ssize_t write_there(base_env *env, int file, const struct iovec *iov, int count, uint64_t offset)
{
    int error = iov_bytes(iov, count) > BYTES ? atomic_exchange(&write_fails, 0) : 0;
    (void)env;
    return error ? -error : base_env_posix()->write(base_env_posix(), file, iov, count, offset);
}

static _Atomic int allocs_until; /* n: the nth from now is not given */

static void *alloc_there(base_env *env, size_t bytes)
{
    int left = atomic_load(&allocs_until);
    if (left > 0 && atomic_fetch_sub(&allocs_until, 1) == 1)
        return NULL;
    size_t most = atomic_load(&no_memory_of);
    (void)env;
    return most && (bytes == most || bytes >= 1 << 20) ? NULL : base_env_posix()->alloc(base_env_posix(), bytes);
}

static void open_there(const char *tiers)
{
    char text[512], paths[4096];
    kvo_tier_config configs[KVO_TIERS_MAX];
    uint32_t count;
    kvo_error error = {{0}};
    fixture_text(tiers, text, sizeof text);
    machine = *base_env_posix();
    machine.read = read_there;
    machine.write = write_there;
    machine.alloc = alloc_there;
    kvo_options o = options;
    o.flags |= KVO_OPEN_STEPPED;
    assert_int_equal(kvo_parse_tiers(text, configs, &count, paths, sizeof paths, &error), KVO_OK);
    if (store_open(&machine, configs, count, &o, &store, &error) != KVO_OK)
        fail_msg("%s", error.text);
    space = open_space("a", BYTES);
}

/* ---- memory that the device cannot reach ---- */

/* A graphics card's, say: the processor brings the bytes through memory of the store's own. */
static void memory_that_a_device_cannot_reach_goes_through_ours(void **state)
{
    (void)state;
    static const int errors[] = {EFAULT, EINVAL};
    open_there("disk:@0:64blk");
    for (uint64_t i = 0; i < 2; i++) {
        kvo_answer answer;
        uint64_t copies = store_stat().payload_copies;
        atomic_store(&write_fails, errors[i]);
        assert_int_equal(put_as(1 + i, BYTES, 0, NULL, &answer), KVO_STORED);
        assert_int_equal(atomic_load(&write_fails), 0);
        assert_true(store_stat().payload_copies > copies);
        copies = store_stat().payload_copies;
        atomic_store(&read_fails, errors[i]);
        atomic_store(&reads_to_fail, 1);
        assert_int_equal(get(1 + i, BYTES), KVO_OK);
        assert_int_equal(atomic_load(&reads_to_fail), 0);
        assert_true(store_stat().payload_copies > copies);
    }
    assert_int_equal(store_stat().digest_misses, 0);
    check_valid();
    close_store();
}

static int put_at_odd(uint64_t number)
{
    static uint8_t memory[BYTES + 4096];
    kvo_names names = names_of(number, 1);
    kvo_segment segment = {memory + 3, BYTES};
    kvo_memory where = {&segment, NULL};
    kvo_answer answer;
    payload_make(memory + 3, BYTES, number, 0);
    assert_int_equal(kvo_put(store, &names, &where, NULL, &answer), KVO_OK);
    return answer.status;
}

/* And where there is no memory for that, the block is not stored, and nothing else is lost. */
static void without_memory_of_ours_it_is_not_stored(void **state)
{
    (void)state;
    open_there("disk:@0:64blk");
    assert_int_equal(put(1, BYTES), KVO_STORED);
    atomic_store(&no_memory_of, STAGED_BYTES);
    atomic_store(&write_fails, EFAULT);
    assert_int_equal(put(2, BYTES), KVO_E_IO); /* as the device said */
    assert_int_equal(put_at_odd(3), KVO_E_MEMORY);
    assert_int_equal(exists(2, NULL), KVO_MISS);
    assert_int_equal(exists(3, NULL), KVO_MISS);
    check_valid();
    atomic_store(&no_memory_of, 0);
    assert_int_equal(put(2, BYTES), KVO_STORED);
    assert_int_equal(put_at_odd(3), KVO_STORED);
    for (uint64_t i = 1; i <= 3; i++)
        assert_int_equal(get(i, BYTES), KVO_OK);
    close_store();
}

static void a_demotion_without_memory_leaves_the_block_where_it_is(void **state)
{
    (void)state;
    kvo_policy policy = KVO_POLICY_INIT;
    kvo_answer answer;
    open_there("disk:@0:64blk,disk:@1:64blk");
    assert_int_equal(put(1, BYTES), KVO_STORED);
    atomic_store(&no_memory_of, STAGED_BYTES);
    uint32_t record = handle_record(info_of(1).handle);
    int result = -1;
    store_lock(store);
    store_demote(store, &record, 1, 1, &result);
    store_unlock(store);
    assert_int_equal(result, KVO_E_MEMORY);
    check_valid();
    atomic_store(&no_memory_of, 0);
    policy.intent = KVO_INTENT_DEMOTE;
    assert_int_equal(set_policy(1, &policy, KVO_POLICY_INTENT), KVO_OK);
    do
        assert_int_equal(exists(1, &answer), KVO_OK);
    while (answer.tier_mask != 3);
    assert_int_equal(get(1, BYTES), KVO_OK);
    close_store();
}

/* The nth allocation of a rewrite, of blocks on both disks and on the first alone: it is done, or the old bytes are
   there, or, where one of two headers may be dead, none. */
static void a_rewrite_whose_nth_allocation_fails_serves_no_wrong_byte(void **state)
{
    (void)state;
    unsigned failed = 0;
    open_there("disk:@0:128blk,disk:@1:128blk");
    for (int n = 1, left = 0; left == 0; n++) {
        for (uint64_t both = 0; both < 2; both++) {
            uint64_t number = 2 * (uint64_t)n + both;
            int done = KVO_OK;
            assert_int_equal(put(number, BYTES), KVO_STORED);
            uint32_t record = handle_record(info_of(number).handle);
            store_lock(store);
            if (both)
                store_demote(store, &record, 1, 1, &done);
            store_unlock(store);
            assert_int_equal(done, KVO_OK);
            atomic_store(&allocs_until, n);
            int status = rewrite(number, BYTES, 1, 0, KVO_SEALED);
            left = atomic_exchange(&allocs_until, 0);
            assert_true(status == KVO_STORED || status == KVO_E_MEMORY);
            int there = get_as(number, BYTES, status == KVO_STORED, NULL, NULL);
            assert_true(there == KVO_OK || (both && status != KVO_STORED && there == KVO_MISS));
            failed += status != KVO_STORED;
            check_valid();
        }
    }
    assert_true(failed > 2);
    close_store();
}

/* ---- media ---- */

static void each_error_that_speaks_of_one_place_costs_that_copy_alone(void **state)
{
    (void)state;
    static const int errors[] = {EIO, ENODATA, EILSEQ, EREMOTEIO};
    open_there("dram:4blk,disk:@0:64blk");
    assert_int_equal(fill_with(1, 20, BYTES), 20);
    /* So that nobody needs their slots later. */
    assert_int_equal(kvo_sync(store, NULL, KVO_WRITTEN, KVO_FOREVER, NULL), KVO_OK);
    for (uint64_t i = 0; i < 4; i++) {
        atomic_store(&read_fails, errors[i]);
        atomic_store(&reads_to_fail, 2); /* an EIO is read again */
        assert_int_equal(get(1 + i, BYTES), KVO_MISS);
        atomic_store(&reads_to_fail, 0);
        assert_int_equal(exists(1 + i, NULL), KVO_MISS);
    }
    atomic_store(&read_fails, ENXIO); /* of the whole device */
    atomic_store(&reads_to_fail, 2);
    assert_int_equal(get(5, BYTES), KVO_BUSY);
    atomic_store(&reads_to_fail, 0);
    assert_int_equal(get(5, BYTES), KVO_OK);
    check_valid();
    close_store();
    open_store("dram:4blk,disk:@0:64blk"); /* they may have been whole */
    for (uint64_t i = 1; i <= 20; i++)
        assert_int_equal(get(i, BYTES), KVO_OK);
    close_store();
}

/* ---- tables that are full ---- */

/* Names whose hashes begin alike, so that they all come to the index's first bucket. */
static void crowded_name(uint64_t *from, uint8_t name[NAME_BYTES])
{
    for (;; ++*from) {
        block_identity key;
        kvo_names names = names_of(*from, 1);
        identity_key(&names, 0, &key);
        if ((uint32_t)key.key_hash < UINT32_MAX / 8192) {
            memcpy(name, names.first, NAME_BYTES);
            ++*from;
            return;
        }
    }
}

enum { CROWD = 2400 };
static uint8_t crowd[CROWD][NAME_BYTES];

static size_t put_crowd(size_t most, int *status)
{
    static uint8_t payload[64];
    kvo_segment segment = {payload, sizeof payload};
    kvo_memory memory = {&segment, NULL};
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.deadline_ns = 0;
    for (size_t i = 0; i < most; i++) {
        kvo_names names = {.first = crowd[i], .name_bytes = NAME_BYTES, .count = 1, .space = space};
        kvo_answer answer;
        assert_int_equal(kvo_put(store, &names, &memory, &o, &answer), KVO_OK);
        *status = answer.status;
        if (answer.status != KVO_STORED)
            return i;
    }
    return most;
}

static void names_that_crowd_one_bucket_find_no_room_and_harm_nobody(void **state)
{
    (void)state;
    int status;
    uint64_t from = 0;
    kvo_error error = {{0}};
    options.block_bytes = 4096;
    open_store("dram:2400blk");
    for (size_t i = 0; i < CROWD; i++)
        crowded_name(&from, crowd[i]);
    size_t stored = put_crowd(CROWD, &status);
    assert_true(stored > 1000 && stored < CROWD);
    assert_int_equal(status, KVO_BUSY);
    check_valid();
    uint64_t blocks = store_stat().blocks;
    assert_int_equal(put(1u << 30, 100), KVO_STORED); /* another bucket has room */
    kvo_target first = {.by = KVO_BY_NAMES,
                        .names = {.first = crowd[0], .name_bytes = NAME_BYTES, .count = 1, .space = space}};
    assert_int_equal(kvo_remove(store, &first, KVO_SEALED, 0, NULL, NULL), KVO_OK);
    uint8_t name[NAME_BYTES];
    memcpy(name, crowd[0], NAME_BYTES);
    memcpy(crowd[0], crowd[stored], NAME_BYTES);
    memcpy(crowd[stored], name, NAME_BYTES);
    assert_int_equal(put_crowd(1, &status), 1);
    assert_int_equal(store_stat().blocks, blocks + 1);
    close_store();
    options.blocks_max = 20000; /* with a large index they all fit; a small one says that it does not take them */
    open_store("disk:@0:2400blk");
    assert_int_equal(put_crowd(CROWD, &status), CROWD);
    close_store();
    options.blocks_max = CROWD - 1000;
    assert_int_equal(try_open("disk:@0:2400blk", &error), KVO_E_RANGE);
    assert_non_null(strstr(error.text, "control records"));
    options.blocks_max = 20000;
    open_store("disk:@0:2400blk");
    assert_int_equal(store_stat().blocks, CROWD);
    close_store();
}

static void a_ledger_that_grew_says_how_much_it_needs(void **state)
{
    (void)state;
    static uint8_t bytes[1 << 16];
    ledger l, other;
    assert_int_equal(ledger_open(&l, base_env_posix(), 16), 0);
    int account = ledger_account_of(&l, "disk");
    for (unsigned tenant = 0; tenant < 10; tenant++)
        ledger_add(&l, (unsigned)account, LEDGER_WRITE, KVO_CAUSE_PUT, tenant, 100, 1);
    size_t need = ledger_encode(&l, bytes, sizeof bytes);
    memset(bytes, 0xee, sizeof bytes);
    assert_int_equal(ledger_encode(&l, bytes, need - 1), need); /* all but the last row, and nothing behind its place */
    assert_int_equal(bytes[need - 1], 0xee);
    assert_int_equal(ledger_encode(&l, bytes, need), need);
    assert_int_equal(ledger_open(&other, base_env_posix(), 16), 0);
    assert_true(ledger_decode(&other, bytes, need));
    assert_int_equal(ledger_bytes(&other, 0, LEDGER_WRITE, KVO_CAUSE_PUT), 1000);
    ledger_close(&other);
    ledger_close(&l);
}

/* ---- names ---- */

static void a_name_of_another_kind_or_length_is_another(void **state)
{
    (void)state;
    block_identity_words words;
    block_identity one, other;
    identity_names names;
    uint8_t name[KVO_NAME_BYTES_MAX] = "the same bytes, in each of them.";
    kvo_names list = {.first = name, .name_bytes = 32, .count = 1, .space = 1};
    identity_key(&list, 0, &one);
    identity_store(&words, &one);
    identity_names_begin(&names, &list);
    assert_true(identity_same(&words, &one) && identity_named(&words, &names, 0));
    for (int i = 0; i < 2; i++) {
        kvo_names differs = list;
        differs.kind = i ? KVO_KIND_STATE : list.kind;
        differs.name_bytes = i ? 32 : 33;
        identity_key(&differs, 0, &other);
        identity_names_begin(&names, &differs);
        assert_false(identity_same(&words, &other));
        assert_false(identity_named(&words, &names, 0));
    }
}

static void a_block_may_be_called_its_own_parent(void **state)
{
    (void)state;
    static uint8_t payload[BYTES];
    kvo_segment segments[2] = {{payload, BYTES}, {payload, BYTES}};
    kvo_memory memory = {segments, NULL};
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_answer answers[2];
    open_store("dram:8blk,disk:@0:16blk");
    kvo_names names = names_of(1, 2);
    o.parents = names.first;
    assert_int_equal(kvo_put(store, &names, &memory, &o, answers), KVO_OK);
    assert_true(answers[0].status == KVO_STORED && answers[1].status == KVO_STORED);
    assert_int_equal(fill_with(100, 40, BYTES), 40); /* they leave like others */
    assert_int_equal(exists(1, NULL), KVO_MISS);
    check_valid();
    close_store();
}

/* ---- reservations ---- */

static void names_that_others_have_reserved_or_put_are_told_apart(void **state)
{
    (void)state;
    const uint32_t bytes[3] = {BYTES, BYTES, BYTES};
    kvo_reservation one, list[3];
    kvo_answer answers[3];
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.deadline_ns = 0;
    open_store("disk:@0:64blk");
    assert_int_equal(put(2, BYTES), KVO_STORED);
    kvo_names names = names_of(3, 1);
    assert_int_equal(kvo_reserve(store, &names, bytes, &o, &one, answers), KVO_OK);
    names = names_of(1, 3); /* new, there, another's */
    assert_int_equal(kvo_reserve(store, &names, bytes, &o, list, answers), KVO_OK);
    assert_int_equal(answers[0].status, KVO_OK);
    assert_int_equal(answers[1].status, KVO_EXISTS);
    assert_int_equal(answers[2].status, KVO_BUSY);
    kvo_reservation twice[2] = {list[0], list[0]}; /* the second one while the first is on its way */
    payload_make(list[0].memory, BYTES, 1, 0);
    assert_int_equal(kvo_seal(store, twice, 2, KVO_SEALED, 0, answers), KVO_OK);
    assert_true(answers[0].status == KVO_STORED && answers[1].status == KVO_GONE);
    assert_int_equal(get(1, BYTES), KVO_OK);
    assert_int_equal(kvo_abort(store, &one, 1, answers), KVO_OK);
    close_store();
    with_mover = true; /* not stepped: it is still on its way then */
    open_store("disk:@0:64blk");
    names = names_of(5, 1);
    assert_int_equal(kvo_reserve(store, &names, bytes, &o, list, answers), KVO_OK);
    payload_make(list[0].memory, BYTES, 5, 0);
    twice[0] = twice[1] = list[0];
    assert_int_equal(kvo_seal(store, twice, 2, KVO_SEALED, 0, answers), KVO_OK);
    assert_true(answers[0].status == KVO_STORED && answers[1].status == KVO_GONE);
    assert_int_equal(get(5, BYTES), KVO_OK);
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(memory_that_a_device_cannot_reach_goes_through_ours),
        FIXTURE_TEST(without_memory_of_ours_it_is_not_stored),
        FIXTURE_TEST(a_demotion_without_memory_leaves_the_block_where_it_is),
        FIXTURE_TEST(a_rewrite_whose_nth_allocation_fails_serves_no_wrong_byte),
        FIXTURE_TEST(each_error_that_speaks_of_one_place_costs_that_copy_alone),
        FIXTURE_TEST(names_that_crowd_one_bucket_find_no_room_and_harm_nobody),
        FIXTURE_TEST(a_ledger_that_grew_says_how_much_it_needs),
        FIXTURE_TEST(a_name_of_another_kind_or_length_is_another),
        FIXTURE_TEST(a_block_may_be_called_its_own_parent),
        FIXTURE_TEST(names_that_others_have_reserved_or_put_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
