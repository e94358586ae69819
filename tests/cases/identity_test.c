/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which block a name stands for: hashes that collide, tenants and their salts, lengths of names and paths, shards.
 * The linker puts the wrappers below in front of the library's hash, so that it can be cut to a few bits.
 */
#include "cases.h"

#include <sys/stat.h>

#include "block/identity.h"

/* ---- a hash of a few bits ---- */

static unsigned hash_bits; /* 0: all */

static uint64_t cut(uint64_t hash)
{
    if (hash_bits == 0)
        return hash;
    uint64_t few = (hash & ((1u << hash_bits) - 1)) + 1;
    return few * 0x9e3779b97f4a7c15u; /* equal in every bit, or in none that matters */
}

uint64_t __real_identity_hash(const block_identity *key);
uint64_t __wrap_identity_hash(const block_identity *key);
uint64_t __wrap_identity_hash(const block_identity *key) { return cut(__real_identity_hash(key)); }

void __real_identity_key(const kvo_names *names, size_t i, block_identity *key);
void __wrap_identity_key(const kvo_names *names, size_t i, block_identity *key);
void __wrap_identity_key(const kvo_names *names, size_t i, block_identity *key)
{
    __real_identity_key(names, i, key);
    key->key_hash = cut(key->key_hash);
}

void __real_identity_hashes(const identity_names *names, size_t i, size_t count, uint64_t *hashes);
void __wrap_identity_hashes(const identity_names *names, size_t i, size_t count, uint64_t *hashes);
void __wrap_identity_hashes(const identity_names *names, size_t i, size_t count, uint64_t *hashes)
{
    __real_identity_hashes(names, i, count, hashes);
    for (size_t k = 0; k < count; k++)
        hashes[k] = cut(hashes[k]);
}

enum { SMALL = 300 };

static void check_hash_is_cut(void)
{
    block_identity a, b;
    kvo_names names = names_of(0, 1);
    unsigned same = 0;
    identity_key(&names, 0, &a);
    for (uint64_t i = 1; i < 2000; i++) {
        names = names_of(i, 1);
        identity_key(&names, 0, &b);
        same += a.key_hash == b.key_hash;
    }
    assert_true(same > 0);
}

static void put_all(uint64_t count)
{
    for (uint64_t first = 0; first < count; first += 100) {
        cases_batch b = cases_batch_make(first, 100, SMALL, true);
        assert_int_equal(kvo_put(store, &b.names, &b.of, NULL, b.answers), KVO_OK);
        assert_int_equal(cases_batch_count(&b, KVO_STORED), 100);
        cases_batch_free(&b);
    }
}

/* How many are there; each that is has its own bytes. */
static uint64_t get_all(uint64_t count)
{
    uint64_t ok = 0;
    for (uint64_t first = 0; first < count; first += 100) {
        cases_batch b = cases_batch_make(first, 100, SMALL, false);
        assert_int_equal(kvo_get(store, &b.names, &b.of, NULL, b.answers), KVO_OK);
        for (size_t i = 0; i < b.count; i++) {
            assert_true(b.answers[i].status == KVO_OK || b.answers[i].status == KVO_MISS);
            if (b.answers[i].status == KVO_OK)
                assert_true(payload_is(b.segments[i].base, SMALL, first + i, 0));
        }
        ok += cases_batch_count(&b, KVO_OK);
        cases_batch_free(&b);
    }
    return ok;
}

static void B038_names_whose_hashes_are_equal_are_told_apart_in_every_tier(void **state)
{
    (void)state;
    const uint64_t count = TEST_SANITIZES ? 2000 : 10000;
    hash_bits = 8;
    options.block_bytes = 4096;
    options.blocks_max = 40000; /* and buckets: each of 256 hashes needs several */
    check_hash_is_cut();
    static const char *const tiers = "dram:1000blk,disk:@0:12000blk";
    open_store(tiers);
    put_all(count);
    check_valid();
    assert_int_equal(get_all(count), count);
    assert_int_equal(cases_there(count, 1000), 0); /* others of the same hashes */
    for (uint64_t i = 0; i < count; i += 7)
        assert_int_equal(drop(i, KVO_WRITTEN), KVO_OK);
    uint64_t left = get_all(count);
    assert_int_equal(left, count - (count + 6) / 7);
    close_store();
    open_store(tiers); /* found by what the headers say */
    assert_int_equal(get_all(count), left);
    assert_int_equal(cases_there(0, 1), 0);
    assert_int_equal(store_stat().digest_misses, 0);
    print_message("B038: %llu names of 256 hashes, 0 wrong bytes\n", (unsigned long long)count);
    close_store();
    hash_bits = 0;
}

/* A sibling: two hashes in all, in a table that has not enough buckets for it: that costs room, and time. */
static void B038_more_equal_hashes_than_the_table_has_room_for_cost_blocks_not_bytes(void **state)
{
    (void)state;
    hash_bits = 1;
    options.block_bytes = 4096;
    open_store("dram:1500blk");
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    uint64_t stored = 0;
    o.deadline_ns = 0;
    for (uint64_t i = 0; i < 3000; i++) {
        int status = put_as(i, SMALL, 0, &o, NULL);
        assert_true(status == KVO_STORED || status == KVO_BUSY);
        stored += status == KVO_STORED;
    }
    assert_true(stored >= 500);
    check_valid();
    assert_true(get_all(3000) >= 500);
    kvo_target all = {.by = KVO_BY_ALL};
    assert_int_equal(kvo_remove(store, &all, KVO_SEALED, KVO_FOREVER, NULL, NULL), KVO_OK);
    for (uint64_t i = 0; i < 500; i++)
        assert_int_equal(put_as(i, SMALL, 0, &o, NULL), KVO_STORED);
    check_valid();
    close_store();
    hash_bits = 0;
}

/* ---- tenants ---- */

enum { CHAIN = 8, TOKENS = 16 };

static uint8_t salted[3][CHAIN * NAME_BYTES]; /* of three tenants; the first has no salt */

static void make_names(void)
{
    static const char *const salts[] = {"", "tenant-1", "tenant-2"};
    uint8_t digest[32];
    uint32_t tokens[CHAIN * TOKENS];
    kvo_space_config config = KVO_SPACE_CONFIG_INIT;
    config.label = "a";
    config.model = "m";
    config.block_positions = TOKENS;
    config.block_bytes_max = BYTES;
    assert_int_equal(kvo_space_digest(&config, digest), KVO_OK);
    for (uint32_t i = 0; i < CHAIN * TOKENS; i++)
        tokens[i] = i * 7;
    for (int t = 0; t < 3; t++) {
        kvo_chain chain = KVO_CHAIN_INIT;
        size_t count;
        chain.space_digest = digest;
        chain.salt = salts[t];
        chain.salt_bytes = strlen(salts[t]);
        chain.block_tokens = TOKENS;
        assert_int_equal(kvo_chain_names(&chain, tokens, CHAIN * TOKENS, salted[t], CHAIN, &count), KVO_OK);
        assert_int_equal(count, CHAIN);
    }
}

static kvo_names of_tenant(int tenant)
{
    return (kvo_names){.first = salted[tenant], .name_bytes = NAME_BYTES, .count = CHAIN, .space = space};
}

static void all_are(const kvo_answer *answers, int status)
{
    for (int i = 0; i < CHAIN; i++)
        assert_int_equal(answers[i].status, status);
}

static kvo_queue *queue;

static void report_ok(size_t ok_count)
{
    kvo_report report;
    size_t count;
    assert_int_equal(kvo_poll(queue, &report, 1, KVO_FOREVER, &count), KVO_OK);
    assert_int_equal(report.ok_count, ok_count);
}

/* Each verb, with a tenant's names: all there with its bytes, or nothing. */
static void ask(int tenant, bool there, bool memory_first)
{
    static uint8_t memory[CHAIN][BYTES];
    kvo_answer answers[CHAIN];
    kvo_segment segments[CHAIN];
    kvo_pin pins[CHAIN] = {{0}};
    kvo_policy policies[CHAIN], policy = {.qos = 2};
    kvo_block_info infos[CHAIN];
    uint64_t hold, changed, cursor = 0;
    size_t n;
    int status = there ? KVO_OK : KVO_MISS;
    kvo_names names = of_tenant(tenant);
    kvo_target target = {.by = KVO_BY_NAMES, .names = names};
    for (int i = 0; i < CHAIN; i++)
        segments[i] = (kvo_segment){memory[i], BYTES};
    kvo_memory to = {segments, NULL};
    memset(memory, 0, sizeof memory);

    assert_int_equal(kvo_match(store, &names, answers, &n), KVO_OK);
    assert_int_equal(n, there ? CHAIN : 0);
    assert_int_equal(kvo_exists(store, &names, answers), KVO_OK);
    all_are(answers, status);
    assert_int_equal(kvo_get(store, &names, &to, NULL, answers), KVO_OK);
    all_are(answers, status);
    for (uint64_t i = 0; i < CHAIN && there; i++)
        assert_true(payload_is(memory[i], BYTES, (uint64_t)tenant * 100 + i, 0));
    assert_int_equal(kvo_submit_get(queue, &names, &to, NULL, answers, NULL, NULL), KVO_OK);
    report_ok(there ? CHAIN : 0);
    assert_int_equal(kvo_submit_exists(queue, &names, 1, answers, NULL, NULL), KVO_OK);
    report_ok(there ? CHAIN : 0);
    if (memory_first) {
        assert_int_equal(kvo_pin_blocks(store, &names, NULL, pins, answers), KVO_OK);
        all_are(answers, status);
        for (uint64_t i = 0; i < CHAIN && there; i++)
            assert_true(payload_is(pins[i].memory, BYTES, (uint64_t)tenant * 100 + i, 0));
        if (there)
            assert_int_equal(kvo_unpin(store, pins, CHAIN), KVO_OK);
        assert_int_equal(kvo_prefetch(store, &names, NULL, answers), KVO_OK);
        all_are(answers, status);
        assert_int_equal(kvo_submit_prefetch(queue, &names, NULL, answers, NULL, NULL), KVO_OK);
        report_ok(there ? CHAIN : 0);
    }
    assert_int_equal(kvo_hold(store, &names, KVO_FOREVER, &hold, answers), KVO_OK);
    all_are(answers, status);
    assert_int_equal(kvo_release(store, hold), there ? KVO_OK : KVO_GONE);
    assert_int_equal(kvo_touch(store, &target, answers), KVO_OK);
    all_are(answers, status);
    assert_int_equal(kvo_policy_set(store, &target, &policy, KVO_POLICY_QOS, answers, &changed), KVO_OK);
    assert_int_equal(changed, there ? CHAIN : 0);
    assert_int_equal(kvo_policy_get(store, &target, policies, answers), KVO_OK);
    all_are(answers, status);
    assert_int_equal(kvo_walk(store, &target, &cursor, infos, CHAIN, &n), KVO_OK);
    assert_int_equal(n, there ? CHAIN : 0);
    for (size_t i = 0; i < n; i++) {
        assert_memory_equal(infos[i].name, salted[tenant] + i * NAME_BYTES, NAME_BYTES);
        assert_int_equal(infos[i].policy.tenant, tenant);
    }
    if (there)
        return;
    assert_int_equal(kvo_sync(store, &target, KVO_WRITTEN, KVO_FOREVER, answers), KVO_OK);
    all_are(answers, KVO_MISS);
    assert_int_equal(kvo_remove(store, &target, KVO_WRITTEN, KVO_FOREVER, answers, &changed), KVO_OK);
    assert_int_equal(changed, 0);
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    assert_int_equal(kvo_rewrite(store, &names, &to, 0, &o, answers), KVO_OK);
    all_are(answers, KVO_MISS);
}

static void put_tenant(int tenant)
{
    uint8_t *memory = malloc(CHAIN * BYTES);
    kvo_segment segments[CHAIN];
    kvo_answer answers[CHAIN];
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_names names = of_tenant(tenant);
    o.policy.tenant = (uint16_t)tenant;
    o.chained = 1;
    for (uint64_t i = 0; i < CHAIN; i++) {
        segments[i] = (kvo_segment){memory + i * BYTES, BYTES};
        payload_make(segments[i].base, BYTES, (uint64_t)tenant * 100 + i, 0);
    }
    kvo_memory of = {segments, NULL};
    assert_int_equal(kvo_put(store, &names, &of, &o, answers), KVO_OK);
    all_are(answers, KVO_STORED);
    free(memory);
}

static void open_with_queue(const char *tiers)
{
    open_store(tiers);
    assert_int_equal(kvo_queue_open(store, NULL, &queue), KVO_OK);
}

/* One tenant's prompt is in the store, which is every tenant's. */
static void B042_another_salt_misses_with_every_verb_in_every_tier(void **state)
{
    (void)state;
    static const char *const tiers[] = {"dram:64blk,disk:@0:128blk", "dram:16blk,dram:64blk,disk:@0:128blk",
                                        "disk:@0:128blk"};
    for (int t = 0; t < 3; t++) {
        bool memory = t < 2;
        open_with_queue(tiers[t]);
        make_names();
        put_tenant(1);
        for (int round = 0; round < 3; round++) {
            ask(0, false, memory);
            ask(2, false, memory);
            ask(1, true, memory);
            if (round == 0) /* down, by others */
                fill_with(1000, 64, BYTES);
            if (round == 1) { /* and on the medium alone */
                close_store();
                open_with_queue(tiers[t]);
            }
        }
        put_tenant(0);
        put_tenant(2);
        for (int tenant = 0; tenant < 3; tenant++)
            ask(tenant, true, memory);
        assert_int_equal(store_stat().digest_misses + store_stat().digest_conflicts, 0);
        close_store();
        fixture_remove(0);
    }
}

static uint8_t seen_name[NAME_BYTES];
static unsigned seen_events;

static void on_event(void *context, const kvo_event *e)
{
    (void)context;
    seen_events++;
    assert_int_equal(e->name_bytes, NAME_BYTES);
    memcpy(seen_name, e->name, NAME_BYTES);
}

/* Siblings: what an event, and the remove of a tenant, speak of. */
static void B042_events_and_removes_of_a_tenant_are_of_its_own_blocks(void **state)
{
    (void)state;
    kvo_target target = {.by = KVO_BY_TENANT, .tenant = 1};
    uint64_t removed;
    options.on_event = on_event;
    open_with_queue("dram:64blk,disk:@0:128blk");
    make_names();
    for (int tenant = 0; tenant < 3; tenant++) {
        seen_events = 0;
        put_tenant(tenant);
        assert_int_equal(seen_events, CHAIN);
        assert_memory_equal(seen_name, salted[tenant] + (CHAIN - 1) * NAME_BYTES, NAME_BYTES);
    }
    assert_int_equal(kvo_remove(store, &target, KVO_WRITTEN, KVO_FOREVER, NULL, &removed), KVO_OK);
    assert_int_equal(removed, CHAIN);
    ask(0, true, true);
    ask(2, true, true);
    ask(1, false, true);
    close_store();
}

/* ---- long names ---- */

static void B098_a_description_is_refused_when_it_is_opened_or_no_block_has_trouble_with_it(void **state)
{
    (void)state;
    char label[65], model[301];
    kvo_error error = {{0}};
    kvo_space_config config = KVO_SPACE_CONFIG_INIT;
    memset(label, 'l', sizeof label);
    memset(model, '/', sizeof model);
    config.label = label;
    config.model = model;
    config.block_bytes_max = BYTES;
    static const struct {
        size_t label, model;
        int status;
    } lengths[] = {{63, 255, KVO_OK}, {64, 255, KVO_E_RANGE}, {63, 256, KVO_E_RANGE}, {1, 300, KVO_E_RANGE}};
    open_store("dram:8blk,disk:@0:64blk");
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        label[lengths[i].label] = model[lengths[i].model] = 0;
        assert_int_equal(kvo_space_open(store, &config, &space, &error), lengths[i].status);
        if (lengths[i].status == KVO_OK)
            assert_int_equal(fill_with(i * 100, 30, BYTES), 30); /* names go into no path */
        else
            assert_true(error.text[0] != 0);
        label[lengths[i].label] = 'l';
        model[lengths[i].model] = '/';
    }
    label[63] = model[255] = 0;
    close_store();
    open_store("dram:8blk,disk:@0:64blk");
    assert_int_equal(kvo_space_open(store, &config, &space, NULL), KVO_OK);
    for (uint64_t i = 0; i < 30; i++)
        assert_int_equal(get(i, BYTES), KVO_OK);
    close_store();
}

/* A sibling: the longest names of blocks, and the longest path of a directory. */
static void B098_names_of_64_bytes_and_the_longest_path_are_as_good_as_short_ones(void **state)
{
    (void)state;
    enum { COUNT = 30, PATH_BYTES = 200 };
    char path[PATH_BYTES + 2], tiers[300];
    uint8_t names[COUNT][KVO_NAME_BYTES_MAX];
    static uint8_t bytes[COUNT][SMALL];
    kvo_segment segments[COUNT];
    kvo_answer answers[COUNT];
    kvo_error error = {{0}};
    kvo_memory memory = {segments, NULL};
    mkdir(fixture_path(0), 0700);
    int n = snprintf(path, sizeof path, "%s/", fixture_path(0));
    memset(path + n, 'd', sizeof path - (size_t)n);
    path[PATH_BYTES + 1] = 0;
    snprintf(tiers, sizeof tiers, "dram:8blk,disk:%s:64blk", path);
    assert_int_equal(kvo_open(tiers, &options, &store, &error), KVO_E_ARGUMENT); /* at once, not block by block */
    assert_non_null(strstr(error.text, "200 bytes"));
    path[PATH_BYTES] = 0;
    snprintf(tiers, sizeof tiers, "dram:8blk,disk:%s:64blk", path);
    for (int i = 0; i < COUNT; i++) {
        memset(names[i], 0xff, sizeof names[i]);
        names[i][KVO_NAME_BYTES_MAX - 1] = (uint8_t)i; /* they differ in the last byte */
        segments[i] = (kvo_segment){bytes[i], SMALL};
        payload_make(bytes[i], SMALL, (uint64_t)i, 0);
    }
    for (int round = 0; round < 2; round++) {
        assert_int_equal(kvo_open(tiers, &options, &store, &error), KVO_OK);
        space = open_space("a", BYTES);
        kvo_names list = {.first = names, .name_bytes = KVO_NAME_BYTES_MAX, .count = COUNT, .space = space};
        if (round == 0)
            assert_int_equal(kvo_put(store, &list, &memory, NULL, answers), KVO_OK);
        memset(bytes, 0, sizeof bytes);
        assert_int_equal(kvo_get(store, &list, &memory, NULL, answers), KVO_OK);
        for (int i = 0; i < COUNT; i++)
            assert_true(answers[i].status == KVO_OK && payload_is(bytes[i], SMALL, (uint64_t)i, 0));
        close_store();
    }
}

/* ---- shards ---- */

enum { SHARDS = 4, PARTS = 12 };

static kvo_names shard(unsigned which, bool by_layers)
{
    kvo_names names = names_of(0, PARTS);
    names.head_group = (uint16_t)(by_layers ? 0 : which);
    names.layer_first = (uint16_t)(by_layers ? which * 8 : 0);
    names.layer_count = by_layers ? 8 : 0;
    return names;
}

static void put_shards(bool by_layers)
{
    uint8_t *memory = malloc(PARTS * BYTES);
    kvo_segment segments[PARTS];
    kvo_answer answers[PARTS];
    kvo_memory of = {segments, NULL};
    for (unsigned s = 0; s < SHARDS; s++) {
        kvo_names names = shard(s, by_layers);
        for (uint64_t i = 0; i < PARTS; i++) {
            segments[i] = (kvo_segment){memory + i * BYTES, BYTES};
            payload_make(segments[i].base, BYTES, i, s);
        }
        assert_int_equal(kvo_put(store, &names, &of, NULL, answers), KVO_OK);
        for (int i = 0; i < PARTS; i++)
            assert_int_equal(answers[i].status, KVO_STORED);
    }
    free(memory);
}

/* The way for ranks to agree: hold what is there of each shard, then the shortest of the prefixes is everybody's,
   until the release, whatever is put meanwhile. */
static void agree(bool by_layers, size_t expected)
{
    uint64_t holds[SHARDS];
    size_t common = PARTS;
    for (unsigned s = 0; s < SHARDS; s++) {
        kvo_answer answers[PARTS];
        kvo_names names = shard(s, by_layers);
        size_t n = 0;
        assert_int_equal(kvo_hold(store, &names, KVO_FOREVER, &holds[s], answers), KVO_OK);
        while (n < PARTS && answers[n].status == KVO_OK)
            n++;
        common = n < common ? n : common;
    }
    assert_int_equal(common, expected);
    for (uint64_t i = 0; i < 100; i++)
        cases_put(7000 + i, BYTES, 0, 0);
    uint8_t *memory = malloc(BYTES);
    for (unsigned s = 0; s < SHARDS; s++) {
        kvo_names names = shard(s, by_layers);
        size_t matched;
        assert_int_equal(kvo_match(store, &names, NULL, &matched), KVO_OK);
        assert_true(matched >= common);
        names.count = 1;
        for (uint64_t i = 0; i < common; i++, names.first = (const uint8_t *)names.first + NAME_BYTES) {
            kvo_segment segment = {memory, BYTES};
            kvo_memory to = {&segment, NULL};
            kvo_answer answer;
            assert_int_equal(kvo_get(store, &names, &to, NULL, &answer), KVO_OK);
            assert_int_equal(answer.status, KVO_OK);
            assert_true(payload_is(memory, BYTES, i, s));
        }
        assert_int_equal(kvo_release(store, holds[s]), KVO_OK);
    }
    free(memory);
}

static void B113_what_is_held_of_each_shard_is_the_same_prefix_for_all(void **state)
{
    (void)state;
    for (int by_layers = 0; by_layers < 2; by_layers++) { /* head groups; a sibling: ranges of layers */
        kvo_answer answer;
        open_store("dram:8blk,disk:@0:64blk");
        put_shards(by_layers);
        agree(by_layers, PARTS);
        kvo_names one = shard(2, by_layers);
        one.first = (const uint8_t *)one.first + 5 * NAME_BYTES;
        one.count = 1;
        kvo_target target = {.by = KVO_BY_NAMES, .names = one};
        assert_int_equal(kvo_remove(store, &target, KVO_WRITTEN, KVO_FOREVER, &answer, NULL), KVO_OK);
        assert_int_equal(answer.status, KVO_OK);
        size_t matched;
        for (unsigned s = 0; s < SHARDS; s++) { /* a shard knows nothing of others */
            kvo_names names = shard(s, by_layers);
            assert_int_equal(kvo_match(store, &names, NULL, &matched), KVO_OK);
            assert_true(matched == (s == 2 ? 5 : PARTS) || matched < 5);
        }
        agree(by_layers, 5);
        check_valid();
        close_store();
        fixture_remove(0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(B038_names_whose_hashes_are_equal_are_told_apart_in_every_tier),
        FIXTURE_TEST(B038_more_equal_hashes_than_the_table_has_room_for_cost_blocks_not_bytes),
        FIXTURE_TEST(B042_another_salt_misses_with_every_verb_in_every_tier),
        FIXTURE_TEST(B042_events_and_removes_of_a_tenant_are_of_its_own_blocks),
        FIXTURE_TEST(B098_a_description_is_refused_when_it_is_opened_or_no_block_has_trouble_with_it),
        FIXTURE_TEST(B098_names_of_64_bytes_and_the_longest_path_are_as_good_as_short_ones),
        FIXTURE_TEST(B113_what_is_held_of_each_shard_is_the_same_prefix_for_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
