/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much two runs of one prompt differ with nothing restored at all: what docs/llama.md says of rounding. Each run is
 * compared with one whose batches end at 512, 576 and 600. No adapter is at work. On request: make bench-llama.
 */
#include "rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 600, ANSWER = 32, VOCABULARY_MAX = 65536 };

static const struct run {
    const char *name;
    size_t ends[3];  /* of the batches before the last */
    size_t before;   /* tokens of another sequence that lie in the cache's first cells */
} runs[] = {
    {"the same again", {512, 576}, 0},
    {"batches that end at 512, 600", {512}, 0},
    {"batches that end at 256, 512, 576, 600", {256, 512, 576}, 0},
    {"the same behind 64 tokens of another sequence", {512, 576}, 64},
    {"the same behind 37 tokens of another sequence", {512, 576}, 37},
};

static struct result {
    float logits[VOCABULARY_MAX];
    int32_t answer[ANSWER];
} *first;

static int32_t tokens[TOKENS];

static void compute(struct rig *rig, const struct run *run)
{
    size_t from = 0;

    rig_empty(rig, 0, -1);
    rig_empty(rig, 1, -1);
    rig->functions.memory_clear(rig->memory, true);
    if (run->before > 0)
        CHECK(engine_decode(rig->engine, 1, tokens + 100, run->before, 0) == 0);
    for (size_t i = 0; from < TOKENS; i++) {
        const size_t end = i < 3 && run->ends[i] > 0 ? run->ends[i] : TOKENS;

        CHECK(engine_decode(rig->engine, 0, tokens + from, end - from, from) == 0);
        from = end;
    }
}

static void compare(struct rig *rig, const struct run *run)
{
    int32_t answer[ANSWER];
    float most = 0;
    int equal = 0;

    compute(rig, run);
    for (uint32_t i = 0; i < engine_vocabulary(rig->engine); i++)
        most = fmaxf(most, fabsf(engine_logits(rig->engine)[i] - first->logits[i]));
    rig_answer(rig, 0, TOKENS, answer, ANSWER);
    for (int i = 0; i < ANSWER; i++)
        equal += answer[i] == first->answer[i];
    printf("  %s: largest difference of logits %.2g, %d of %d greedy tokens equal\n", run->name, (double)most, equal,
           ANSWER);
}

static int with_flash(void *argument)
{
    const int flash = argument != NULL;
    struct setup setup = SETUP_INIT;
    struct rig rig;

    setup.store = "dram:32M";
    setup.pinned.flash = flash;
    rig_open(&rig, &setup);
    printf("flash attention %s\n", flash ? "on" : "off");
    compute(&rig, &runs[0]);
    CHECK(engine_vocabulary(rig.engine) <= VOCABULARY_MAX);
    memcpy(first->logits, engine_logits(rig.engine), engine_vocabulary(rig.engine) * sizeof(float));
    rig_answer(&rig, 0, TOKENS, first->answer, ANSWER);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        compare(&rig, &runs[i]);
    rig_close(&rig);
    return 0;
}

int main(void)
{
    if (rig_library(false) == NULL || getenv("KVONCE_LLAMA_MODEL") == NULL) {
        printf("KVONCE_LLAMA_LIB and KVONCE_LLAMA_MODEL are not set\n");
        return 77;
    }
    first = calloc(1, sizeof *first);
    CHECK(first != NULL);
    rig_tokens(tokens, TOKENS, 1);
    printf("%d tokens, one thread, nothing restored; beside batches that end at 512, 576, 600:\n", TOKENS);
    const int failed = rig_process(with_flash, first) != 0 || rig_process(with_flash, NULL) != 0;

    free(first);
    return failed;
}
