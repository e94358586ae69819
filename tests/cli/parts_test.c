/* SPDX-License-Identifier: Apache-2.0 */
#include "../../src/cli/common.h"
#include "../../src/cli/ids.h"
#include "../../src/cli/latency.h"
#include "../../src/cli/payload.h"
#include "test.h"

#include <stdlib.h>

/* ---- Names and payloads ---- */

static void names_are_tag_scope_and_id(void **state)
{
    (void)state;
    static const uint8_t expected[CLI_NAME_BYTES] = {'r', 0, 0, 0, 0, 0, 1, 2, 0xff, 0xee, 0, 0, 0, 0, 0, 9};
    uint8_t name[CLI_NAME_BYTES];
    uint32_t scope;
    uint64_t id;
    cli_name_write(name, 0x102, 0xffee000000000009u);
    assert_memory_equal(name, expected, sizeof name);
    assert_int_equal(cli_name_read(name, sizeof name, &scope, &id), 1);
    assert_int_equal(scope, 0x102);
    assert_true(id == 0xffee000000000009u);
    name[0] = 0;
    assert_int_equal(cli_name_read(name, sizeof name, &scope, &id), 0);
    assert_int_equal(cli_name_read(name, 32, &scope, &id), 0);
}

static void every_changed_byte_of_a_payload_is_noticed(void **state)
{
    (void)state;
    uint8_t name[CLI_NAME_BYTES];
    uint8_t payload[1003];
    cli_name_write(name, 3, 77);
    for (size_t bytes = 1; bytes <= sizeof payload; bytes += bytes < 20 ? 1 : 983) {
        cli_payload_fill(name, payload, bytes);
        assert_int_equal(cli_payload_is(name, payload, bytes), 1);
        for (size_t at = 0; at < bytes; at++) {
            payload[at] ^= (uint8_t)(1u << (at % 8));
            assert_int_equal(cli_payload_is(name, payload, bytes), 0);
            payload[at] ^= (uint8_t)(1u << (at % 8));
        }
    }
}

/* Of 8 equal bytes in a row, in the same or in shifted places, chance makes 1 in 2^64. */
static void payloads_of_near_names_share_no_words(void **state)
{
    (void)state;
    enum { NAMES = 40, WORDS = 64 };
    static uint64_t words[NAMES][WORDS];
    for (uint32_t n = 0; n < NAMES; n++) {
        uint8_t name[CLI_NAME_BYTES];
        cli_name_write(name, n % 2, n / 2);
        cli_payload_fill(name, words[n], sizeof words[n]);
    }
    for (size_t a = 0; a < (size_t)NAMES * WORDS; a++) {
        for (size_t b = a + 1; b < (size_t)NAMES * WORDS; b++) {
            assert_true(words[a / WORDS][a % WORDS] != words[b / WORDS][b % WORDS]);
        }
    }
}

/* ---- Ids ---- */

static void id_marks_agree_with_a_plain_table(void **state)
{
    (void)state;
    enum { SCOPES = 3, RANGE = 500 };
    static uint8_t table[SCOPES][2 * RANGE][CLI_IDS_MARKS];
    cli_ids ids = {0};
    uint64_t random = 9, marked[CLI_IDS_MARKS] = {0};
    for (int round = 0; round < 60000; round++) {
        uint32_t scope = (uint32_t)(cli_random(&random) % SCOPES);
        uint32_t at = (uint32_t)(cli_random(&random) % (2 * RANGE));
        unsigned mark = (unsigned)(cli_random(&random) % CLI_IDS_MARKS);
        /* Dense low ids, and lone ones up to 2^64 - 1. */
        uint64_t id = at < RANGE ? at : UINT64_MAX - (uint64_t)(at - RANGE) * 0x10000000001u;
        uint8_t *expected = &table[scope][at][mark];
        assert_int_equal(cli_ids_has(&ids, scope, id, mark), *expected);
        if (round % 3 != 0) {
            assert_int_equal(cli_ids_mark(&ids, scope, id, mark), !*expected);
            marked[mark] += !*expected;
            *expected = 1;
        }
    }
    assert_memory_equal(ids.marked, marked, sizeof marked);
    cli_ids_free(&ids);
}

/* ---- Latency and texts ---- */

static void percentiles_are_within_two_percent(void **state)
{
    (void)state;
    cli_latency *latency = cli_alloc(1, sizeof *latency);
    assert_true(cli_latency_us(latency, 500) < 0.0);
    for (uint64_t ns = 1; ns <= 1000000; ns++) {
        cli_latency_add(latency, ns);
    }
    assert_true(cli_latency_us(latency, 500) > 490.0 && cli_latency_us(latency, 500) < 510.0);
    assert_true(cli_latency_us(latency, 990) > 970.0 && cli_latency_us(latency, 990) < 1010.0);
    cli_latency_add(latency, UINT64_MAX);
    assert_int_equal(latency->count, 1000001);
    free(latency);
}

static void numbers_are_written_for_people(void **state)
{
    (void)state;
    char text[CLI_COUNT_TEXT];
    assert_string_equal(cli_count_text(0, text), "0");
    assert_string_equal(cli_count_text(999, text), "999");
    assert_string_equal(cli_count_text(1234567, text), "1,234,567");
    assert_string_equal(cli_count_text(UINT64_MAX, text), "18,446,744,073,709,551,615");
    assert_string_equal(cli_bytes_text(512, text), "512 B");
    assert_string_equal(cli_bytes_text(5u << 20, text), "5.0 MiB");
}

static void words_from_outside_stay_on_their_line(void **state)
{
    (void)state;
    char text[] = "a\nb\033[2Jc\177d \302\233e \303\244 \302\240 \302";
    cli_one_line(text);
    assert_string_equal(text, "a?b?[2Jc?d ??e \303\244 \302\240 \302");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_tag_scope_and_id),
        cmocka_unit_test(every_changed_byte_of_a_payload_is_noticed),
        cmocka_unit_test(payloads_of_near_names_share_no_words),
        cmocka_unit_test(id_marks_agree_with_a_plain_table),
        cmocka_unit_test(percentiles_are_within_two_percent),
        cmocka_unit_test(numbers_are_written_for_people),
        cmocka_unit_test(words_from_outside_stay_on_their_line),
    };
    return cmocka_run_group_tests_name("parts", tests, NULL, NULL);
}
