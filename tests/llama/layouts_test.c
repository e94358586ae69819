/* SPDX-License-Identifier: Apache-2.0 */
/* Which contexts share blocks: all forms of a cache, whole sequences and scratch ids, and layouts that nobody knows. */
#include "fixture.h"

#include <sys/wait.h>
#include <unistd.h>

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

/* ---- Known layouts ---- */

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

/* ---- Unknown layouts ---- */

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
    if (kvo_open("dram:24M", NULL, &store, NULL) != KVO_OK || try_open(context, 0, NULL, NULL, &kv) != KVO_OK ||
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
        cmocka_unit_test(builds_are_told_apart_to_the_last_byte),
        cmocka_unit_test(a_program_with_the_engine_in_it_is_its_build),
        cmocka_unit_test(an_unknown_layout_of_an_unknown_model_is_refused),
        cmocka_unit_test(an_unknown_layout_is_kept_as_it_is),
    };

    return cmocka_run_group_tests(tests, open_store, close_store);
}
