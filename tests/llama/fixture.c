/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>

char directory[64];
kvo_store *store;
int32_t tokens[TOKENS_MAX];
uint8_t model = 1;

const fake_options dense = {.sequences = 2, .cells = TOKENS_MAX, .batch = 64, .rotation = true, .type = 1};
const fake_options windowed = {.sequences = 2, .cells = TOKENS_MAX, .window = 64, .batch = 32, .rotation = true,
                               .type = 1};

uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

int open_store(void **state)
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

int close_store(void **state)
{
    char command[128];

    (void)state;
    kvo_close(store, KVO_FOREVER);
    snprintf(command, sizeof command, "rm -rf %s", directory);
    return system(command);
}

int try_open(struct llama_context *context, uint32_t stride, const char *settings, const char *build, kvo_llama **kv)
{
    const kvo_llama_functions functions = fake_functions();
    uint8_t identity[KVO_LLAMA_MODEL_BYTES] = {model};
    kvo_llama_options options = KVO_LLAMA_OPTIONS_INIT;

    options.model = identity;
    options.block_tokens = BLOCK;
    options.window_stride_tokens = stride;
    options.settings = settings;
    options.build = build;
    return kvo_llama_open(store, context, &functions, &options, kv, NULL);
}

kvo_llama *attach_with(struct llama_context *context, uint32_t stride, const char *build)
{
    kvo_llama *kv = NULL;

    assert_int_equal(try_open(context, stride, NULL, build, &kv), KVO_OK);
    return kv;
}

kvo_llama *attach(struct llama_context *context)
{
    return attach_with(context, 0, "a build");
}

void detach(kvo_llama *kv, struct llama_context *context)
{
    assert_int_equal(kvo_llama_close(kv, KVO_FOREVER), KVO_OK);
    fake_close(context);
}

size_t restore(kvo_llama *kv, int32_t sequence, const int32_t *prompt, size_t count, int *why)
{
    size_t have = 1;

    assert_int_equal(kvo_llama_restore(kv, sequence, prompt, count, &have, why), KVO_OK);
    assert_int_equal(have % BLOCK, 0);
    assert_true(have < count || count == 0);
    return have;
}

size_t compute(kvo_llama *kv, struct llama_context *context, int32_t sequence, const int32_t *prompt, size_t from,
               size_t to, uint32_t batch, int *why)
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

kvo_llama_stat stat_of(kvo_llama *kv)
{
    kvo_llama_stat stat = KVO_LLAMA_STAT_INIT;

    assert_int_equal(kvo_llama_stat_get(kv, &stat), KVO_OK);
    return stat;
}

