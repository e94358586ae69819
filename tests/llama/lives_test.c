/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole lives of contexts over a store: of an engine whose calls fail, in threads, through a fork, over a disk that
 * answers late, and of random work. Whatever is restored, each answer is the one computed without a cache (fake.h).
 */
#include "fixture.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Calls that fail ---- */

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

/* ---- Threads ---- */

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

/* ---- Processes ---- */

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

/* ---- The disk ---- */

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

/* ---- Anything ---- */

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_call_of_the_engine_may_fail),
        cmocka_unit_test(threads_share_a_store),
        cmocka_unit_test(a_forked_child_is_told),
        cmocka_unit_test(a_save_reads_no_disk),
        cmocka_unit_test(random_work_gives_right_answers),
    };

    return cmocka_run_group_tests(tests, open_store, close_store);
}
