/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The adapter with an engine whose answers depend on every cell (fake.h): all forms, whole sequences and scratch ids,
 * a sliding window, layouts that nobody knows, and random work whose every answer is compared with one computed
 * without a cache. No weights, so it also runs under the sanitizers.
 */
#include "test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake.h"

enum { TOKENS_MAX = 1200, BLOCK = 16 };

static char directory[64];
static kvo_store *store;
static int32_t tokens[TOKENS_MAX];

static const fake_options dense = {.sequences = 2, .cells = TOKENS_MAX, .batch = 64, .rotation = true, .type = 1};
static const fake_options windowed = {.sequences = 2, .cells = TOKENS_MAX, .window = 64, .batch = 32, .rotation = true,
                                      .type = 1};

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static int open_store(void **state)
{
    char tiers[128];
    kvo_error error = {""};

    (void)state;
    strcpy(directory, "/tmp/kvonce-adapter.XXXXXX");
    if (mkdtemp(directory) == NULL)
        return -1;
    snprintf(tiers, sizeof tiers, "dram:24M,disk:%s/store:48M", directory);
    if (kvo_open(tiers, NULL, &store, &error) != KVO_OK) {
        print_error("%s\n", error.text);
        return -1;
    }
    uint64_t seed = 5;
    for (int i = 0; i < TOKENS_MAX; i++)
        tokens[i] = (int32_t)(next(&seed) % 1000);
    return 0;
}

static int close_store(void **state)
{
    char command[128];

    (void)state;
    kvo_close(store, KVO_FOREVER);
    snprintf(command, sizeof command, "rm -rf %s", directory);
    return system(command);
}

static uint8_t model = 1;

static kvo_llama *attach_with(struct llama_context *context, uint32_t stride, const char *build)
{
    const kvo_llama_functions functions = fake_functions();
    uint8_t identity[KVO_LLAMA_MODEL_BYTES] = {model};
    kvo_llama_options options = KVO_LLAMA_OPTIONS_INIT;
    kvo_llama *kv = NULL;

    options.model = identity;
    options.block_tokens = BLOCK;
    options.window_stride_tokens = stride;
    options.build = build;
    assert_int_equal(kvo_llama_open(store, context, &functions, &options, &kv, NULL), KVO_OK);
    return kv;
}

static kvo_llama *attach(struct llama_context *context)
{
    return attach_with(context, 0, "a build");
}

static void detach(kvo_llama *kv, struct llama_context *context)
{
    assert_int_equal(kvo_llama_close(kv, KVO_FOREVER), KVO_OK);
    fake_close(context);
}

static size_t restore(kvo_llama *kv, int32_t sequence, const int32_t *prompt, size_t count, int *why)
{
    size_t have = 1;

    assert_int_equal(kvo_llama_restore(kv, sequence, prompt, count, &have, why), KVO_OK);
    assert_int_equal(have % BLOCK, 0);
    assert_true(have < count || count == 0);
    return have;
}

/* In batches, saving after each. */
static size_t compute(kvo_llama *kv, struct llama_context *context, int32_t sequence, const int32_t *prompt,
                      size_t from, size_t to, uint32_t batch, int *why)
{
    size_t stored = 0;

    while (from < to) {
        const size_t end = to - from > batch ? from + batch : to;
        assert_true(fake_decode(context, sequence, prompt, from, end));
        assert_int_equal(kvo_llama_save(kv, sequence, prompt, end, &stored, why), KVO_OK);
        from = end;
    }
    return stored;
}

static kvo_llama_stat stat_of(kvo_llama *kv)
{
    kvo_llama_stat stat = KVO_LLAMA_STAT_INIT;

    assert_int_equal(kvo_llama_stat_get(kv, &stat), KVO_OK);
    return stat;
}

/* Saves in one context, restores in another: the same answer as without a cache. */
static void round_trip(const fake_options *from, const fake_options *to, size_t count, size_t wanted)
{
    struct llama_context *context = fake_open(from);
    kvo_llama *kv = attach(context);
    int why = -1;

    assert_int_equal(compute(kv, context, 0, tokens, 0, count, from->batch, &why), count - count % BLOCK);
    assert_int_equal(why, KVO_LLAMA_COMPLETE);
    assert_true(fake_answer(context) == fake_right_answer(from, tokens, count));
    detach(kv, context);

    context = fake_open(to);
    kv = attach(context);
    assert_int_equal(restore(kv, 0, tokens, count, &why), wanted);
    assert_true(fake_decode(context, 0, tokens, wanted, count));
    assert_true(fake_answer(context) == fake_right_answer(to, tokens, count));
    detach(kv, context);
}

/* ---- Dense ---------------------------------------------------------------------- */

static void blocks_come_back_in_every_form(void **state)
{
    (void)state;
    for (int form = 0; form < 8; form++)
        for (int sequences = 1; sequences <= 3; sequences++) {
            fake_options options = dense;

            model++;
            options.rotation = (form & 1) != 0;
            options.transposed = (form & 2) != 0;
            options.type = (form & 4) != 0 ? 8 : 1;
            options.sequences = (uint32_t)sequences;
            round_trip(&options, &options, 200, 192);
            round_trip(&options, &options, 193, 192);
        }
}

static void builds_share_what_is_not_quantised(void **state)
{
    fake_options older = dense, other = dense;

    (void)state;
    older.rotation = false;
    other.sequences = 1;
    other.cells = 333;
    for (int i = 0; i < 2; i++) {
        model++;
        round_trip(&dense, &older, 200, 192);
        round_trip(&older, &other, 210, 208);
        round_trip(&other, &dense, 230, 224);
    }
    model++;
    older.type = other.type = 8;
    other.rotation = true;
    round_trip(&older, &other, 200, 0); /* rotated or not: not known */
    round_trip(&other, &older, 200, 192); /* which saved its own before */
}

/* Of a build that does not say whether quantised rows are rotated, only its own are of use. */
static void what_is_not_told_is_bound_to_the_build(void **state)
{
    fake_options older = dense;
    struct llama_context *context;
    kvo_llama *kv;
    int why = -1;

    (void)state;
    model++;
    older.type = 8;
    older.rotation = false;
    round_trip(&older, &older, 200, 192);
    context = fake_open(&older);
    kv = attach_with(context, 0, "another build");
    assert_int_equal(restore(kv, 0, tokens, 200, &why), 0);
    assert_int_equal(compute(kv, context, 0, tokens, 0, 200, 64, &why), 192);
    assert_int_equal(stat_of(kv).existing_blocks, 0);
    detach(kv, context);
}

static void layouts_are_kept_apart(void **state)
{
    fake_options transposed = dense, quantised = dense;

    (void)state;
    model++;
    transposed.transposed = true;
    quantised.type = 8;
    round_trip(&dense, &transposed, 200, 0);
    round_trip(&transposed, &quantised, 200, 0);
    round_trip(&quantised, &dense, 200, 192);
}

/* Neither shows in a layout, and both change K and V. */
static void windows_and_lengths_are_kept_apart(void **state)
{
    fake_options windows = windowed, small = dense, large = dense;
    int why = -1;

    (void)state;
    model++;
    for (windows.window = 64; windows.window >= 48; windows.window -= 16) {
        struct llama_context *context = fake_open(&windows);
        kvo_llama *kv = attach_with(context, 1, NULL);

        assert_int_equal(restore(kv, 0, tokens, 200, &why), 0);
        assert_int_equal(compute(kv, context, 0, tokens, 0, 200, 32, &why), 192);
        assert_true(fake_answer(context) == fake_right_answer(&windows, tokens, 200));
        assert_int_equal(restore(kv, 0, tokens, 200, &why), 192);
        detach(kv, context);
    }
    model++;
    small.original = large.original = 400;
    small.cells = 300;
    round_trip(&small, &large, 200, 0);
    round_trip(&large, &small, 210, 192);
    small.cells = 400; /* not beyond */
    round_trip(&small, &small, 250, 240);
}

static void nothing_is_exported_twice(void **state)
{
    struct llama_context *context = fake_open(&dense);
    kvo_llama *kv;
    int why = -1;
    size_t stored;

    (void)state;
    model++;
    kv = attach(context);
    compute(kv, context, 0, tokens, 0, 200, 7, &why);
    assert_int_equal(stat_of(kv).saved_blocks, 12);
    assert_int_equal(stat_of(kv).saves, 12); /* calls between full blocks do nothing */
    assert_int_equal(kvo_llama_save(kv, 0, tokens, 200, &stored, &why), KVO_OK);
    assert_int_equal(stored, 192);
    assert_int_equal(stat_of(kv).saves, 12);

    /* Another prompt with the same beginning. */
    int32_t other[200];
    memcpy(other, tokens, sizeof other);
    other[100]++;
    assert_int_equal(restore(kv, 0, other, 200, &why), 96);
    assert_int_equal(why, KVO_LLAMA_MISS);
    compute(kv, context, 0, other, 96, 200, 64, &why);
    assert_int_equal(stat_of(kv).saved_blocks, 18);
    assert_true(fake_answer(context) == fake_right_answer(&dense, other, 200));
    detach(kv, context);
}

/* Without a restore that would tell what is stored. */
static void prompts_are_saved_in_turns(void **state)
{
    fake_options three = dense;
    struct llama_context *context;
    kvo_llama *kv;
    int32_t other[200];
    int why = -1;
    size_t stored;

    (void)state;
    model++;
    three.sequences = 3;
    context = fake_open(&three);
    kv = attach(context);
    memcpy(other, tokens, sizeof other);
    other[40]++;
    for (size_t at = 0; at < 200; at += 40)
        for (int32_t sequence = 0; sequence < 2; sequence++) {
            const int32_t *prompt = sequence == 0 ? tokens : other;
            assert_true(fake_decode(context, sequence, prompt, at, at + 40));
            assert_int_equal(kvo_llama_save(kv, sequence, prompt, at + 40, &stored, &why), KVO_OK);
            assert_int_equal(stored, (at + 40) / BLOCK * BLOCK);
        }
    assert_int_equal(stat_of(kv).saved_blocks, 12 + 12 - 2);
    for (int32_t sequence = 0; sequence < 2; sequence++) {
        const int32_t *prompt = sequence == 0 ? tokens : other;
        assert_int_equal(restore(kv, sequence, prompt, 200, &why), 192);
        assert_true(fake_decode(context, sequence, prompt, 192, 200));
        assert_true(fake_answer(context) == fake_right_answer(&three, prompt, 200));
    }
    detach(kv, context);
}

static void wrong_calls_are_refused(void **state)
{
    struct llama_context *context = fake_open(&dense);
    kvo_llama *kv, *none = NULL;
    kvo_llama_functions functions = fake_functions();
    uint8_t identity[32] = {0};
    kvo_llama_options options = KVO_LLAMA_OPTIONS_INIT;
    fake_options other = dense;
    kvo_error error;
    size_t have;
    int why = -1;

    (void)state;
    model++;
    kv = attach(context);
    assert_int_equal(kvo_llama_restore(kv, 1, tokens, 10, &have, NULL), KVO_E_RANGE); /* the adapter's own */
    assert_int_equal(kvo_llama_restore(kv, -1, tokens, 10, &have, NULL), KVO_E_RANGE);
    assert_int_equal(kvo_llama_save(kv, 2, tokens, 10, &have, NULL), KVO_E_RANGE);
    assert_int_equal(kvo_llama_restore(kv, 0, NULL, 10, &have, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_llama_restore(kv, 0, tokens, 10, NULL, NULL), KVO_E_ARGUMENT);
    assert_int_equal(restore(kv, 0, tokens, 0, &why), 0);
    assert_true(fake_decode(context, 0, tokens, 0, 100));
    for (size_t count = 0; count < 120; count++) /* other tokens than the sequence holds, as far as that shows */
        if (count != 100) {
            assert_int_equal(kvo_llama_save(kv, 0, tokens, count, &have, &why), KVO_OK);
            assert_int_equal(have, 0);
            assert_int_equal(why, count < BLOCK ? KVO_LLAMA_COMPLETE : KVO_LLAMA_POSITIONS);
        }
    detach(kv, context);

    options.model = identity;
    other.hybrid = true;
    context = fake_open(&other);
    assert_int_equal(kvo_llama_open(store, context, &functions, &options, &none, &error), KVO_E_UNSUPPORTED);
    assert_non_null(strstr(error.text, "hybrid"));
    fake_close(context);
    other = dense;
    other.apart = true;
    context = fake_open(&other);
    assert_int_equal(kvo_llama_open(store, context, &functions, &options, &none, &error), KVO_E_UNSUPPORTED);
    assert_non_null(strstr(error.text, "kv_unified"));
    functions.memory_seq_cp = NULL;
    assert_int_equal(kvo_llama_open(store, context, &functions, &options, &none, &error), KVO_E_UNSUPPORTED);
    functions = fake_functions();
    options.block_tokens = 4097;
    assert_int_equal(kvo_llama_open(store, context, &functions, &options, &none, &error), KVO_E_RANGE);
    options.model = NULL;
    assert_int_equal(kvo_llama_open(store, context, &functions, &options, &none, &error), KVO_E_ARGUMENT);
    assert_null(none);
    fake_close(context);
    assert_int_equal(kvo_llama_bind(NULL, &functions, &error), KVO_E_UNSUPPORTED); /* this program has none */
    assert_non_null(strstr(error.text, "llama_get_memory"));
}

static int try_open(struct llama_context *context, const char *settings, const char *build, kvo_llama **kv)
{
    const kvo_llama_functions functions = fake_functions();
    uint8_t identity[KVO_LLAMA_MODEL_BYTES] = {model};
    kvo_llama_options options = KVO_LLAMA_OPTIONS_INIT;

    options.model = identity;
    options.block_tokens = BLOCK;
    options.settings = settings;
    options.build = build;
    return kvo_llama_open(store, context, &functions, &options, kv, NULL);
}

static void texts_that_no_block_can_be_stored_under_are_refused(void **state)
{
    struct llama_context *context = fake_open(&dense);
    char longest[242];
    kvo_llama *kv;

    (void)state;
    memset(longest, 'b', sizeof longest);
    longest[241] = 0;
    assert_int_equal(try_open(context, NULL, longest, &kv), KVO_E_RANGE);
    longest[240] = 0;
    assert_int_equal(try_open(context, NULL, longest, &kv), KVO_OK);
    assert_int_equal(kvo_llama_close(kv, KVO_FOREVER), KVO_OK);
    assert_int_equal(try_open(context, "lora \xff", NULL, &kv), KVO_E_RANGE);
    assert_int_equal(try_open(context, NULL, "\xc0\x80", &kv), KVO_E_RANGE);
    fake_close(context);
}

/* Somebody's tokens there would be wiped without a word. */
static void the_last_id_must_be_free(void **state)
{
    struct llama_context *context = fake_open(&dense);
    const kvo_llama_functions functions = fake_functions();
    kvo_llama *kv;

    (void)state;
    assert_true(fake_decode(context, 1, tokens, 0, 10));
    assert_int_equal(try_open(context, NULL, NULL, &kv), KVO_E_STATE);
    assert_int_equal(fake_used(context), 10);
    assert_true(functions.memory_seq_rm(functions.get_memory(context), 1, -1, -1));
    assert_int_equal(try_open(context, NULL, NULL, &kv), KVO_OK);
    detach(kv, context);
}

/* ---- Unknown layouts --------------------------------------------------------------- */

static void builds_are_told_apart_to_the_last_byte(void **state)
{
    fake_options scrambled = dense;
    struct llama_context *context;
    char build[241];
    kvo_llama *kv;
    int why = -1;

    (void)state;
    model++;
    scrambled.scrambled = true;
    memset(build, 'b', sizeof build);
    build[240] = 0;
    for (int last = 'a'; last <= 'b'; last++) {
        build[239] = (char)last;
        context = fake_open(&scrambled);
        kv = attach_with(context, 0, build);
        assert_int_equal(restore(kv, 0, tokens, 100, &why), 0);
        assert_int_equal(compute(kv, context, 0, tokens, 0, 100, 64, &why), 96);
        assert_int_equal(restore(kv, 0, tokens, 100, &why), 96);
        detach(kv, context);
    }
}

/* This program started once more under another name: 0 if it was its own file that was read. */
static int under_another_name(void)
{
    fake_options scrambled = dense;
    size_t stored = 0;
    kvo_llama *kv;

    scrambled.scrambled = true;
    struct llama_context *context = fake_open(&scrambled);
    if (kvo_open("dram:24M", NULL, &store, NULL) != KVO_OK || try_open(context, NULL, NULL, &kv) != KVO_OK ||
        !fake_decode(context, 0, tokens, 0, 100) || kvo_llama_save(kv, 0, tokens, 100, &stored, NULL) != KVO_OK)
        return 1;
    (void)kvo_llama_close(kv, KVO_FOREVER);
    (void)kvo_close(store, KVO_FOREVER);
    fake_close(context);
    return stored == 96 ? 0 : 2;
}

static void a_program_with_the_engine_in_it_is_its_build(void **state)
{
    char *const arguments[] = {(char[]){"no such file"}, (char[]){"under another name"}, NULL};
    int status = -1;
    const pid_t child = fork();

    (void)state;
    if (child == 0) {
        execv("/proc/self/exe", arguments);
        _exit(3);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
}

/* It may have a window, whose missing cells nothing would show. */
static void an_unknown_layout_of_an_unknown_model_is_refused(void **state)
{
    fake_options scrambled = windowed;

    (void)state;
    scrambled.scrambled = true;
    for (int missing = 0; missing < 4; missing++) {
        struct llama_context *context = fake_open(&scrambled);
        kvo_llama_functions functions = fake_functions();
        uint8_t identity[KVO_LLAMA_MODEL_BYTES] = {++model};
        kvo_llama_options options = KVO_LLAMA_OPTIONS_INIT;
        kvo_llama *kv;
        int why = -1;

        functions.get_model = missing == 0 ? NULL : functions.get_model;
        functions.model_n_swa = missing == 1 ? NULL : functions.model_n_swa;
        functions.model_is_hybrid = missing == 2 ? NULL : functions.model_is_hybrid;
        options.model = identity;
        options.block_tokens = BLOCK;
        options.build = "a build";
        assert_int_equal(kvo_llama_open(store, context, &functions, &options, &kv, NULL), KVO_OK);
        assert_int_equal(compute(kv, context, 0, tokens, 0, 300, 32, &why), 0);
        assert_int_equal(why, KVO_LLAMA_UNKNOWN);
        assert_int_equal(restore(kv, 0, tokens, 300, &why), 0);
        detach(kv, context);
    }
}

static void an_unknown_layout_is_kept_as_it_is(void **state)
{
    fake_options scrambled = dense, other;
    struct llama_context *context;
    kvo_llama *kv;
    int why = -1;

    (void)state;
    model++;
    scrambled.scrambled = true;
    round_trip(&scrambled, &scrambled, 200, 192);
    other = scrambled;
    other.sequences = 3;
    round_trip(&scrambled, &other, 210, 0);

    context = fake_open(&scrambled);
    kv = attach_with(context, 0, "another build");
    assert_int_equal(restore(kv, 0, tokens, 200, &why), 0);
    assert_int_equal(why, KVO_LLAMA_MISS);
    detach(kv, context);

    other.sequences = 1; /* cannot be cut either */
    context = fake_open(&other);
    kv = attach(context);
    assert_int_equal(compute(kv, context, 0, tokens, 0, 200, 64, &why), 0);
    assert_int_equal(why, KVO_LLAMA_UNKNOWN);
    assert_int_equal(restore(kv, 0, tokens, 200, &why), 0);
    assert_true(fake_decode(context, 0, tokens, 0, 200));
    assert_true(fake_answer(context) == fake_right_answer(&other, tokens, 200));
    detach(kv, context);
}

/* ---- A sliding window ----------------------------------------------------------------- */

static void a_window_comes_back_at_any_block(void **state)
{
    (void)state;
    for (uint32_t sequences = 1; sequences <= 2; sequences++) {
        fake_options options = windowed;
        struct llama_context *context = fake_open(&options);
        kvo_llama *kv;
        int why = -1;

        model++;
        options.sequences = sequences;
        kv = attach_with(context, 1, NULL);
        assert_int_equal(compute(kv, context, 0, tokens, 0, 500, 32, &why), 496);
        detach(kv, context);
        for (size_t count = 20; count < 500; count += 37) {
            const size_t wanted = (count - 1) / BLOCK * BLOCK;

            context = fake_open(&options);
            kv = attach_with(context, 1, NULL);
            assert_int_equal(restore(kv, 0, tokens, count, &why), wanted);
            assert_true(fake_decode(context, 0, tokens, wanted, count));
            assert_true(fake_answer(context) == fake_right_answer(&options, tokens, count));
            detach(kv, context);
        }
    }
}

/* 496 tokens, a window of 64, ends every 256: the window's cells of 64 before 256, and of 64 before the end. */
static void few_window_cells_are_kept(void **state)
{
    struct llama_context *context = fake_open(&windowed);
    kvo_llama *kv;
    int32_t other[500];
    int why = -1;
    size_t stored;

    (void)state;
    model++;
    kv = attach(context);
    compute(kv, context, 0, tokens, 0, 500, 32, &why);
    assert_int_equal(kvo_llama_save_end(kv, 0, tokens, 500, &stored, &why), KVO_OK);
    assert_int_equal(stored, 496);
    assert_int_equal(why, KVO_LLAMA_COMPLETE);
    kvo_llama_stat stat = stat_of(kv);
    const uint64_t window = stat.saved_blocks - stat.saved_tokens / BLOCK;
    printf("window cells of %u of %u tokens kept\n", (unsigned)window * BLOCK, (unsigned)stat.saved_tokens);
    assert_int_equal(window, 64 / BLOCK + 64 / BLOCK);

    assert_int_equal(restore(kv, 0, tokens, 500, &why), 496); /* the same prompt */
    assert_int_equal(why, KVO_LLAMA_COMPLETE);
    assert_true(fake_decode(context, 0, tokens, 496, 500));
    assert_true(fake_answer(context) == fake_right_answer(&windowed, tokens, 500));

    /* One that parts from it at 400: from 256 the first time, and from 400 for the next that does the same. */
    memcpy(other, tokens, sizeof other);
    other[405]++;
    for (int time = 0; time < 3; time++) {
        const size_t have = restore(kv, 0, other, 500, &why);

        assert_int_equal(have, time == 0 ? 256 : time == 1 ? 400 : 400);
        assert_int_equal(why, time == 0 ? KVO_LLAMA_WINDOW : KVO_LLAMA_MISS);
        compute(kv, context, 0, other, have, 500, 32, &why);
        assert_true(fake_answer(context) == fake_right_answer(&windowed, other, 500));
        other[410]++;
    }
    detach(kv, context);
}

/* What has left the window is not there to be saved. */
static void a_late_save_keeps_no_wrong_window(void **state)
{
    struct llama_context *context = fake_open(&windowed);
    kvo_llama *kv;
    size_t stored, have;
    int why = -1;

    (void)state;
    model++;
    kv = attach_with(context, 1, NULL);
    assert_true(fake_decode(context, 0, tokens, 0, 400));
    assert_int_equal(kvo_llama_save(kv, 0, tokens, 400, &stored, &why), KVO_OK);
    assert_int_equal(why, KVO_LLAMA_WINDOW);
    have = restore(kv, 0, tokens, 300, &why);
    assert_true(fake_decode(context, 0, tokens, have, 300));
    assert_true(fake_answer(context) == fake_right_answer(&windowed, tokens, 300));
    detach(kv, context);
}

/* ---- What cannot be stored ------------------------------------------------------------------ */

/* A sequence that lost its first tokens tells nothing of the layout, and spoils nothing for those that have theirs. */
static void a_sequence_without_its_first_block_is_not_learned_from(void **state)
{
    const kvo_llama_functions functions = fake_functions();

    (void)state;
    for (int form = 0; form < 6; form++) {
        fake_options options = form % 3 == 0 ? dense : windowed;
        options.scrambled = form == 3;
        options.sequences = form % 3 == 2 ? 1 : 2;
        struct llama_context *context = fake_open(&options);
        kvo_llama *kv;
        size_t stored;
        int why = -1;

        model++;
        kv = attach(context);
        assert_true(fake_decode(context, 0, tokens, 0, 60));
        assert_true(functions.memory_seq_rm(functions.get_memory(context), 0, -1, form < 3 ? BLOCK : 60));
        if (form >= 3)
            assert_true(fake_decode(context, 0, tokens, 60, 64));
        assert_int_equal(kvo_llama_save(kv, 0, tokens, form < 3 ? 60 : 64, &stored, &why), KVO_OK);
        assert_int_equal(stored, 0);
        assert_int_equal(why, KVO_LLAMA_POSITIONS);
        assert_int_equal(restore(kv, 0, tokens, 100, &why), 0);
        assert_int_equal(compute(kv, context, 0, tokens, 0, 96, 32, &why), 96);
        assert_int_equal(stat_of(kv).form, form == 3 ? KVO_LLAMA_OPAQUE : KVO_LLAMA_ROWS);
        assert_int_equal(kvo_llama_save_end(kv, 0, tokens, 96, &stored, &why), KVO_OK);
        assert_int_equal(restore(kv, 0, tokens, 97, &why), 96);
        detach(kv, context);
    }
}

static unsigned exports;

static size_t counted_get_data(struct llama_context *context, uint8_t *to, size_t bytes, int32_t sequence,
                               uint32_t flags)
{
    exports++;
    return fake_functions().state_seq_get_data_ext(context, to, bytes, sequence, flags);
}

/* Said once; after that a save costs nothing. */
static void what_a_store_has_no_space_for_is_not_tried_again(void **state)
{
    kvo_llama_functions functions = fake_functions();
    kvo_llama_options options = KVO_LLAMA_OPTIONS_INIT;
    uint8_t identity[KVO_LLAMA_MODEL_BYTES] = {++model};
    struct llama_context *context = fake_open(&dense);
    kvo_store *full = NULL;
    kvo_llama *kv;
    size_t stored;
    int why = -1;

    (void)state;
    assert_int_equal(kvo_open("dram:4M", NULL, &full, NULL), KVO_OK);
    for (unsigned i = 0; i < KVO_SPACES_MAX; i++) {
        kvo_space_config other = KVO_SPACE_CONFIG_INIT;
        char label[16];
        kvo_space space;

        snprintf(label, sizeof label, "other-%u", i);
        other.label = label;
        other.block_bytes_max = 1;
        assert_int_equal(kvo_space_open(full, &other, &space, NULL), KVO_OK);
    }
    functions.state_seq_get_data_ext = counted_get_data;
    options.model = identity;
    options.block_tokens = BLOCK;
    assert_int_equal(kvo_llama_open(full, context, &functions, &options, &kv, NULL), KVO_OK);
    assert_true(fake_decode(context, 0, tokens, 0, BLOCK));
    for (size_t count = BLOCK; count < 10 * BLOCK; count++) {
        assert_int_equal(kvo_llama_save(kv, 0, tokens, count, &stored, &why), KVO_OK);
        assert_int_equal(stored, 0);
        assert_int_equal(why, KVO_LLAMA_NO_ROOM);
        assert_true(fake_decode(context, 0, tokens, count, count + 1));
    }
    assert_in_range(exports, 1, 2);
    detach(kv, context);
    assert_int_equal(kvo_close(full, KVO_FOREVER), KVO_OK);
}

/* ---- Calls that fail ----------------------------------------------------------------------------- */

/* The n-th call of a kind refuses, or what it imports has another byte: in a row, in a number, anywhere. */
enum { REFUSED_IMPORT, CHANGED_IMPORT, REFUSED_EXPORT, NO_SIZE, CALL_KINDS };
static struct {
    int kind;
    unsigned at, seen;
    size_t byte;
} bad_call;

static bool fails_now(int kind)
{
    return bad_call.kind == kind && ++bad_call.seen == bad_call.at;
}

static size_t failing_set(struct llama_context *context, const uint8_t *from, size_t bytes, int32_t sequence,
                          uint32_t flags)
{
    const kvo_llama_functions real = fake_functions();
    uint8_t *copy;

    if (fails_now(REFUSED_IMPORT)) {
        (void)real.memory_seq_rm(real.get_memory(context), sequence, -1, -1);
        return 0;
    }
    if (!fails_now(CHANGED_IMPORT))
        return real.state_seq_set_data_ext(context, from, bytes, sequence, flags);
    copy = malloc(bytes);
    assert_non_null(copy);
    memcpy(copy, from, bytes);
    copy[bad_call.byte % bytes] ^= 1;
    const size_t used = real.state_seq_set_data_ext(context, copy, bytes, sequence, flags);

    free(copy);
    return used;
}

static size_t failing_get(struct llama_context *context, uint8_t *to, size_t bytes, int32_t sequence, uint32_t flags)
{
    return fails_now(REFUSED_EXPORT) ? 0 : fake_functions().state_seq_get_data_ext(context, to, bytes, sequence, flags);
}

static size_t failing_size(struct llama_context *context, int32_t sequence, uint32_t flags)
{
    return fails_now(NO_SIZE) ? 0 : fake_functions().state_seq_get_size_ext(context, sequence, flags);
}

/* Restored or not, saved or not: the answer is right, and without the fault all is as it should be. False: the call
   was not reached. */
static bool one_bad_call(const fake_options *options, int kind, unsigned at, size_t byte)
{
    struct llama_context *context = fake_open(options);
    kvo_llama_functions functions = fake_functions();
    uint8_t identity[KVO_LLAMA_MODEL_BYTES] = {model};
    kvo_llama_options how = KVO_LLAMA_OPTIONS_INIT;
    kvo_llama *kv = NULL;
    int why = -1;

    functions.state_seq_set_data_ext = failing_set;
    functions.state_seq_get_data_ext = failing_get;
    functions.state_seq_get_size_ext = failing_size;
    how.model = identity;
    how.block_tokens = BLOCK;
    how.window_stride_tokens = 1;
    how.build = "a build";
    assert_int_equal(kvo_llama_open(store, context, &functions, &how, &kv, NULL), KVO_OK);
    bad_call.kind = kind;
    bad_call.at = at;
    bad_call.seen = 0;
    bad_call.byte = byte;
    const size_t have = restore(kv, 0, tokens, 200, &why);

    compute(kv, context, 0, tokens, have, 250, 32, &why);
    assert_true(fake_answer(context) == fake_right_answer(options, tokens, 250));
    bad_call.kind = -1;
    assert_int_equal(restore(kv, 0, tokens, 200, &why), 192);
    compute(kv, context, 0, tokens, 192, 250, 32, &why);
    assert_true(fake_answer(context) == fake_right_answer(options, tokens, 250));
    detach(kv, context);
    return bad_call.seen >= at;
}

static void any_call_of_the_engine_may_fail(void **state)
{
    fake_options kinds[5] = {dense, dense, windowed, windowed, dense};
    unsigned lives = 0;

    (void)state;
    kinds[1].sequences = kinds[3].sequences = 1;
    kinds[1].transposed = true;
    kinds[4].scrambled = true;
    for (unsigned i = 0; i < 5; i++) {
        uint64_t seed = i;

        model++;
        assert_false(one_bad_call(&kinds[i], -1, 1, 0)); /* fills the store */
        for (int kind = 0; kind < CALL_KINDS; kind++)
            for (unsigned at = 1; one_bad_call(&kinds[i], kind, at, next(&seed)); at++)
                lives++;
        for (unsigned more = 0; more < 100; more++)
            lives += one_bad_call(&kinds[i], CHANGED_IMPORT, 1 + more % 3, more < 40 ? more : next(&seed));
    }
    printf("%u lives with a call that failed, 0 wrong answers\n", lives);
}

/* ---- Threads --------------------------------------------------------------------------------- */

/* cmocka's assertions belong to the main thread: what was wrong is counted here. */
struct sharer {
    pthread_t thread;
    uint64_t seed;
    unsigned answers, wrong;
    size_t restored;
};

static bool one_prompt(kvo_llama *kv, struct llama_context *context, uint64_t *seed, size_t *have)
{
    static const size_t ends[] = {120, 200, 280};
    int32_t prompt[300];
    const size_t count = ends[next(seed) % 3];

    memcpy(prompt, tokens, sizeof prompt);
    prompt[100] += (int32_t)(next(seed) % 3); /* three prompts that part after six blocks */
    if (kvo_llama_restore(kv, 0, prompt, count, have, NULL) != KVO_OK)
        return false;
    for (size_t at = *have; at < count;) {
        const size_t end = at + 50 < count ? at + 50 : count;

        if (!fake_decode(context, 0, prompt, at, end) || kvo_llama_save(kv, 0, prompt, end, NULL, NULL) != KVO_OK)
            return false;
        at = end;
    }
    return fake_answer(context) == fake_right_answer(&dense, prompt, count);
}

static void *share(void *argument)
{
    struct sharer *me = argument;
    const kvo_llama_functions functions = fake_functions();
    const uint8_t identity[KVO_LLAMA_MODEL_BYTES] = {model};
    kvo_llama_options options = KVO_LLAMA_OPTIONS_INIT;

    options.model = identity;
    options.block_tokens = BLOCK;
    for (int life = 0; life < 4; life++) {
        struct llama_context *context = fake_open(&dense);
        kvo_llama *kv = NULL;

        me->wrong += kvo_llama_open(store, context, &functions, &options, &kv, NULL) != KVO_OK;
        for (int i = 0; kv != NULL && i < 8; i++) {
            size_t have = 0;

            me->wrong += !one_prompt(kv, context, &me->seed, &have);
            me->restored += have;
            me->answers++;
        }
        me->wrong += kvo_llama_close(kv, KVO_FOREVER) != KVO_OK;
        fake_close(context);
    }
    return NULL;
}

/* Contexts of their own in threads of their own, over one store. */
static void threads_share_a_store(void **state)
{
    struct sharer sharers[4] = {{.seed = 1}, {.seed = 2}, {.seed = 3}, {.seed = 4}};
    unsigned answers = 0, wrong = 0;
    size_t restored = 0;

    (void)state;
    model++;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&sharers[i].thread, NULL, share, &sharers[i]), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(sharers[i].thread, NULL), 0);
        answers += sharers[i].answers;
        wrong += sharers[i].wrong;
        restored += sharers[i].restored;
    }
    printf("%u answers of four threads over one store, %zu tokens restored, %u wrong\n", answers, restored, wrong);
    assert_int_equal(wrong, 0);
    assert_true(restored > 0);
}

/* ---- Processes ------------------------------------------------------------------------------ */

static void a_forked_child_is_told(void **state)
{
    struct llama_context *context = fake_open(&dense);
    kvo_llama *kv = attach(context);
    size_t have = 1;
    int why = -1, status = -1;

    (void)state;
    model++;
    assert_int_equal(compute(kv, context, 0, tokens, 0, 100, 32, &why), 96);
    const uint32_t used = fake_used(context);
    const pid_t child = fork();

    if (child == 0) {
        const bool told = kvo_llama_restore(kv, 0, tokens, 100, &have, &why) == KVO_E_FORKED && have == 0 &&
                          kvo_llama_save(kv, 0, tokens, 100, &have, &why) == KVO_E_FORKED && have == 0 &&
                          fake_used(context) == used && kvo_llama_close(kv, 0) == KVO_E_FORKED;
        _exit(told ? 0 : 1);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(restore(kv, 0, tokens, 100, &why), 96);
    detach(kv, context);
}

/* ---- The disk ----------------------------------------------------------------------------- */

/* A store of its own, in a folder that the next call opens again. */
static kvo_store *open_apart(const char *name, const char *wrapper)
{
    char tiers[160];
    kvo_store *apart = NULL;
    kvo_error error = {""};

    snprintf(tiers, sizeof tiers, "dram:24M,%sdisk:%s/%s:48M", wrapper, directory, name);
    if (kvo_open(tiers, NULL, &apart, &error) != KVO_OK)
        print_error("%s\n", error.text);
    assert_non_null(apart);
    return apart;
}

static uint64_t injected(kvo_store *in)
{
    kvo_tier_stat stat;

    assert_int_equal(kvo_stat_tier(in, 1, &stat), KVO_OK);
    return stat.injected;
}

/* Neither what was stored before nor what the store knows of layouts makes a save wait for a disk. */
static void a_save_reads_no_disk(void **state)
{
    kvo_store *usual = store;
    int why = -1;

    (void)state;
    model++;
    store = open_apart("reads", "");
    struct llama_context *context = fake_open(&dense);
    kvo_llama *kv = attach(context);
    assert_int_equal(compute(kv, context, 0, tokens, 0, 100, 64, &why), 96);
    detach(kv, context);
    assert_int_equal(kvo_close(store, KVO_FOREVER), KVO_OK);

    store = open_apart("reads", "delay:read=2s+");
    context = fake_open(&dense);
    kv = attach(context);
    assert_int_equal(compute(kv, context, 0, tokens, 0, 200, 64, &why), 192);
    assert_int_equal(stat_of(kv).existing_blocks, 6);
    assert_int_equal(injected(store), 0);
    detach(kv, context);
    assert_int_equal(kvo_close(store, KVO_FOREVER), KVO_OK);

    store = open_apart("reads", ""); /* and what it knows it finds again */
    context = fake_open(&dense);
    kv = attach(context);
    assert_int_equal(restore(kv, 0, tokens, 200, &why), 192);
    detach(kv, context);
    assert_int_equal(kvo_close(store, KVO_FOREVER), KVO_OK);
    store = usual;
}

/* ---- Anything --------------------------------------------------------------------------- */

enum { PROMPTS = 6 };

/* Prompts that part from each other here and there. */
static void make_prompts(int32_t prompts[PROMPTS][TOKENS_MAX], uint64_t *seed)
{
    memcpy(prompts[0], tokens, sizeof tokens);
    for (int i = 1; i < PROMPTS; i++) {
        memcpy(prompts[i], prompts[next(seed) % (unsigned)i], sizeof tokens);
        for (size_t at = next(seed) % 300; at < TOKENS_MAX; at++)
            prompts[i][at] = (int32_t)(next(seed) % 1000);
    }
}

/* One context's life: sequences are restored, computed further in any batches, saved or not, and emptied. */
static void live(const fake_options *options, int32_t prompts[PROMPTS][TOKENS_MAX], uint64_t *seed, uint64_t *answers,
                 uint64_t *restored)
{
    struct llama_context *context = fake_open(options);
    const kvo_llama_functions functions = fake_functions();
    const uint32_t usable = options->sequences == 1 ? 1 : options->sequences - 1;
    kvo_llama *kv = attach_with(context, next(seed) % 3 == 0 ? 1 : 0, "a build");

    for (int step = 0; step < 12; step++) {
        const int32_t sequence = (int32_t)(next(seed) % usable);
        const int32_t *prompt = prompts[next(seed) % PROMPTS];
        const size_t count = 2 + next(seed) % 300;
        int why = -1;
        const size_t have = restore(kv, sequence, prompt, count, &why);

        *restored += have;
        for (size_t at = have; at < count;) {
            const size_t more = 1 + next(seed) % options->batch, end = at + more < count ? at + more : count;
            if (!fake_decode(context, sequence, prompt, at, end))
                break; /* no room: as an engine would, give up this sequence */
            at = end;
            if (next(seed) % 4 > 0)
                assert_int_equal(kvo_llama_save(kv, sequence, prompt, at, NULL, &why), KVO_OK);
            if (at == count) {
                assert_true(fake_answer(context) == fake_right_answer(options, prompt, count));
                ++*answers;
                if (next(seed) % 2 == 0)
                    assert_int_equal(kvo_llama_save_end(kv, sequence, prompt, count, NULL, &why), KVO_OK);
            }
        }
        if (next(seed) % 3 == 0)
            (void)functions.memory_seq_rm(functions.get_memory(context), sequence, -1, -1);
    }
    detach(kv, context);
}

static void random_work_gives_right_answers(void **state)
{
    static int32_t prompts[PROMPTS][TOKENS_MAX];
    const char *given = getenv("KVO_TEST_SEED"), *more = getenv("KVO_TEST_ROUNDS");
    const uint64_t first = given == NULL ? 1 : strtoull(given, NULL, 10);
    const uint64_t rounds = more == NULL ? (TEST_SANITIZES_THREADS ? 15 : 150) : strtoull(more, NULL, 10);
    uint64_t answers = 0, restored = 0;

    (void)state;
    for (uint64_t round = 0; round < rounds; round++) {
        uint64_t seed = first + round;
        fake_options options = next(&seed) % 2 == 0 ? dense : windowed;

        print_message("KVO_TEST_SEED=%llu KVO_TEST_ROUNDS=1\n", (unsigned long long)(first + round));
        if (round % 4 == 0)
            model++;
        make_prompts(prompts, &seed);
        options.rotation = next(&seed) % 2 == 0;
        options.transposed = next(&seed) % 4 == 0;
        options.type = next(&seed) % 4 == 0 ? 8 : 1;
        options.sequences = 1 + (uint32_t)(next(&seed) % 4);
        options.cells = 300 + (uint32_t)(next(&seed) % 600);
        options.original = next(&seed) % 4 == 0 ? 450 : 0;
        live(&options, prompts, &seed, &answers, &restored);
    }
    printf("%llu answers after random work, %llu tokens restored, 0 wrong\n", (unsigned long long)answers,
           (unsigned long long)restored);
    assert_true(restored > 0 || rounds < 10);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "under another name") == 0)
        return under_another_name();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_come_back_in_every_form),
        cmocka_unit_test(builds_share_what_is_not_quantised),
        cmocka_unit_test(what_is_not_told_is_bound_to_the_build),
        cmocka_unit_test(layouts_are_kept_apart),
        cmocka_unit_test(windows_and_lengths_are_kept_apart),
        cmocka_unit_test(nothing_is_exported_twice),
        cmocka_unit_test(prompts_are_saved_in_turns),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(texts_that_no_block_can_be_stored_under_are_refused),
        cmocka_unit_test(the_last_id_must_be_free),
        cmocka_unit_test(builds_are_told_apart_to_the_last_byte),
        cmocka_unit_test(a_program_with_the_engine_in_it_is_its_build),
        cmocka_unit_test(an_unknown_layout_of_an_unknown_model_is_refused),
        cmocka_unit_test(an_unknown_layout_is_kept_as_it_is),
        cmocka_unit_test(a_window_comes_back_at_any_block),
        cmocka_unit_test(few_window_cells_are_kept),
        cmocka_unit_test(a_late_save_keeps_no_wrong_window),
        cmocka_unit_test(a_sequence_without_its_first_block_is_not_learned_from),
        cmocka_unit_test(what_a_store_has_no_space_for_is_not_tried_again),
        cmocka_unit_test(any_call_of_the_engine_may_fail),
        cmocka_unit_test(threads_share_a_store),
        cmocka_unit_test(a_forked_child_is_told),
        cmocka_unit_test(a_save_reads_no_disk),
        cmocka_unit_test(random_work_gives_right_answers),
    };

    return cmocka_run_group_tests(tests, open_store, close_store);
}
