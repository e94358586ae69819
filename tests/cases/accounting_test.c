/* SPDX-License-Identifier: Apache-2.0 */
/* What the store says of itself: memory it may have, events that it sends. */
#include "cases.h"

/* ---- memory ---- */

static base_env machine;
static _Atomic uint64_t allocated, allocated_most;

static void take(uint64_t bytes)
{
    uint64_t now = atomic_fetch_add(&allocated, bytes) + bytes, most = atomic_load(&allocated_most);
    while (now > most && !atomic_compare_exchange_weak(&allocated_most, &most, now))
        ;
}

static void *count_alloc(base_env *env, size_t bytes)
{
    (void)env;
    take(bytes);
    return base_env_posix()->alloc(base_env_posix(), bytes);
}

static void count_free(base_env *env, void *memory, size_t bytes)
{
    (void)env;
    if (memory)
        atomic_fetch_sub(&allocated, bytes);
    base_env_posix()->free(base_env_posix(), memory, bytes);
}

static int count_arena(base_env *env, size_t bytes, void **writable, const void **readable)
{
    (void)env;
    take(bytes);
    return base_env_posix()->map_arena(base_env_posix(), bytes, writable, readable);
}

static void count_arena_gone(base_env *env, size_t bytes, void *writable, const void *readable)
{
    (void)env;
    atomic_fetch_sub(&allocated, bytes);
    base_env_posix()->unmap_arena(base_env_posix(), bytes, writable, readable);
}

static void open_counted(const char *tiers)
{
    machine = *base_env_posix();
    machine.alloc = count_alloc;
    machine.free = count_free;
    machine.map_arena = count_arena;
    machine.unmap_arena = count_arena_gone;
    atomic_store(&allocated, 0);
    atomic_store(&allocated_most, 0);
    options.flags = KVO_OPEN_STEPPED;
    cases_open_on(&machine, tiers);
}

enum { CAPACITY = 16 << 20, ENGINE = 64 * 1024 };

/* Whatever is put, of whatever size and for however many tenants: all that memory alone needs is in the capacity. */
static void B096_a_capacity_of_memory_is_never_exceeded_metadata_included(void **state)
{
    (void)state;
    static const size_t lengths[] = {1, 4096, 65536, 1 << 20}, usual[] = {4096, 4096, 65536, 65536, 65536};
    for (int l = 0; l < 5; l++) { /* the last one: of three lengths */
        options.block_bytes = usual[l];
        open_counted("dram:16M");
        space = open_space("a", usual[l]);
        uint64_t put_count = 0;
        for (uint64_t i = 0; i < 9000; i++) {
            size_t bytes = l < 4 ? lengths[l] : lengths[i % 3];
            kvo_put_options o = KVO_PUT_OPTIONS_INIT;
            o.policy.tenant = (uint16_t)i; /* more than tenants_max */
            int status = put_as(i, bytes, 0, &o, NULL);
            assert_true(status == KVO_STORED || (status == KVO_REFUSED && l == 3));
            put_count += status == KVO_STORED;
            if (l == 3 && i > 10)
                break;
        }
        kvo_stat stat = store_stat();
        assert_true(stat.control_bytes + tier_stat(0).capacity_bytes <= CAPACITY);
        assert_true(tier_stat(0).used_bytes <= tier_stat(0).capacity_bytes);
        assert_true(atomic_load(&allocated_most) <= CAPACITY + ENGINE);
        assert_true(l == 3 || put_count > stat.blocks); /* it did overflow */
        close_store();
        assert_int_equal(atomic_load(&allocated), 0);
    }
}

/* Siblings: a block, and a space, that are larger than all there is. */
static void B096_what_is_larger_than_the_capacity_is_refused_and_displaces_nothing(void **state)
{
    (void)state;
    kvo_error error = {{0}};
    kvo_space huge = 0;
    kvo_space_config config = KVO_SPACE_CONFIG_INIT;
    open_store("dram:64blk,disk:@0:64blk");
    assert_int_equal(fill_with(0, 64, BYTES), 64);
    config.label = "huge";
    config.block_bytes_max = 64 << 20;
    assert_int_equal(kvo_space_open(store, &config, &huge, &error), KVO_E_RANGE);
    uint8_t *bytes = calloc(1, BYTES + 1);
    kvo_names names = names_of(100, 1);
    kvo_segment segment = {bytes, BYTES + 1};
    kvo_memory of = {&segment, NULL};
    kvo_answer answer;
    kvo_reservation r;
    uint32_t length = UINT32_MAX;
    assert_int_equal(kvo_put(store, &names, &of, NULL, &answer), KVO_OK);
    assert_int_equal(answer.status, KVO_REFUSED);
    assert_int_equal(kvo_reserve(store, &names, &length, NULL, &r, &answer), KVO_OK);
    assert_int_equal(answer.status, KVO_REFUSED);
    free(bytes);
    assert_int_equal(cases_there(0, 64), 64);
    assert_int_equal(cases_evictions(0), 0);
    close_store();
}

/* ---- events ---- */

enum { NAMES = 200 };

static struct {
    bool there[NAMES];
    uint8_t tiers[NAMES]; /* a bit each */
    uint64_t last_reference;
    unsigned ends, unknown;
} inventory;

static uint64_t number_of(const uint8_t *name)
{
    uint8_t known[NAME_BYTES];
    for (uint64_t i = 0; i < NAMES; i++) {
        name_of(i, known);
        if (memcmp(name, known, NAME_BYTES) == 0)
            return i;
    }
    return NAMES;
}

static void keep_inventory(void *context, const kvo_event *e)
{
    (void)context;
    uint64_t n = number_of(e->name);
    if (n == NAMES) {
        inventory.unknown++;
        return;
    }
    MUST(e->reference >= inventory.last_reference); /* in order */
    inventory.last_reference = e->reference;
    switch (e->type) {
    case KVO_EVENT_SEAL:
        MUST(!inventory.there[n]);
        inventory.there[n] = true;
        inventory.tiers[n] = (uint8_t)(1u << e->tier);
        break;
    case KVO_EVENT_WRITE:
    case KVO_EVENT_PROMOTE:
        MUST(inventory.there[n] && !(inventory.tiers[n] >> e->tier & 1));
        inventory.tiers[n] |= (uint8_t)(1u << e->tier);
        break;
    case KVO_EVENT_DISCARD:
    case KVO_EVENT_DROP:
        MUST(inventory.there[n] && (inventory.tiers[n] >> e->tier & 1));
        inventory.tiers[n] &= (uint8_t)~(1u << e->tier);
        break;
    default:
        MUST(inventory.there[n]); /* once */
        inventory.there[n] = false;
        inventory.tiers[n] = 0;
        inventory.ends++;
    }
}

/* The inventory that a walk gives. */
static void take_inventory(void)
{
    kvo_block_info infos[16];
    uint64_t cursor = 0;
    size_t count = 1;
    memset(&inventory, 0, sizeof inventory);
    while (count) {
        assert_int_equal(kvo_walk(store, NULL, &cursor, infos, 16, &count), KVO_OK);
        for (size_t i = 0; i < count; i++) {
            uint64_t n = number_of(infos[i].name);
            assert_true(n < NAMES && !inventory.there[n]);
            inventory.there[n] = true;
            for (uint32_t k = 0; k < infos[i].copy_count; k++)
                inventory.tiers[n] |= (uint8_t)(1u << infos[i].copies[k].tier);
        }
    }
}

static void check_inventory(void)
{
    for (uint64_t n = 0; n < NAMES; n++) {
        kvo_answer answer;
        assert_int_equal(exists(n, &answer) == KVO_OK, inventory.there[n]);
        assert_int_equal(inventory.there[n] ? answer.tier_mask : 0, inventory.tiers[n]);
    }
}

/* No event says what an opening has found: a walk does, and events from there on keep it exact. */
static void B103_a_walk_and_the_events_after_it_are_an_exact_inventory(void **state)
{
    (void)state;
    uint64_t random = cases_seed();
    options.on_event = keep_inventory;
    memset(&inventory, 0, sizeof inventory);
    for (int life = 0; life < 3; life++) {
        open_store("dram:12blk,disk:@0:60blk");
        if (life) {
            memset(&inventory, 0, sizeof inventory);
            take_inventory();
        }
        check_inventory();
        for (int i = 0; i < 600; i++) {
            uint64_t n = cases_draw(&random, NAMES);
            switch (cases_draw(&random, 5)) {
            case 0:
                drop(n, KVO_SEALED);
                break;
            case 1:
                get(n, BYTES);
                break;
            default:
                put(n, BYTES);
            }
            if (i % 50 == 0)
                check_inventory();
        }
        check_inventory();
        close_store(); /* its events are seen as well */
    }
    assert_int_equal(inventory.unknown, 0);
}

static unsigned ended[3];
static size_t name_lengths[3];
static uint8_t names_put[3][8][KVO_NAME_BYTES_MAX];

static void count_ends(void *context, const kvo_event *e)
{
    (void)context;
    if (e->type != KVO_EVENT_END)
        return;
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 8; i++)
            if (e->name_bytes == name_lengths[k] && memcmp(e->name, names_put[k][i], e->name_bytes) == 0) {
                MUST(e->cause == KVO_CAUSE_REMOVE && e->tier == KVO_NO_TIER);
                ended[k]++;
            }
}

/* A remove of many is one end a block, and names are whole: of each length, in each head group. */
static void B104_a_remove_of_all_ends_each_block_under_its_own_name(void **state)
{
    (void)state;
    static const size_t lengths[] = {16, 32, 64};
    kvo_segment segments[8];
    kvo_answer answers[8];
    uint8_t *bytes = calloc(8, 1000);
    kvo_memory of = {segments, NULL};
    options.on_event = count_ends;
    open_store("dram:64blk,disk:@0:64blk");
    for (int by = 0; by < 3; by++) {
        memset(ended, 0, sizeof ended);
        for (int k = 0; k < 3; k++) {
            kvo_put_options o = KVO_PUT_OPTIONS_INIT;
            name_lengths[k] = lengths[k];
            o.policy.tenant = 7;
            o.sequence = 9;
            for (int i = 0; i < 8; i++) {
                memset(names_put[k][i], k * 16 + i + 1, KVO_NAME_BYTES_MAX);
                segments[i] = (kvo_segment){bytes + i * 1000, 1000};
            }
            for (int group = 0; group <= 5; group += 5) {
                kvo_names names = {.first = names_put[k], .name_bytes = lengths[k], .stride_bytes = KVO_NAME_BYTES_MAX,
                                   .count = 8, .space = space, .head_group = (uint16_t)group};
                assert_int_equal(kvo_put(store, &names, &of, &o, answers), KVO_OK);
                assert_int_equal(answers[7].status, KVO_STORED);
            }
        }
        kvo_target target = {.by = by == 0 ? KVO_BY_ALL : by == 1 ? KVO_BY_TENANT : KVO_BY_SEQUENCE};
        target.tenant = 7;
        target.sequence = 9;
        uint64_t removed;
        assert_int_equal(kvo_remove(store, &target, KVO_WRITTEN, KVO_FOREVER, NULL, &removed), KVO_OK);
        assert_int_equal(removed, 48);
        for (int k = 0; k < 3; k++)
            assert_int_equal(ended[k], 16);
    }
    free(bytes);
    close_store();
}

/* ---- who served ---- */

static uint64_t in_first_tier(uint64_t count)
{
    uint64_t n = 0;
    kvo_answer answer;
    for (uint64_t i = 0; i < count; i++)
        n += exists(i, &answer) == KVO_OK && (answer.tier_mask & 1);
    return n;
}

/* Submits gets of `count` names and cancels them, again if it came too late for all. */
static void cancel_gets(uint64_t count)
{
    enum { JOBS = 8, TRIES = 1000 };
    kvo_queue *queue;
    kvo_report reports[JOBS];
    kvo_job jobs[JOBS];
    cases_batch batches[JOBS];
    uint64_t done = 0, missed = 0, cancelled = 0, hits = tier_stat(0).hits + tier_stat(1).hits;
    kvo_stat before = store_stat();
    assert_int_equal(kvo_queue_open(store, NULL, &queue), KVO_OK);
    for (int tries = 0; cancelled == 0 && tries < TRIES; tries++) {
        for (int i = 0; i < JOBS; i++) {
            cases_batch *b = &batches[i];
            *b = cases_batch_make(0, count, BYTES, false);
            assert_int_equal(kvo_submit_get(queue, &b->names, &b->of, NULL, b->answers, NULL, &jobs[i]), KVO_OK);
        }
        for (int i = JOBS; i-- > 0;) /* the last first: its turn is far */
            kvo_cancel(queue, jobs[i]);
        for (size_t taken = 0, n; taken < JOBS; taken += n)
            assert_int_equal(kvo_poll(queue, reports, JOBS, KVO_FOREVER, &n), KVO_OK);
        for (int i = 0; i < JOBS; i++) {
            done += cases_batch_count(&batches[i], KVO_OK);
            missed += cases_batch_count(&batches[i], KVO_MISS);
            cancelled += cases_batch_count(&batches[i], KVO_CANCELLED);
            cases_batch_free(&batches[i]);
        }
    }
    assert_true(cancelled > 0);
    assert_int_equal((done + missed + cancelled) % (JOBS * count), 0); /* none is anything else */
    assert_int_equal(tier_stat(0).hits + tier_stat(1).hits - hits, done);
    assert_int_equal(store_stat().gets - before.gets, done + missed);
    assert_int_equal(store_stat().get_misses - before.get_misses, missed);
    assert_int_equal(kvo_queue_close(queue, KVO_FOREVER), KVO_OK);
}

/* A get is a hit of the one tier that served it, or a miss of the store; what only asks, or was cancelled before its
   turn, is neither. */
static void B101_each_get_counts_once_where_it_was_served(void **state)
{
    (void)state;
    enum { THERE = 40, NOT_THERE = 20 };
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    kvo_pin held;
    open_store("dram:16blk,disk:@0:64blk");
    assert_int_equal(fill_with(0, THERE, BYTES), THERE);
    uint64_t above = in_first_tier(THERE);
    assert_true(above > 0 && above < THERE);
    o.no_promote = 1;
    for (uint64_t i = 0; i < THERE + NOT_THERE; i++)
        assert_int_equal(get_as(i, BYTES, 0, &o, NULL), i < THERE ? KVO_OK : KVO_MISS);
    assert_int_equal(tier_stat(0).hits, above);
    assert_int_equal(tier_stat(1).hits, THERE - above);
    assert_int_equal(store_stat().gets, THERE + NOT_THERE);
    assert_int_equal(store_stat().get_misses, NOT_THERE);
    /* A sibling: pins, which bring up what they hit below. */
    for (uint64_t i = 0; i < THERE; i++) {
        assert_int_equal(pin(i, &held), KVO_OK);
        assert_int_equal(kvo_unpin(store, &held, 1), KVO_OK);
    }
    assert_int_equal(tier_stat(0).hits + tier_stat(1).hits, 2 * THERE);
    assert_int_equal(store_stat().gets - store_stat().get_misses, 2 * THERE);
    cancel_gets(THERE + NOT_THERE);
    close_store();
}

/* Memory is empty after a restart: each get is the disk's, and then memory's. */
static void B145_what_was_written_below_is_read_there(void **state)
{
    (void)state;
    enum { COUNT = 48 };
    open_store("dram:16blk,disk:@0:64blk");
    assert_int_equal(fill_with(0, COUNT, BYTES), COUNT);
    close_store();
    open_store("dram:64blk,disk:@0:64blk");
    uint64_t read_bytes = tier_stat(1).read_bytes, hits = tier_stat(0).hits, hits_below = tier_stat(1).hits;
    assert_int_equal(tier_stat(0).resident_blocks, 0);
    assert_int_equal(tier_stat(1).resident_blocks, COUNT);
    for (int round = 0; round < 2; round++)
        for (uint64_t i = 0; i < COUNT; i++)
            assert_int_equal(get(i, BYTES), KVO_OK);
    assert_int_equal(tier_stat(1).hits - hits_below, COUNT);
    assert_int_equal(tier_stat(0).hits - hits, COUNT);
    assert_int_equal(tier_stat(1).read_bytes - read_bytes, COUNT * BYTES);
    close_store();
}

/* ---- reports ---- */

/* store_stress has eight threads race for it. A sibling: ends, cancels and deadlines at the same moment, and calls from
   whoever takes the report. */
static void B141_a_job_has_one_end_and_none_is_left(void **state)
{
    (void)state;
    enum { DEPTH = 32 };
    kvo_queue *queue;
    kvo_job jobs[DEPTH], most = 0;
    unsigned reported[DEPTH];
    cases_batch batches[DEPTH];
    uint64_t random = cases_seed(), ends[3] = {0}, pending;
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    options.workers = 3;
    open_store("dram:16blk,disk:@0:200blk");
    assert_int_equal(kvo_queue_open(store, NULL, &queue), KVO_OK);
    for (int round = 0; round < (TEST_SANITIZES ? 20 : 100); round++) {
        memset(reported, 0, sizeof reported);
        for (int i = 0; i < DEPTH; i++) {
            static const uint64_t deadlines[] = {0, 1, 20000, 300000, KVO_FOREVER};
            batches[i] = cases_batch_make(cases_draw(&random, 150), 3, 4096, true);
            o.deadline_ns = deadlines[cases_draw(&random, 5)];
            assert_int_equal(kvo_submit_put(queue, &batches[i].names, &batches[i].of, &o, batches[i].answers,
                                            &reported[i], &jobs[i]),
                             KVO_OK);
            assert_true(jobs[i] > most);
            most = jobs[i];
            if (i % 3 == 0)
                kvo_cancel(queue, jobs[cases_draw(&random, (uint32_t)i + 1)]);
        }
        for (int left = DEPTH; left;) {
            kvo_report reports[5];
            size_t count;
            assert_int_equal(kvo_poll(queue, reports, 5, KVO_FOREVER, &count), KVO_OK);
            for (size_t i = 0; i < count; i++, left--) {
                assert_int_equal((*(unsigned *)reports[i].context)++, 0);
                ends[reports[i].status == KVO_CANCELLED ? 0 : reports[i].ok_count == reports[i].count ? 1 : 2]++;
                assert_int_equal(kvo_cancel(queue, reports[i].job), KVO_GONE);
            }
        }
        for (int i = 0; i < DEPTH; i++) {
            assert_int_equal(reported[i], 1);
            cases_batch_free(&batches[i]);
        }
        assert_int_equal(kvo_pending(queue, &pending), KVO_OK);
        assert_int_equal(pending, 0);
    }
    assert_int_equal(store_stat().reserved_blocks, 0);
    print_message("B141: %llu jobs cancelled, %llu done, %llu late in part\n", (unsigned long long)ends[0],
                  (unsigned long long)ends[1], (unsigned long long)ends[2]);
    assert_int_equal(kvo_queue_close(queue, KVO_FOREVER), KVO_OK);
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(B096_a_capacity_of_memory_is_never_exceeded_metadata_included),
        FIXTURE_TEST(B096_what_is_larger_than_the_capacity_is_refused_and_displaces_nothing),
        FIXTURE_TEST(B103_a_walk_and_the_events_after_it_are_an_exact_inventory),
        FIXTURE_TEST(B104_a_remove_of_all_ends_each_block_under_its_own_name),
        FIXTURE_TEST(B101_each_get_counts_once_where_it_was_served),
        FIXTURE_TEST(B145_what_was_written_below_is_read_there),
        FIXTURE_TEST(B141_a_job_has_one_end_and_none_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
