/* SPDX-License-Identifier: Apache-2.0 */
#include "../../src/cli/common.h"
#include "../../src/cli/trace.h"
#include "test.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- A trace from text ---- */

static char path[] = "/tmp/kvonce-trace-XXXXXX";
static char error_text[512];

static int load_bytes(cli_trace *trace, const char *text, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    error_text[0] = 0;
    return cli_trace_load(trace, path, 1, error_text, sizeof error_text);
}

/* "tenant/1,2,3 -/4": requests in order, with their tenant and ids. */
static char *as_text(const cli_trace *trace, char *text, size_t room)
{
    size_t used = 0;
    text[0] = 0;
    uint64_t *ids = cli_alloc(trace->blocks_longest, sizeof *ids);
    for (size_t i = 0; i < trace->count; i++) {
        const cli_request *request = &trace->requests[trace->order[i]];
        cli_trace_expand(trace, trace->order[i], ids);
        used += (size_t)snprintf(text + used, room - used, "%s%lu%s", i == 0 ? "" : " ",
                                 (unsigned long)request->tenant, request->count == 0 ? "/" : "");
        for (uint32_t k = 0; k < request->count; k++) {
            used += (size_t)snprintf(text + used, room - used, k == 0 ? "/%llu" : ",%llu",
                                     (unsigned long long)ids[k]);
        }
        assert_true(used < room);
    }
    free(ids);
    return text;
}

static void reads_bytes(const char *text, size_t bytes, const char *expected)
{
    cli_trace trace;
    char got[4096];
    if (load_bytes(&trace, text, bytes) != 0) {
        fail_msg("%s\n  for %s", error_text, text);
    }
    assert_string_equal(as_text(&trace, got, sizeof got), expected);
    cli_trace_free(&trace);
}

static void reads(const char *text, const char *expected)
{
    reads_bytes(text, strlen(text), expected);
}

static void refuses_bytes(const char *text, size_t bytes, const char *where, const char *what)
{
    cli_trace trace;
    char expected[64];
    if (load_bytes(&trace, text, bytes) == 0) {
        fail_msg("accepted: %s", text);
    }
    (void)snprintf(expected, sizeof expected, "%s%s: ", path, where);
    if (strncmp(error_text, expected, strlen(expected)) != 0 || strstr(error_text, what) == NULL) {
        fail_msg("\"%s\" is not %s...%s\n  for %s", error_text, expected, what, text);
    }
    assert_null(strchr(error_text, '\n'));
}

static void refuses(const char *text, const char *where, const char *what)
{
    refuses_bytes(text, strlen(text), where, what);
}

/* ---- Clean and unclean files that mean the same ---- */

#define A "{\"timestamp\": 0, \"input_length\": 1500, \"output_length\": 5, \"hash_ids\": [0, 1, 2]}"
#define B "{\"timestamp\": 3000, \"input_length\": 900, \"output_length\": 5, \"hash_ids\": [0, 9]}"
#define AB "0/0,1,2 0/0,9"

static void unclean_files_mean_what_the_clean_one_means(void **state)
{
    (void)state;
    reads(A "\n" B "\n", AB);
    reads(A "\n" B, AB);
    reads(A "\r\n" B "\r\n", AB);
    reads("\n\n" A "\n\n   \n\t\r\n" B "\n\n", AB);
    reads("\xef\xbb\xbf" A "\n" B "\n", AB);
    reads("  " A "  \n\t" B "\t\n", AB);
    reads(B "\n" A "\n", AB);
    reads("{\"hash_ids\":[0,1,2],\"timestamp\":0}\n"
          "{\"more\":{\"x\":[1,{\"y\":null}]},\"timestamp\":3e3,\"hash_ids\":[0,9]}\n",
          AB);
}

static void lines_without_any_time_keep_their_order(void **state)
{
    (void)state;
    reads("{\"hash_ids\": [5]}\n{\"hash_ids\": [4]}\n{\"hash_ids\": []}\n", "0/5 0/4 0/");
}

static void equal_times_keep_their_order(void **state)
{
    (void)state;
    reads("{\"timestamp\":7,\"hash_ids\":[3]}\n{\"timestamp\":7,\"hash_ids\":[2]}\n{\"timestamp\":1,\"hash_ids\":[1]}\n"
          "{\"timestamp\":7,\"hash_ids\":[0]}\n", "0/1 0/3 0/2 0/0");
}

static void times_are_compared_exactly(void **state)
{
    (void)state;
    /* As doubles these would be equal, and stay in the order of the file. */
    reads("{\"timestamp\":9007199254740993,\"hash_ids\":[2]}\n{\"timestamp\":9007199254740992,\"hash_ids\":[1]}\n"
          "{\"timestamp\":-0.5,\"hash_ids\":[0]}\n{\"timestamp\":-0.25,\"hash_ids\":[7]}\n", "0/0 0/7 0/1 0/2");
}

static void ids_are_exact_to_64_bits(void **state)
{
    (void)state;
    reads("{\"hash_ids\": [9007199254740993, 9223372036854775808, 18446744073709551615, 0]}\n",
          "0/9007199254740993,9223372036854775808,18446744073709551615,0");
}

static void tenants_are_numbered_in_order_of_time(void **state)
{
    (void)state;
    reads("{\"timestamp\":2,\"tenant\":\"b\",\"hash_ids\":[2]}\n{\"timestamp\":1,\"tenant\":\"a\",\"hash_ids\":[1]}\n"
          "{\"timestamp\":3,\"tenant\":\"b\",\"session_id\":\"s\",\"hash_ids\":[3]}\n"
          "{\"timestamp\":4,\"tenant\":17,\"session_id\":4,\"hash_ids\":[4]}\n"
          "{\"timestamp\":5,\"tenant\":null,\"hash_ids\":[5]}\n", "1/1 2/2 2/3 3/4 0/5");
}

/* ---- Conversations ---- */

#define HEADER(requests) "{\"conv\":\"c\",\"models\":[\"m\"],\"block_size\":64,\"requests\":" requests "}\n"

static void compact_requests_keep_from_their_own_agent(void **state)
{
    (void)state;
    reads(HEADER("4") "{\"t\":0,\"in\":200,\"out\":1,\"keep\":0,\"new\":[[1,3]]}\n"
                      "{\"t\":1,\"in\":100,\"out\":1,\"keep\":0,\"new\":[[50,2]],\"agent\":\"x\"}\n"
                      "{\"t\":2,\"in\":200,\"out\":1,\"keep\":2,\"new\":[[9,1],[20,2]]}\n"
                      "{\"t\":3,\"in\":200,\"out\":1,\"keep\":1,\"new\":[[60,1]],\"agent\":\"x\"}\n",
          "0/1,2,3 0/50,51 0/1,2,9,20,21 0/50,60");
}

static void raw_and_compact_forms_expand_alike(void **state)
{
    (void)state;
    static const char *const expected = "0/1,2,3 0/50,51 0/50,51,52 0/1,2,9";
    reads(HEADER("4") "{\"t\":0,\"in\":200,\"out\":1,\"keep\":0,\"new\":[[1,3]]}\n"
                      "{\"t\":1.5,\"in\":128,\"out\":1,\"keep\":0,\"new\":[[50,2]],\"agent\":\"x\"}\n"
                      "{\"t\":1.75,\"in\":192,\"out\":1,\"keep\":2,\"new\":[[52,1]],\"agent\":\"x\"}\n"
                      "{\"t\":9,\"in\":200,\"out\":1,\"keep\":2,\"new\":[[9,1]]}\n", expected);
#define RAW_REST "\"block_size\":64,\"hash_id_scope\":\"local\",\"requests\":[" \
    "{\"t\":0,\"type\":\"n\",\"in\":200,\"out\":1,\"hash_ids\":[1,2,3]}," \
    "{\"t\":9,\"type\":\"n\",\"in\":200,\"out\":1,\"hash_ids\":[1,2,9]}," \
    "{\"t\":1.5,\"type\":\"subagent\",\"agent_id\":\"x\",\"requests\":[" \
    "{\"t\":0,\"in\":128,\"out\":1,\"hash_ids\":[50,51]},\n{\"hash_ids\":[50,51,52],\"t\":0.25}]}]}"
    reads("{\"id\":\"c\"," RAW_REST "\n", expected);
    reads("{\n\"id\":\"c\",\n" RAW_REST, expected);
}

static void conversations_start_at_seeded_times(void **state)
{
    (void)state;
    static const char text[] = HEADER("1") "{\"t\":0,\"keep\":0,\"new\":[[1,1]]}\n"
        HEADER("1") "{\"t\":0,\"keep\":0,\"new\":[[2,1]]}\n" HEADER("1") "{\"t\":0,\"keep\":0,\"new\":[[3,1]]}\n";
    cli_trace one, two, other;
    assert_int_equal(load_bytes(&one, text, sizeof text - 1), 0);
    assert_int_equal(cli_trace_load(&two, path, 1, error_text, sizeof error_text), 0);
    assert_int_equal(cli_trace_load(&other, path, 2, error_text, sizeof error_text), 0);
    int differs = 0;
    for (size_t i = 0; i < 3; i++) {
        assert_in_range(one.requests[i].time.whole, 0, 86399);
        assert_int_equal(one.requests[i].scope, i + 1);
        assert_int_equal(one.requests[i].time.whole, two.requests[i].time.whole);
        differs |= one.requests[i].time.whole != other.requests[i].time.whole;
    }
    assert_true(differs);
    cli_trace_free(&one);
    cli_trace_free(&two);
    cli_trace_free(&other);
}

/* ---- What is refused ---- */

static void broken_lines_are_named(void **state)
{
    (void)state;
    refuses(A "\n" "{\"timestamp\": 1, \"input_length\": 1}\n", ":2", "no hash_ids");
    refuses(A "\n\n" "{\"timestamp\": 1, \"output_length\":2748 610, \"hash_ids\": [1]}\n", ":3", "'6' where");
    refuses(A "\n" "{\"timestamp\": 1, \"hash_ids\": [1, 2", ":2", "ends where");
    refuses("{\"timestamp\": 1, \"hash_ids\": [1, 2", ":1", "ends where");
    refuses("{\"timestamp\": 1, \"hash_i\n" A "\n", ":1", "where");
    refuses(A "\n" "{\"hash_ids\": [1]}\n", ":2", "no timestamp");
    refuses("{\"hash_ids\": [1]}\n" A "\n", ":2", "a timestamp");
    refuses(A "\n" "{\"timestamp\": 1, \"hash_ids\": [1, {\"x\": 2}]}\n", ":2", "hash_ids: '{'");
    refuses(A "\n" "{\"timestamp\": 1, \"hash_ids\": [[1]]}\n", ":2", "hash_ids: '['");
    refuses("{\"hash_ids\": [1, -2]}\n", ":1", "-2 is not a whole number");
    refuses("{\"hash_ids\": [1.5]}\n", ":1", "1.5 is not");
    refuses("{\"hash_ids\": [1e3]}\n", ":1", "1e3 is not");
    refuses("{\"hash_ids\": [18446744073709551616]}\n", ":1", "beyond 2^64");
    refuses("{\"hash_ids\": [01]}\n", ":1", "leading zero");
    refuses("{\"hash_ids\": \"1,2\"}\n", ":1", "a list");
    refuses("{\"hash_ids\": null}\n", ":1", "a list");
    refuses("{\"hash_ids\": [\"1\"]}\n", ":1", "a number");
    refuses("{\"hash_ids\": [1,]}\n", ":1", "a number");
    refuses("{\"hash_ids\": [1 2]}\n", ":1", "','");
    refuses("{\"hash_ids\": [1], \"hash_ids\": [2]}\n", ":1", "twice");
    refuses("{\"hash_ids\": [1], \"timestamp\": \"now\"}\n", ":1", "timestamp: ");
    refuses("{\"hash_ids\": [1], \"timestamp\": NaN}\n", ":1", "timestamp: ");
    refuses("{\"hash_ids\": [1], \"timestamp\": 1e999}\n", ":1", "out of range");
    refuses("{\"hash_ids\": [1], \"input_length\": -1}\n", ":1", "input_length: ");
    refuses("{\"hash_ids\": [1], \"tenant\": [1]}\n", ":1", "tenant: ");
    refuses("{\"hash_ids\": [1], \"tenant\": true}\n", ":1", "tenant: ");
    refuses("{\"hash_ids\": [1], \"tenant\": \"\xff\"}\n", ":1", "not UTF-8");
    refuses("{\"hash_ids\": [1]} {\"hash_ids\": [2]}\n", ":1", "end of the line");
    refuses("[1, 2, 3]\n", ":1", "neither hash_ids");
    refuses("{}\n", ":1", "neither hash_ids");
    refuses("TIMESTAMP,ContextTokens,GeneratedTokens\n", ":1", "'T' where");
    refuses(A "\n" HEADER("0"), ":2", "another form");
}

static void broken_conversations_are_named(void **state)
{
    (void)state;
    refuses("{\"t\":0,\"keep\":0,\"new\":[[1,3]]}\n", ":1", "before the header");
    refuses(HEADER("2") "{\"t\":0,\"keep\":0,\"new\":[[1,3]]}\n", ":1", "2 requests, but 1 follow");
    refuses(HEADER("0") "{\"t\":0,\"keep\":0,\"new\":[[1,3]]}\n", ":1", "0 requests, but 1 follow");
    refuses(HEADER("1") "{\"t\":0,\"keep\":1,\"new\":[[1,3]]}\n", ":2", "keeps 1 blocks");
    refuses(HEADER("1") "{\"t\":0,\"new\":[[1,3]]}\n", ":2", "no keep");
    refuses(HEADER("1") "{\"keep\":0,\"new\":[[1,3]]}\n", ":2", "no t");
    refuses(HEADER("1") "{\"t\":0,\"keep\":0}\n", ":2", "no new");
    refuses(HEADER("1") "{\"t\":0,\"keep\":0,\"new\":[[1,2,3]]}\n", ":2", "[start, count]");
    refuses(HEADER("1") "{\"t\":0,\"keep\":0,\"new\":[[1]]}\n", ":2", "new: ");
    refuses(HEADER("1") "{\"t\":0,\"keep\":0,\"new\":[[1,4294967296]]}\n", ":2", "more than 1048576 blocks");
    refuses(HEADER("1") "{\"t\":0,\"keep\":0,\"new\":[[18446744073709551615,2]]}\n", ":2", "beyond 2^64");
    refuses(HEADER("1") "{\"t\":-1,\"keep\":0,\"new\":[[1,1]]}\n", ":2", "t: ");
    refuses("{\n\"requests\":[\n{\"t\":0,\"hash_ids\":[1]},\n{\"t\":1}]}", ":4", "neither hash_ids nor requests");
    refuses("{\n\"requests\":[\n{\"t\":0,\"hash_ids\":[1]},\n{\"t\":1,\"hash_ids\":[1,x]}]}", ":4", "'x'");
    refuses("{\"requests\":[{\"hash_ids\":[1]}]}", ":1", "without t");
    refuses("{\"hash_id_scope\":\"mine\",\"requests\":[]}", ":1", "neither local nor global");
}

static void what_is_no_trace_is_refused(void **state)
{
    (void)state;
    cli_trace trace;
    char deep[200001];
    refuses("", "", "empty");
    refuses(" \n\r\n", "", "empty");
    refuses("\x1f\x8b\x08\x00", ":1", "gzip");
    refuses("\x28\xb5\x2f\xfd\x00", ":1", "zstd");
    refuses_bytes("{\"hash_ids\": [1]}\n\0\0\0\0", 22, ":2", "0x00");
    refuses_bytes("{\"hash_ids\": [\0001]}\n", 19, ":1", "0x00");
    refuses("{\"hash_ids\": [1], \"tenant\": \"a\\u0000b\"}\n", ":1", "NUL");
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    memcpy(deep, "{\"x\":", 5);
    refuses(deep, ":1", "deep");
    assert_int_equal(cli_trace_load(&trace, "/dev/null", 1, error_text, sizeof error_text), -1);
    assert_int_equal(cli_trace_load(&trace, "/", 1, error_text, sizeof error_text), -1);
    assert_int_equal(cli_trace_load(&trace, "/nowhere/trace", 1, error_text, sizeof error_text), -1);
}

static void a_line_without_end_is_refused(void **state)
{
    (void)state;
    cli_trace trace;
    assert_int_equal(cli_trace_load(&trace, "/dev/zero", 1, error_text, sizeof error_text), -1);
    assert_non_null(strstr(error_text, ":1: a line of more than 64 MiB"));
}

/* ---- Public fault reports ---- */

#define C "{\"timestamp\": 9, \"hash_ids\": [7]}"

static void B028_lines_without_a_record_cost_nothing(void **state)
{
    (void)state;
    int ends[2];
    cli_trace trace;
    char text[1024];
    static const char *const clean[] = {A "\n" C "\n" B "\n", A "\n\n" C "\n" B "\n", A "\n   \n" C "\n" B "\n",
                                        A "\r\n" C "\r\n" B "\r\n", "\xef\xbb\xbf" A "\n" C "\n" B "\n",
                                        A "\n" C "\n" B, A "\n\r\n" C "\n\t\n" B "\n\n\n"};
    for (size_t i = 0; i < sizeof clean / sizeof clean[0]; i++)
        reads(clean[i], "0/0,1,2 0/7 0/0,9");
    refuses(A "\r" C "\n", ":1", "end of the line"); /* a lone CR ends no line */
    refuses(A "\n# comment\n" C "\n", ":2", "'#'");
    refuses(A "\n// comment\n" C "\n", ":2", "'/'");
    refuses("", "", "empty");
    refuses("\x1f\x8b\x08", ":1", "gzip");
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], clean[4], strlen(clean[4])), strlen(clean[4]));
    assert_int_equal(close(ends[1]), 0);
    FILE *file = fdopen(ends[0], "rb");
    assert_int_equal(cli_trace_read(&trace, file, "pipe", 1, error_text, sizeof error_text), 0);
    assert_string_equal(as_text(&trace, text, sizeof text), "0/0,1,2 0/7 0/0,9");
    cli_trace_free(&trace);
    assert_int_equal(fclose(file), 0);
}

/* Twelve good lines, then this one. */
static void thirteenth(const char *line, const char *what)
{
    char text[8192] = "";
    for (int i = 0; i < 12; i++)
        strcat(text, A "\n");
    strcat(strcat(text, line), "\n" A "\n");
    refuses(text, ":13", what);
}

/* One line with so many ids, in numbers of 20 digits: 100,000 of them are 2 MB. */
static void reads_ids(size_t count)
{
    cli_trace trace;
    char *text = cli_alloc(count + 2, 24);
    size_t used = (size_t)sprintf(text, "{\"hash_ids\":[");
    for (size_t i = 0; i < count; i++)
        used += (size_t)sprintf(text + used, i == 0 ? "%llu" : ",%llu", 18446744073709551615ull - 2 * i);
    used += (size_t)sprintf(text + used, "]}\n");
    assert_int_equal(load_bytes(&trace, text, used), 0);
    assert_int_equal(trace.requests[0].count, count);
    cli_trace_free(&trace);
    free(text);
}

static void B029_a_malformed_line_is_named(void **state)
{
    (void)state;
    thirteenth("{\"timestamp\": 1, \"input_length\": 5, \"output_length\":2748 610, \"hash_ids\": [1]}", "'6' where");
    thirteenth("{\"timestamp\": 1 \"hash_ids\": [1]}", "where");
    thirteenth("{\"timestamp\": 1, \"hash_ids\": [1], \"timestamp\": 2}", "twice");
    thirteenth("{\"timestamp\": 1, \"hash_ids\": {\"0\": 1}}", "a list");
    thirteenth("{\"timestamp\": 1, \"hash_ids\": [{\"id\": 1}]}", "hash_ids");
    reads_ids(100000);
}

static void B135_fields_that_do_not_agree_have_an_answer(void **state)
{
    (void)state;
    reads("{\"hash_ids\": [1]}\n{\"hash_ids\": [2]}\n", "0/1 0/2"); /* no time: the order of the file */
    reads("{\"timestamp\": 0, \"hash_ids\": [1]}\n", "0/1");         /* no lengths */
    refuses(A "\n{\"hash_ids\": [1]}\n", ":2", "no timestamp");     /* some without: no order */
    refuses("{\"timestamp\": 1, \"input_length\": 5}\n", ":1", "");
    reads("{\"timestamp\": 2, \"hash_ids\": [2]}\n{\"timestamp\": 1, \"hash_ids\": [1]}\n", "0/1 0/2"); /* sorted */
    reads("{\"timestamp\": 1, \"hash_ids\": [2]}\n{\"timestamp\": 1, \"hash_ids\": [1]}\n", "0/2 0/1");
    reads("{\"timestamp\": -1.5, \"hash_ids\": [2]}\n{\"timestamp\": -2, \"hash_ids\": [1]}\n", "0/1 0/2");
    reads("{\"timestamp\": 9e17, \"hash_ids\": [2]}\n{\"timestamp\": 0.25, \"hash_ids\": [1]}\n", "0/1 0/2");
    refuses("{\"timestamp\": 1e999, \"hash_ids\": [1]}\n", ":1", "out of range");
    reads("{\"timestamp\": 0, \"input_length\": 0, \"output_length\": 0, \"hash_ids\": [1, 2]}\n", "0/1,2");
    reads("{\"timestamp\": 0, \"input_length\": 7, \"hash_ids\": [], \"type\": \"x\", \"more\": {\"y\": []}}\n", "0/");
    refuses("{\"conv\":\"c\",\"requests\":0,\"block_size\":0}\n", ":1", "not 1 to 65535");
}

/* Cut off at each byte of the last line: it is not there, or whole, or named. */
static void the_end_may_be_anywhere(void)
{
    static const char text[] = A "\n" B "\n";
    const size_t first = strlen(A "\n");
    for (size_t end = first; end <= strlen(text); end++) {
        if (end == first)
            reads_bytes(text, end, "0/0,1,2");
        else if (end >= first + strlen(B))
            reads_bytes(text, end, AB);
        else
            refuses_bytes(text, end, ":2", "ends where");
    }
}

static void B136_what_a_killed_writer_leaves_is_named(void **state)
{
    (void)state;
    enum { HOLE = 1 << 20, DEPTH = 100000 };
    char *text = cli_alloc(1, HOLE + 1024);
    size_t used = strlen(A "\n");
    the_end_may_be_anywhere();
    memcpy(text, A "\n", used); /* a hole between records, and one within */
    memcpy(text + used + HOLE, B "\n", strlen(B "\n"));
    refuses_bytes(text, used + HOLE + strlen(B "\n"), ":2", "0x00");
    used = (size_t)sprintf(text, "{\"hash_ids\": [1");
    memset(text + used, 0, HOLE);
    memcpy(text + used + HOLE, "]}\n", 3);
    refuses_bytes(text, used + HOLE + 3, ":1", "0x00");
    for (size_t i = 0; i < 3; i++) {
        static const char *const before[] = {"", "{\"hash_ids\": ", A "\n{\"timestamp\": 1, \"x\": "};
        used = (size_t)sprintf(text, "%s", before[i]);
        memset(text + used, '[', DEPTH);
        refuses_bytes(text, used + DEPTH, i == 2 ? ":2" : ":1", "");
    }
    refuses("{\"hash_ids\": [1], \"\xff\xfe\": 1}\n", ":1", "not UTF-8");
    refuses("{\"hash_ids\": [1], \"session_id\": \"\xed\xa0\x80\"}\n", ":1", "not UTF-8");
    refuses(A "\n\xff\n", ":2", "where");
    free(text); /* a line without end: a_line_without_end_is_refused() */
}

/* ---- Ids ---- */

static void many_ids_are_expanded_in_order(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    cli_trace trace;
    uint64_t want[COUNT], got[COUNT];
    uint64_t random = 5;
    char *text = cli_alloc(COUNT, 24);
    size_t used = (size_t)sprintf(text, "{\"hash_ids\":[");
    for (int i = 0; i < COUNT; i++) {
        /* Runs, jumps and repetitions. */
        uint64_t dice = cli_random(&random) % 4;
        want[i] = i == 0 || dice == 0 ? cli_random(&random) : dice == 1 ? want[i - 1] : want[i - 1] + 1;
        used += (size_t)sprintf(text + used, i == 0 ? "%llu" : ",%llu", (unsigned long long)want[i]);
    }
    used += (size_t)sprintf(text + used, "]}");
    assert_int_equal(load_bytes(&trace, text, used), 0);
    assert_int_equal(trace.requests[0].count, COUNT);
    cli_trace_expand(&trace, 0, got);
    assert_memory_equal(want, got, sizeof want);
    cli_trace_free(&trace);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unclean_files_mean_what_the_clean_one_means),
        cmocka_unit_test(lines_without_any_time_keep_their_order),
        cmocka_unit_test(equal_times_keep_their_order),
        cmocka_unit_test(times_are_compared_exactly),
        cmocka_unit_test(ids_are_exact_to_64_bits),
        cmocka_unit_test(tenants_are_numbered_in_order_of_time),
        cmocka_unit_test(compact_requests_keep_from_their_own_agent),
        cmocka_unit_test(raw_and_compact_forms_expand_alike),
        cmocka_unit_test(conversations_start_at_seeded_times),
        cmocka_unit_test(broken_lines_are_named),
        cmocka_unit_test(broken_conversations_are_named),
        cmocka_unit_test(what_is_no_trace_is_refused),
        cmocka_unit_test(a_line_without_end_is_refused),
        cmocka_unit_test(many_ids_are_expanded_in_order),
        cmocka_unit_test(B028_lines_without_a_record_cost_nothing),
        cmocka_unit_test(B029_a_malformed_line_is_named),
        cmocka_unit_test(B135_fields_that_do_not_agree_have_an_answer),
        cmocka_unit_test(B136_what_a_killed_writer_leaves_is_named),
    };
    int file = mkstemp(path);
    if (file < 0) {
        perror(path);
        return 1;
    }
    (void)close(file);
    int failed = cmocka_run_group_tests_name("trace", tests, NULL, NULL);
    (void)unlink(path);
    return failed;
}
