/* SPDX-License-Identifier: Apache-2.0 */
/* Pins and holds: what keeps a block, for how long, and what it does to others. */
#include "fixture.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void write_to_pin(void *context)
{
    kvo_pin p;
    struct rlimit none = {0, 0};
    (void)context;
    setrlimit(RLIMIT_CORE, &none);
    signal(SIGSEGV, SIG_DFL);
    open_store("dram:64blk");
    put(1, 5000);
    if (pin(1, &p) != KVO_OK)
        _exit(3);
    *(volatile uint8_t *)(uintptr_t)p.memory = 1;
}

static void pinned_memory_cannot_be_written(void **state)
{
    (void)state;
    int status = in_child(write_to_pin, NULL);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void a_pin_is_given_back_once(void **state)
{
    (void)state;
    kvo_pin p[2], copy, odd = {.token = 77ull << 32 | 5};
    open_store("dram:64blk");
    put(1, 5000);
    assert_int_equal(pin(1, &p[0]), KVO_OK);
    assert_int_equal(pin(1, &p[1]), KVO_OK);
    assert_int_equal(p[0].payload_bytes, 5000);
    assert_int_equal(info_of(1).copies[0].pins, 2);
    copy = p[0];
    assert_int_equal(kvo_unpin(store, &p[0], 1), KVO_OK);
    assert_true(p[0].token == 0);
    assert_int_equal(kvo_unpin(store, &copy, 1), KVO_GONE);
    assert_int_equal(kvo_unpin(store, &odd, 1), KVO_GONE);
    assert_int_equal(kvo_unpin(store, &p[0], 1), KVO_GONE);
    assert_int_equal(info_of(1).copies[0].pins, 1);
    assert_true(payload_is(p[1].memory, 5000, 1, 0));
    check_valid();
    assert_int_equal(kvo_unpin(store, &p[1], 1), KVO_OK);
    assert_int_equal(info_of(1).copies[0].pins, 0);
    check_valid();
}

static void a_removed_block_stays_readable_until_its_last_unpin(void **state)
{
    (void)state;
    kvo_pin p, q;
    open_store("dram:16blk,disk:@0:16blk");
    put(1, 5000);
    pin(1, &p);
    assert_int_equal(drop(1, KVO_WRITTEN), KVO_OK);
    assert_int_equal(exists(1, NULL), KVO_MISS);
    assert_int_equal(get(1, 5000), KVO_MISS);
    assert_int_equal(pin(1, &q), KVO_MISS);
    check_valid();
    assert_int_equal(put_as(1, 6000, 2, NULL, NULL), KVO_STORED); /* the name is free at once */
    fill_with(100, 40, 65536);
    assert_true(payload_is(p.memory, 5000, 1, 0));
    check_valid();
    assert_int_equal(kvo_unpin(store, &p, 1), KVO_OK);
    check_valid();
    assert_int_equal(get_as(1, 6000, 2, NULL, NULL), KVO_OK);
}

static void a_pinned_block_is_passed_by(void **state)
{
    (void)state;
    kvo_pin p;
    open_store("dram:4blk,disk:@0:8blk");
    put(1, 65536);
    pin(1, &p);
    fill_with(100, 40, 65536);
    assert_true(payload_is(p.memory, 65536, 1, 0));
    assert_int_equal(info_of(1).copies[0].tier, 0);
    kvo_unpin(store, &p, 1);
    fill_with(200, 40, 65536);
    assert_int_equal(exists(1, NULL), KVO_MISS);
    check_valid();
}

static void a_block_has_4095_pins(void **state)
{
    (void)state;
    static kvo_pin pins[4095];
    kvo_pin more;
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    o.deadline_ns = 0;
    open_store("dram:16blk,disk:@0:16blk");
    put(1, 5000);
    kvo_sync(store, NULL, KVO_WRITTEN, KVO_FOREVER, NULL); /* a copy below, too */
    for (size_t i = 0; i < 4095; i++)
        assert_int_equal(pin(1, &pins[i]), KVO_OK);
    assert_int_equal(pin(1, &more), KVO_BUSY);
    int status = get_as(1, 5000, 0, &o, NULL);
    assert_true(status == KVO_OK || status == KVO_BUSY);
    check_valid();
    assert_int_equal(kvo_unpin(store, &pins[17], 1), KVO_OK);
    assert_int_equal(pin(1, &pins[17]), KVO_OK);
    assert_int_equal(kvo_unpin(store, pins, 4095), KVO_OK);
    check_valid();
}

static void pins_max_is_busy(void **state)
{
    (void)state;
    kvo_pin pins[3];
    options.pins_max = 2;
    open_store("dram:16blk");
    fill_with(0, 3, 100);
    assert_int_equal(pin(0, &pins[0]), KVO_OK);
    assert_int_equal(pin(1, &pins[1]), KVO_OK);
    assert_int_equal(pin(2, &pins[2]), KVO_BUSY);
    check_valid();
    kvo_unpin(store, pins, 1);
    assert_int_equal(pin(2, &pins[2]), KVO_OK);
    check_valid();
}

static void a_pin_brings_a_block_up_or_is_busy(void **state)
{
    (void)state;
    kvo_pin pins[4], more;
    open_store("dram:4blk,disk:@0:64blk");
    fill_with(0, 12, 65536);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pin(i, &pins[i]), KVO_OK);
    for (unsigned i = 0; i < 4; i++)
        assert_true(payload_is(pins[i].memory, 65536, i, 0));
    assert_int_equal(pin(5, &more), KVO_BUSY); /* no room above */
    check_valid();
    kvo_unpin(store, pins, 4);
    assert_int_equal(pin(5, &more), KVO_OK);
}

static void pins_need_memory_first(void **state)
{
    (void)state;
    kvo_pin p;
    kvo_answer a;
    open_store("disk:@0:16blk");
    put(1, 100);
    kvo_names names = names_of(1, 1);
    assert_int_equal(kvo_pin_blocks(store, &names, NULL, &p, &a), KVO_E_UNSUPPORTED);
}

/* ---- holds ---- */

static int hold(uint64_t number, uint64_t duration, uint64_t *token)
{
    kvo_answer a;
    kvo_names names = names_of(number, 1);
    assert_int_equal(kvo_hold(store, &names, duration, token, &a), KVO_OK);
    assert_int_equal(a.status == KVO_OK, *token != 0);
    return a.status;
}

static void a_held_block_outlasts_all_others(void **state)
{
    (void)state;
    uint64_t token, other;
    open_store("dram:4blk,disk:@0:8blk");
    put(1, 65536);
    assert_int_equal(hold(1, KVO_FOREVER, &token), KVO_OK);
    assert_int_equal(hold(2, KVO_FOREVER, &other), KVO_MISS);
    fill_with(100, 40, 65536);
    assert_int_equal(get(1, 65536), KVO_OK);
    assert_int_equal(kvo_release(store, token), KVO_OK);
    assert_int_equal(kvo_release(store, token), KVO_GONE);
    assert_int_equal(kvo_release(store, 0), KVO_GONE);
    fill_with(200, 40, 65536);
    assert_int_equal(exists(1, NULL), KVO_MISS);
    check_valid();
}

static void two_holds_are_released_one_by_one(void **state)
{
    (void)state;
    uint64_t one, two;
    open_store("dram:8blk");
    put(1, 65536);
    hold(1, KVO_FOREVER, &one);
    hold(1, KVO_FOREVER, &two);
    kvo_release(store, one);
    fill_with(100, 20, 65536);
    assert_int_equal(exists(1, NULL), KVO_OK);
    kvo_release(store, two);
    fill_with(200, 20, 65536);
    assert_int_equal(exists(1, NULL), KVO_MISS);
}

static void holds_have_limits(void **state)
{
    (void)state;
    uint64_t tokens[3];
    kvo_answer a;
    options.holds_max = 2;
    open_store("dram:16blk");
    fill_with(0, 3, 100);
    kvo_names names = names_of(0, 1);
    assert_int_equal(kvo_hold(store, &names, 0, &tokens[0], &a), KVO_E_RANGE);
    assert_int_equal(hold(0, KVO_FOREVER, &tokens[0]), KVO_OK);
    assert_int_equal(hold(1, 1, &tokens[1]), KVO_OK); /* over at once */
    assert_int_equal(hold(1, KVO_FOREVER, &tokens[1]), KVO_OK);
    assert_int_equal(hold(2, KVO_FOREVER, &tokens[2]), KVO_BUSY);
    kvo_release(store, tokens[0]);
    assert_int_equal(hold(2, KVO_FOREVER, &tokens[2]), KVO_OK);
}

static void remove_and_rewrite_ignore_holds(void **state)
{
    (void)state;
    uint64_t one, two;
    open_store("dram:8blk");
    put(1, 65536);
    put(2, 65536);
    hold(1, KVO_FOREVER, &one);
    hold(2, KVO_FOREVER, &two);
    assert_int_equal(drop(1, KVO_SEALED), KVO_OK);
    assert_int_equal(rewrite(2, 65536, 1, 0, KVO_SEALED), KVO_STORED);
    check_valid();
    kvo_release(store, one);
    kvo_release(store, two);
    fill_with(100, 20, 65536);
    assert_int_equal(exists(2, NULL), KVO_MISS); /* nothing holds it any more */
    check_valid();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(pinned_memory_cannot_be_written),
        FIXTURE_TEST(a_pin_is_given_back_once),
        FIXTURE_TEST(a_removed_block_stays_readable_until_its_last_unpin),
        FIXTURE_TEST(a_pinned_block_is_passed_by),
        FIXTURE_TEST(a_block_has_4095_pins),
        FIXTURE_TEST(pins_max_is_busy),
        FIXTURE_TEST(a_pin_brings_a_block_up_or_is_busy),
        FIXTURE_TEST(pins_need_memory_first),
        FIXTURE_TEST(a_held_block_outlasts_all_others),
        FIXTURE_TEST(two_holds_are_released_one_by_one),
        FIXTURE_TEST(holds_have_limits),
        FIXTURE_TEST(remove_and_rewrite_ignore_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
