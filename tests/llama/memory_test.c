/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each of the adapter's own allocations fails once, and all from one on: nothing is stored or restored then that is not
 * right, nothing leaks, and the next call has what it needs. The adapter's sources are compiled with these functions in
 * place of malloc() and its kin; the store and the engine (fake.h) have the real ones.
 */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

#include "fake.h"

enum { TOKENS = 100, FULL = 96, BLOCK = 16 };

static size_t calls, fail_from, fail_to; /* the calls fail_from .. fail_to - 1, from 1 */

static bool fails(void)
{
    calls++;
    return calls >= fail_from && calls < fail_to;
}

void *scarce_malloc(size_t bytes);
void *scarce_calloc(size_t count, size_t bytes);
void *scarce_realloc(void *old, size_t bytes);
char *scarce_strdup(const char *text);

void *scarce_malloc(size_t bytes)
{
    return fails() ? NULL : malloc(bytes);
}

void *scarce_calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : calloc(count, bytes);
}

void *scarce_realloc(void *old, size_t bytes)
{
    return fails() ? NULL : realloc(old, bytes);
}

char *scarce_strdup(const char *text)
{
    return fails() ? NULL : strdup(text);
}

static kvo_store *store;
static int32_t tokens[TOKENS];
static unsigned said;

static void on_log(void *context, const char *line)
{
    (void)context;
    (void)line;
    said++;
}

static kvo_llama *attach(struct llama_context *context, uint8_t model)
{
    const kvo_llama_functions functions = fake_functions();
    uint8_t identity[KVO_LLAMA_MODEL_BYTES] = {model};
    kvo_llama_options options = KVO_LLAMA_OPTIONS_INIT;
    kvo_llama *kv = NULL;

    options.model = identity;
    options.block_tokens = BLOCK;
    options.window_stride_tokens = 1;
    options.build = "a build";
    options.on_log = on_log;
    const int status = kvo_llama_open(store, context, &functions, &options, &kv, NULL);

    assert_true(status == (kv == NULL ? KVO_E_MEMORY : KVO_OK));
    return kv;
}

/* What is said to be stored and restored is counted; the answer is right in any case. */
static void compute(kvo_llama *kv, struct llama_context *context, const fake_options *options, size_t *restored,
                    size_t *stored)
{
    int why = -1;

    *restored = *stored = 0;
    if (kv != NULL) {
        said = 0;
        assert_int_equal(kvo_llama_restore(kv, 0, tokens, TOKENS, restored, &why), KVO_OK);
        assert_true(why != KVO_LLAMA_ENGINE || said > 0);
    }
    for (size_t at = *restored; at < TOKENS;) {
        const size_t end = at + 32 < TOKENS ? at + 32 : TOKENS;

        assert_true(fake_decode(context, 0, tokens, at, end));
        at = end;
        said = 0;
        if (kv != NULL)
            assert_int_equal(kvo_llama_save(kv, 0, tokens, at, stored, &why), KVO_OK);
        assert_true(why != KVO_LLAMA_ENGINE || said > 0);
    }
    assert_true(fake_answer(context) == fake_right_answer(options, tokens, TOKENS));
    if (options->window == 0)
        assert_int_equal(fake_used(context), TOKENS);
}

/* A life with one failure or more, from the opening to the closing; returns how many allocations it made. */
static size_t life(const fake_options *options, uint8_t model, size_t from, size_t to, size_t *restored)
{
    struct llama_context *context = fake_open(options);
    size_t stored, again;

    calls = 0;
    fail_from = from;
    fail_to = to;
    kvo_llama *kv = attach(context, model);

    compute(kv, context, options, restored, &stored);
    const size_t made = calls;

    fail_from = fail_to = 0;
    if (kv != NULL) { /* with memory again, the same adapter does all */
        compute(kv, context, options, &again, &stored);
        assert_int_equal(stored, FULL);
        compute(kv, context, options, &again, &stored);
        assert_int_equal(again, FULL);
    }
    const int status = kvo_llama_close(kv, KVO_FOREVER);

    assert_true(status == KVO_OK || status == KVO_SHORT);
    fake_close(context);
    return made;
}

static void empty_store(void)
{
    const kvo_target all = {.by = KVO_BY_ALL};

    assert_int_equal(kvo_remove(store, &all, KVO_SEALED, KVO_FOREVER, NULL, NULL), KVO_OK);
}

static void any_allocation_may_fail(void **state)
{
    static const fake_options dense = {.sequences = 2, .cells = 300, .batch = 64, .rotation = true, .type = 1};
    fake_options kinds[5];
    unsigned lives = 0;

    (void)state;
    for (unsigned i = 0; i < 5; i++)
        kinds[i] = dense;
    kinds[1].transposed = true;
    kinds[1].sequences = 1;
    kinds[2].scrambled = true;
    kinds[3].window = 64;
    kinds[3].batch = 32;
    kinds[4].rotation = false;
    kinds[4].type = 8;
    for (uint8_t kind = 0; kind < 5; kind++)
        for (int warm = 0; warm < 2; warm++) /* into an empty store, and out of one */
            for (int lasting = 0; lasting < 2; lasting++) {
                size_t n = 1, made, restored;

                do {
                    empty_store();
                    if (warm)
                        life(&kinds[kind], kind, 0, 0, &restored);
                    made = life(&kinds[kind], kind, n, lasting ? SIZE_MAX : n + 1, &restored);
                    assert_true(warm || restored == 0);
                    lives++;
                } while (n++ <= made);
                assert_int_equal(restored, warm ? FULL : 0); /* the last life had no failure */
            }
    printf("%u lives with failing allocations, 0 wrong\n", lives);
}

static void an_identity_needs_memory(void **state)
{
    uint8_t model[KVO_LLAMA_MODEL_BYTES];
    kvo_error error;
    int status = KVO_E_MEMORY;

    (void)state;
    for (size_t n = 1; status != KVO_OK; n++) {
        calls = 0;
        fail_from = n;
        fail_to = n + 1;
        status = kvo_llama_model_identity("/proc/self/exe", NULL, model, &error);
        assert_true(status == KVO_OK || status == KVO_E_MEMORY);
    }
    fail_from = fail_to = 0;
}

static int open_store(void **state)
{
    (void)state;
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = 7 * i % 1000;
    return kvo_open("dram:16M", NULL, &store, NULL);
}

static int close_store(void **state)
{
    (void)state;
    return kvo_close(store, KVO_FOREVER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_allocation_may_fail),
        cmocka_unit_test(an_identity_needs_memory),
    };

    return cmocka_run_group_tests(tests, open_store, close_store);
}
