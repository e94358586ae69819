/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real model with a sliding window (Gemma-3-270M, n_swa 512; its weights are under terms of their own, so this runs
 * on request only: make test-gemma). 1,930 tokens in batches of 512, with a window cache that has moved on.
 */
#include "rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 1930, FULL = 1920, PART = 768 };

static int32_t tokens[TOKENS], other[PART + 4];

static float largest_difference(const struct rig *rig, const float *logits)
{
    float most = 0;

    for (uint32_t i = 0; i < engine_vocabulary(rig->engine); i++)
        most = fmaxf(most, fabsf(engine_logits(rig->engine)[i] - logits[i]));
    return most;
}

/* What two cold runs differ by, with nothing restored. */
static void compare_with_other_batches(struct rig *rig, const float *logits)
{
    rig_empty(rig, 0, -1);
    rig->functions.memory_clear(rig->memory, true);
    for (size_t from = 0; from < TOKENS; from += 256) {
        const size_t end = from + 256 < TOKENS ? from + 256 : TOKENS;

        CHECK(engine_decode(rig->engine, 0, tokens + from, end - from, from) == 0);
    }
    printf("computed in batches of 256: largest difference of logits %g\n", (double)largest_difference(rig, logits));
}

static size_t restore(struct rig *rig, const int32_t *prompt, size_t count, int *why)
{
    size_t have = 0;

    CHECK(kvo_llama_restore(rig->kv, 0, prompt, count, &have, why) == KVO_OK);
    return have;
}

int main(void)
{
    struct setup setup = SETUP_INIT;
    char store[128];
    struct rig rig;
    float *all, *part;
    int why = -1;

    if (rig_library(false) == NULL || getenv("KVONCE_LLAMA_MODEL") == NULL) {
        printf("KVONCE_LLAMA_LIB and KVONCE_LLAMA_MODEL are not set\n");
        return 77;
    }
    rig_tokens(tokens, TOKENS, 1);
    rig_tokens(other, PART + 4, 2);
    memcpy(other, tokens, PART * sizeof *tokens);
    snprintf(store, sizeof store, "dram:512M,disk:%s/window:1G", rig_directory());
    setup.store = store;
    setup.context_tokens = 4096;
    setup.pinned.full_window = 0;
    for (int every = 1; every >= 0; every--) {
        setup.window_stride_tokens = every ? 1 : 0;
        setup.model_byte = (uint8_t)(10 + every);
        rig_open(&rig, &setup);
        rig_attach(&rig);
        /* The cold run of the shorter prompt first, in batches as the warm run's. */
        rig_decode(&rig, 0, other, 0, PART + 4);
        part = rig_logits(&rig);
        rig_empty(&rig, 0, -1);
        rig.functions.memory_clear(rig.memory, true);
        CHECK(rig_decode_and_save(&rig, 0, tokens, FULL, &why) == FULL && why == KVO_LLAMA_COMPLETE);
        CHECK(kvo_llama_save_end(rig.kv, 0, tokens, FULL, NULL, &why) == KVO_OK && why == KVO_LLAMA_COMPLETE);
        rig_decode(&rig, 0, tokens, FULL, TOKENS);
        all = rig_logits(&rig);
        const kvo_llama_stat stat = rig_stat(&rig);
        printf("%s: saved %.1f MB for %u tokens, save %.0f ms\n", stat.layout, (double)stat.saved_bytes / 1e6,
               (unsigned)stat.saved_tokens, (double)stat.save_ns / 1e6);
        if (every)
            compare_with_other_batches(&rig, all);
        rig_close(&rig);

        rig_open(&rig, &setup);
        rig_attach(&rig);
        CHECK(restore(&rig, tokens, TOKENS, &why) == FULL && why == KVO_LLAMA_COMPLETE);
        rig_decode(&rig, 0, tokens, FULL, TOKENS);
        printf("restored %u: largest difference of logits %g\n", (unsigned)FULL, (double)largest_difference(&rig, all));
        CHECK(!every || rig_same_logits(&rig, all));
        const size_t have = restore(&rig, other, PART + 4, &why);
        printf("a prefix of %u: restored %zu, %s\n", (unsigned)PART, have, kvo_llama_why_text(why));
        CHECK(have == (every ? PART : 0));
        rig_decode(&rig, 0, other, have, PART + 4);
        printf("largest difference of logits %g\n", (double)largest_difference(&rig, part));
        CHECK(!every || rig_same_logits(&rig, part));
        free(all);
        free(part);
        rig_close(&rig);
    }
    return 0;
}
