/* SPDX-License-Identifier: Apache-2.0 */
/* The adapter's calls, one by one, with an engine whose answers depend on every cell (fake.h): what a save stores and a
   restore brings back, with one cache and with a sliding window, and what is refused. */
#include "fixture.h"

#include <stdio.h>

/* ---- Dense ---- */

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

/* ---- Calls that are refused ---- */

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

static void texts_that_no_block_can_be_stored_under_are_refused(void **state)
{
    struct llama_context *context = fake_open(&dense);
    char longest[242];
    kvo_llama *kv;

    (void)state;
    memset(longest, 'b', sizeof longest);
    longest[241] = 0;
    assert_int_equal(try_open(context, 0, NULL, longest, &kv), KVO_E_RANGE);
    longest[240] = 0;
    assert_int_equal(try_open(context, 0, NULL, longest, &kv), KVO_OK);
    assert_int_equal(kvo_llama_close(kv, KVO_FOREVER), KVO_OK);
    assert_int_equal(try_open(context, 0, "lora \xff", NULL, &kv), KVO_E_RANGE);
    assert_int_equal(try_open(context, 0, NULL, "\xc0\x80", &kv), KVO_E_RANGE);
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
    assert_int_equal(try_open(context, 0, NULL, NULL, &kv), KVO_E_STATE);
    assert_int_equal(fake_used(context), 10);
    assert_true(functions.memory_seq_rm(functions.get_memory(context), 1, -1, -1));
    assert_int_equal(try_open(context, 0, NULL, NULL, &kv), KVO_OK);
    detach(kv, context);
}

/* ---- A sliding window ---- */

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

/* ---- What cannot be stored ---- */

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_exported_twice),
        cmocka_unit_test(prompts_are_saved_in_turns),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(texts_that_no_block_can_be_stored_under_are_refused),
        cmocka_unit_test(the_last_id_must_be_free),
        cmocka_unit_test(a_window_comes_back_at_any_block),
        cmocka_unit_test(few_window_cells_are_kept),
        cmocka_unit_test(a_late_save_keeps_no_wrong_window),
        cmocka_unit_test(a_sequence_without_its_first_block_is_not_learned_from),
        cmocka_unit_test(what_a_store_has_no_space_for_is_not_tried_again),
    };

    return cmocka_run_group_tests(tests, open_store, close_store);
}
