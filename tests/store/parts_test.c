/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a block, the index and the ledger, each alone and at its limits. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "block/policy.h"
#include "index/index.h"
#include "ledger/ledger.h"

/* ---- words ---- */

static void a_policy_word_gives_back_what_was_put_in(void **state)
{
    (void)state;
    const kvo_policy in[] = {{0, 0, 0, 0, 0, 0},
                             {65535, 3, 100, 100, KVO_INTENT_DROP, 1},
                             {1, 2, 3, 4, KVO_INTENT_KEEP, POLICY_INTENT_NS_MAX},
                             {40000, 1, 50, 0, KVO_INTENT_PREFETCH, 1500000000}};
    const uint64_t left[] = {0, 1000000000, POLICY_INTENT_NS_MAX, 2000000000};
    for (size_t i = 0; i < 4; i++) {
        kvo_policy out;
        assert_int_equal(policy_check(&in[i], KVO_POLICY_ALL), KVO_OK);
        policy_unpack(policy_changed(UINT64_MAX, policy_change_of(&in[i], KVO_POLICY_ALL, 1000)), 1000, &out);
        assert_int_equal(out.tenant, in[i].tenant);
        assert_int_equal(out.qos, in[i].qos);
        assert_int_equal(out.priority, in[i].priority);
        assert_int_equal(out.reuse, in[i].reuse);
        assert_int_equal(out.intent, in[i].intent);
        assert_true(out.intent_ns == left[i]);
        policy_unpack(policy_change_of(&in[i], KVO_POLICY_ALL, 1000).set, 1u << 28, &out); /* long after */
        assert_int_equal(out.intent, in[i].intent_ns ? KVO_INTENT_NONE : in[i].intent);
        assert_true(out.intent_ns == 0);
    }
}

static void pins_stop_at_4095(void **state)
{
    (void)state;
    block_record r = {0};
    uint64_t word;
    assert_false(block_pin(&r, 2, &word)); /* nothing there */
    r.copy[2] = copy_make(77, BLOCK_VALID, 5, 200);
    for (unsigned i = 1; i <= COPY_PINS_MAX; i++) {
        assert_true(block_pin(&r, 2, &word));
        assert_int_equal(copy_pins(word), i);
    }
    assert_false(block_pin(&r, 2, &word));
    assert_int_equal(copy_slot(r.copy[2]), 77);
    assert_int_equal(copy_format(r.copy[2]), 5);
    assert_int_equal(copy_generation(r.copy[2]), 200);
    assert_true(copy_valid(r.copy[2]) && !copy_moving(r.copy[2]));
    for (unsigned i = COPY_PINS_MAX; i-- > 0;)
        assert_int_equal(copy_pins(block_unpin(&r, 2)), i);
    assert_true(copy_idle(r.copy[2]));
}

static void uses_and_recency_stay_at_their_limits(void **state)
{
    (void)state;
    block_record r = {0};
    r.touch = touch_make(10, TOUCH_USES_MAX - 1);
    block_touch(&r, 20);
    block_touch(&r, 5); /* late: a use, but not more recent */
    block_touch(&r, 5);
    assert_int_equal(touch_uses(r.touch), TOUCH_USES_MAX);
    assert_int_equal(touch_recency(r.touch), 20);
    assert_true(touch_recency(touch_make(UINT64_MAX, 1)) == TOUCH_RECENCY_MASK);
}

static void a_life_word_keeps_its_fields_apart(void **state)
{
    (void)state;
    const uint8_t delta[4] = {0, 1, 15, 3};
    uint64_t w = life_make(UINT32_MAX, LIFE_REWRITES_MAX, delta, LIFE_USED | LIFE_HELD);
    assert_int_equal(life_incarnation(w), UINT32_MAX);
    assert_int_equal(life_rewrites(w), LIFE_REWRITES_MAX);
    assert_int_equal(life_delta(w, 0), 0);
    assert_int_equal(life_delta(w, 1), 1);
    assert_int_equal(life_delta(life_add_delta(w, 2), 2), 15);
    assert_int_equal(life_delta(life_add_delta(w, 3), 3), 4);
    assert_int_equal(life_flags(w), LIFE_USED | LIFE_HELD);
    assert_false(life_live(w));
    kvo_handle h = handle_make(0, UINT32_MAX);
    assert_int_equal(handle_record(h), 0);
    assert_int_equal(handle_incarnation(h), UINT32_MAX);
    assert_true(handle_make(0, 0) != 0);
}

/* ---- index ---- */

enum { RECORDS = 2000 };
static block_record records[RECORDS];
static block_identity_words identities[RECORDS];

static block_identity key_of(uint64_t n)
{
    uint64_t name[4] = {n * 0x9e3779b97f4a7c15u, n, ~n, 7};
    kvo_names names = {.first = name, .name_bytes = sizeof name, .count = 1, .space = 1};
    block_identity key;
    identity_key(&names, 0, &key);
    return key;
}

/* All in a few buckets: the low half of the hash chooses one. */
static block_identity crowded_key(uint64_t n)
{
    block_identity key = key_of(n);
    key.key_hash = (key.key_hash & ~0xffffffffull) | (n % 3);
    return key;
}

static void use_record(uint32_t i, const block_identity *key)
{
    identity_store(&identities[i], key);
    word_store(&records[i].life, life_make(life_incarnation(records[i].life) + 1, 0, NULL, LIFE_USED | LIFE_SEALED));
}

static void names_are_found_through_chains_of_buckets(void **state)
{
    (void)state;
    index_table ix;
    uint64_t life;
    assert_int_equal(index_open(&ix, base_env_posix(), records, identities, RECORDS), 0);
    uint32_t spare = ix.spare_count, inserted = 0;
    for (uint32_t round = 0; round < 3; round++) {
        for (inserted = 0; inserted < RECORDS; inserted++) {
            block_identity key = crowded_key(inserted + round * 100000);
            use_record(inserted, &key);
            if (!index_insert(&ix, key.key_hash, inserted))
                break;
        }
        assert_true(inserted > 500); /* until there is no bucket left: an answer, not an accident */
        for (uint32_t i = 0; i < inserted; i++) {
            block_identity key = crowded_key(i + round * 100000);
            assert_int_equal(index_find(&ix, &key, &life), i);
            key.head_group++;
            assert_int_equal(index_find(&ix, &key, &life), BLOCK_NONE);
        }
        for (uint32_t k = 0; k < inserted; k++) {
            uint32_t i = round == 1 ? k : inserted - 1 - k;
            block_identity key = crowded_key(i + round * 100000);
            index_remove(&ix, key.key_hash, i);
            records[i].life = life_make(life_incarnation(records[i].life) + 1, 0, NULL, 0);
            assert_int_equal(index_find(&ix, &key, &life), BLOCK_NONE);
        }
    }
    for (uint32_t i = 0; i < 3 * 7; i++) { /* chains that are empty are used again */
        block_identity key = crowded_key(i);
        use_record(i, &key);
        assert_true(index_insert(&ix, key.key_hash, i));
    }
    assert_true(ix.spare_count <= spare);
    index_close(&ix);
}

typedef struct churn {
    index_table ix;
    atomic_bool stop;
    _Atomic uint64_t found, missed;
} churn;

/* The first hundred stay all the time. */
static void *look_up(void *context)
{
    churn *c = context;
    while (!c->stop)
        for (uint32_t i = 0; i < 100; i++) {
            block_identity key = crowded_key(i);
            uint64_t life;
            if (index_find(&c->ix, &key, &life) == i)
                c->found++;
            else
                c->missed++;
        }
    return NULL;
}

static void a_reader_never_misses_what_stays(void **state)
{
    (void)state;
    static churn c;
    pthread_t reader;
    assert_int_equal(index_open(&c.ix, base_env_posix(), records, identities, RECORDS), 0);
    for (uint32_t i = 0; i < 100; i++) {
        block_identity key = crowded_key(i);
        use_record(i, &key);
        assert_true(index_insert(&c.ix, key.key_hash, i));
    }
    assert_int_equal(pthread_create(&reader, NULL, look_up, &c), 0);
    for (uint64_t n = 0; n < 300 || c.found < 20000; n++) {
        for (uint32_t i = 100; i < 500; i++) {
            block_identity key = crowded_key(i + n * 1000);
            use_record(i, &key);
            assert_true(index_insert(&c.ix, key.key_hash, i));
        }
        for (uint32_t i = 500; i-- > 100;) {
            index_remove(&c.ix, crowded_key(i + n * 1000).key_hash, i);
            word_store(&records[i].life, life_make(life_incarnation(records[i].life) + 1, 0, NULL, 0));
        }
    }
    c.stop = true;
    pthread_join(reader, NULL);
    assert_int_equal(c.missed, 0);
    index_close(&c.ix);
}

/* Names of every length, in batches longer than a group; every fifth shares its hash with another's record that
   is met first, and every seventh is not there. */
static void a_batch_finds_what_single_looks_find(void **state)
{
    (void)state;
    enum { COUNT = 100, STRIDE = 67 };
    static uint8_t memory[COUNT * STRIDE];
    for (size_t i = 0; i < sizeof memory; i++)
        memory[i] = (uint8_t)((i + 1) * 0x9e3779b97f4a7c15u >> 40);
    for (size_t bytes = KVO_NAME_BYTES_MIN; bytes <= KVO_NAME_BYTES_MAX; bytes++) {
        kvo_names names = {.first = memory, .name_bytes = bytes, .stride_bytes = STRIDE, .count = COUNT, .space = 3,
                           .kind = (uint8_t)(bytes % 2), .layer_first = 1, .layer_count = 2, .head_group = 9};
        index_table ix;
        index_batch batch;
        uint64_t life;
        assert_int_equal(index_open(&ix, base_env_posix(), records, identities, RECORDS), 0);
        for (uint32_t i = 0; i < COUNT; i++) {
            block_identity key;
            identity_key(&names, i, &key);
            use_record(i, &key);
            key.name[bytes - 1] ^= 1;
            use_record(COUNT + i, &key);
            if (i % 5 == 0)
                assert_true(index_insert(&ix, key.key_hash, COUNT + i));
            if (i % 7)
                assert_true(index_insert(&ix, key.key_hash, i));
        }
        index_batch_begin(&batch, &ix, &names);
        for (uint32_t i = 0; i < COUNT; i += bytes % 3 ? 1 : 3) {
            block_identity key;
            identity_key(&names, i, &key);
            assert_int_equal(index_batch_find(&batch, i, &life), i % 7 ? i : BLOCK_NONE);
            assert_int_equal(index_find(&ix, &key, &life), i % 7 ? i : BLOCK_NONE);
        }
        names.head_group++; /* another key, although the names are equal */
        index_batch_begin(&batch, &ix, &names);
        for (uint32_t i = 0; i < COUNT; i++)
            assert_int_equal(index_batch_find(&batch, i, &life), BLOCK_NONE);
        index_close(&ix);
    }
}

/* ---- ledger ---- */

static void a_ledger_survives_its_encoding(void **state)
{
    (void)state;
    ledger a, b;
    ledger_open(&a, base_env_posix(), 4);
    ledger_open(&b, base_env_posix(), 4);
    int dram = ledger_account_of(&a, "dram"), disk = ledger_account_of(&a, "disk");
    assert_int_equal(ledger_account_of(&a, "dram"), dram);
    for (unsigned tenant = 0; tenant < 10; tenant++) {
        ledger_add(&a, (unsigned)dram, LEDGER_WRITE, KVO_CAUSE_PUT, tenant, 100 + tenant, 1);
        ledger_add(&a, (unsigned)disk, LEDGER_READ, KVO_CAUSE_PROMOTE, tenant, 7, 2);
    }
    ledger_count(&a, (unsigned)disk, LEDGER_LIVES, 3);
    ledger_total_add(&a, LEDGER_PUTS, 10);
    size_t bytes = ledger_encode(&a, NULL, 0);
    uint8_t *encoded = malloc(bytes);
    assert_int_equal(ledger_encode(&a, encoded, bytes), bytes);
    ledger_account_of(&b, "disk"); /* another order */
    assert_false(ledger_decode(&b, encoded, bytes - 1));
    encoded[bytes - 22] = 99; /* the last row has a cause that is none: nothing of the others is added either */
    assert_false(ledger_decode(&b, encoded, bytes));
    assert_int_equal(b.account_count, 1);
    assert_int_equal(ledger_total_of(&b, LEDGER_PUTS), 0);
    encoded[bytes - 22] = KVO_CAUSE_PROMOTE;
    assert_true(ledger_decode(&b, encoded, bytes));
    assert_int_equal(ledger_bytes(&b, (unsigned)ledger_account_of(&b, "dram"), LEDGER_WRITE, KVO_CAUSE_PUT), 1045);
    assert_int_equal(ledger_counted(&b, (unsigned)ledger_account_of(&b, "disk"), LEDGER_LIVES), 3);
    assert_int_equal(ledger_total_of(&b, LEDGER_PUTS), 10);
    kvo_ledger_row rows[64];
    size_t count = ledger_rows(&b, rows, 64);
    assert_int_equal(count, 2 * 5); /* four tenants of their own, and all others */
    uint64_t other = 0;
    for (size_t i = 0; i < count; i++)
        if (rows[i].tenant == KVO_TENANT_OTHER && rows[i].direction == LEDGER_WRITE)
            other += rows[i].bytes;
    assert_int_equal(other, 104 + 105 + 106 + 107 + 108 + 109);
    assert_int_equal(ledger_rows(&b, rows, 0), count);
    free(encoded);
    ledger_close(&a);
    ledger_close(&b);
}

static void a_ledger_is_settled_with_as_few_blocks_as_explain_it(void **state)
{
    (void)state;
    static const struct {
        int64_t blocks, bytes;
        uint64_t more, more_bytes, fewer, fewer_bytes, rewritten;
    } cases[] = {
        /* 9 came as repairs: 11 of a later generation are two that the rows do not tell, unless two are new anyway */
        {10, 1000, 2, 0, 2, 0, 11}, {12, 1300, 2, 300, 0, 0, 11}, {10, 1000, 0, 0, 0, 0, 9},
        {10, 1000, 0, 0, 0, 0},    {12, 1300, 2, 300, 0, 0}, {7, 800, 0, 0, 3, 200}, {10, 900, 1, 0, 1, 100},
        {10, 1001, 1, 1, 1, 0},    {12, 900, 3, 0, 1, 100},  {8, 1500, 1, 500, 3, 0}, {0, 0, 0, 0, 10, 1000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ledger l;
        ledger_open(&l, base_env_posix(), 4);
        unsigned disk = (unsigned)ledger_account_of(&l, "disk");
        for (unsigned tenant = 0; tenant < 7; tenant++) /* 15 written, 5 left, and what is no block of it */
            ledger_add(&l, disk, LEDGER_WRITE, tenant % 2 ? KVO_CAUSE_DEMOTE : KVO_CAUSE_REPAIR, tenant, 200,
                       tenant < 1 ? 3 : 2);
        ledger_add(&l, disk, LEDGER_LEFT, KVO_CAUSE_EVICT, 3, 400, 5);
        ledger_add(&l, disk, LEDGER_WRITE, KVO_CAUSE_FAILED, 3, 77, 1);
        ledger_add(&l, disk, LEDGER_READ, KVO_CAUSE_DEMOTE, 3, 77, 1);
        ledger_balance told = ledger_balance_of(&l, disk), found = {cases[i].blocks, cases[i].bytes};
        assert_true(told.blocks == 10 && told.bytes == 1000);
        assert_int_equal(ledger_settle(&l, disk, found, cases[i].rewritten), cases[i].more || cases[i].fewer);
        told = ledger_balance_of(&l, disk);
        assert_true(told.blocks == found.blocks && told.bytes == found.bytes);
        kvo_ledger_row rows[64];
        size_t count = ledger_rows(&l, rows, 64);
        uint64_t seen[2][2] = {{0}};
        for (size_t r = 0; r < count; r++)
            if (rows[r].cause == KVO_CAUSE_RECOVER) {
                seen[rows[r].direction == LEDGER_LEFT][0] += rows[r].operations;
                seen[rows[r].direction == LEDGER_LEFT][1] += rows[r].bytes;
            }
        assert_true(seen[0][0] == cases[i].more && seen[0][1] == cases[i].more_bytes);
        assert_true(seen[1][0] == cases[i].fewer && seen[1][1] == cases[i].fewer_bytes);
        assert_false(ledger_settle(&l, disk, found, cases[i].rewritten));
        ledger_close(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_policy_word_gives_back_what_was_put_in),
        cmocka_unit_test(pins_stop_at_4095),
        cmocka_unit_test(uses_and_recency_stay_at_their_limits),
        cmocka_unit_test(a_life_word_keeps_its_fields_apart),
        cmocka_unit_test(names_are_found_through_chains_of_buckets),
        cmocka_unit_test(a_reader_never_misses_what_stays),
        cmocka_unit_test(a_batch_finds_what_single_looks_find),
        cmocka_unit_test(a_ledger_survives_its_encoding),
        cmocka_unit_test(a_ledger_is_settled_with_as_few_blocks_as_explain_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
