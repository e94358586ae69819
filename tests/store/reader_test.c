/* SPDX-License-Identifier: Apache-2.0 */
/* What a reader of the index answers when a record changes between its look at the life and its look at the name. The
   linker puts the comparison of names in front of the library's, which is where the change is made. */
#include "base/env.h"
#include "index/index.h"
#include "test.h"

enum { RECORDS = 64, HERE = 5 };

static block_record records[RECORDS];
static block_identity_words identities[RECORDS];
static index_table table;
static uint64_t becomes; /* the life of the record while its name is compared; 0: it stays */

bool __real_identity_same(const block_identity_words *have, const block_identity *key);
bool __wrap_identity_same(const block_identity_words *have, const block_identity *key);
bool __real_identity_named(const block_identity_words *have, const identity_names *names, size_t i);
bool __wrap_identity_named(const block_identity_words *have, const identity_names *names, size_t i);

static void change(void)
{
    if (becomes)
        atomic_store(&records[HERE].life, becomes);
    becomes = 0;
}

bool __wrap_identity_same(const block_identity_words *have, const block_identity *key)
{
    bool same = __real_identity_same(have, key);
    change();
    return same;
}

bool __wrap_identity_named(const block_identity_words *have, const identity_names *names, size_t i)
{
    bool same = __real_identity_named(have, names, i);
    change();
    return same;
}

static uint64_t life_of(uint32_t incarnation, unsigned flags) { return life_make(incarnation, 0, NULL, flags); }

static const uint8_t name[32] = {7, 7, 7};
static const kvo_names names = {.first = name, .name_bytes = 32, .count = 1, .space = 3};

static int make(void **state)
{
    (void)state;
    block_identity key;
    identity_key(&names, 0, &key);
    identity_store(&identities[HERE], &key);
    return index_open(&table, base_env_posix(), records, identities, RECORDS) == 0 &&
                   index_insert(&table, key.key_hash, HERE)
               ? 0
               : -1;
}

static int drop(void **state)
{
    (void)state;
    index_close(&table);
    return 0;
}

/* By a single look, and by one of a batch. */
static uint32_t look(bool batched, uint64_t before, uint64_t after, uint64_t *life)
{
    block_identity key;
    index_batch batch;
    identity_key(&names, 0, &key);
    atomic_store(&records[HERE].life, before);
    becomes = after;
    if (!batched)
        return index_find(&table, &key, life);
    index_batch_begin(&batch, &table, &names);
    return index_batch_find(&batch, 0, life);
}

static void what_is_rewritten_meanwhile_is_there(void **state)
{
    (void)state;
    for (int batched = 0; batched < 2; batched++) {
        uint64_t life = 0;
        const uint64_t old = life_of(1, LIFE_USED | LIFE_SEALED), new = life_of(2, LIFE_USED | LIFE_SEALED);
        assert_int_equal(look(batched, old, new, &life), HERE);
        assert_int_equal(life_incarnation(life), 2);
    }
}

static void what_leaves_meanwhile_is_not_there(void **state)
{
    (void)state;
    const uint64_t after[] = {life_of(1, LIFE_USED | LIFE_SEALED | LIFE_DOOMED), life_of(2, 0),
                              life_of(2, LIFE_USED | LIFE_SEALED | LIFE_DOOMED), life_of(1, LIFE_SEALED)};
    for (int batched = 0; batched < 2; batched++)
        for (size_t i = 0; i < sizeof after / sizeof *after; i++) {
            uint64_t life = 0;
            assert_int_equal(look(batched, life_of(1, LIFE_USED | LIFE_SEALED), after[i], &life), BLOCK_NONE);
        }
}

static void what_stays_is_found_and_what_is_not_used_is_not(void **state)
{
    (void)state;
    for (int batched = 0; batched < 2; batched++) {
        uint64_t life = 0;
        assert_int_equal(look(batched, life_of(1, LIFE_USED | LIFE_SEALED), 0, &life), HERE);
        assert_int_equal(look(batched, life_of(1, 0), 0, &life), BLOCK_NONE);
        assert_int_equal(look(batched, life_of(1, LIFE_USED | LIFE_DOOMED), 0, &life), BLOCK_NONE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_rewritten_meanwhile_is_there, make, drop),
        cmocka_unit_test_setup_teardown(what_leaves_meanwhile_is_not_there, make, drop),
        cmocka_unit_test_setup_teardown(what_stays_is_found_and_what_is_not_used_is_not, make, drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
