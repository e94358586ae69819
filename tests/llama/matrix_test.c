/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was saved by a process that was killed comes back in another one: K and V are the same, so the last token's
 * logits are the same bit for bit where the batches are, under flash attention and without, with f16 and q8_0, and
 * between two builds of llama.cpp where that is promised. 600 tokens, or KVO_TEST_TOKENS of them: 9 blocks of 64 and 24
 * more.
 */
#include "rig.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TOKENS_LEAST = 600, TOKENS_MOST = 7000, PART = 256, ANSWER = 16, VOCABULARY_MAX = 65536 };

/* What the killed process leaves for the others, in shared memory. */
struct expected {
    bool saved;
    float all[VOCABULARY_MAX], one[VOCABULARY_MAX], part[VOCABULARY_MAX];
    int32_t answer[ANSWER];
};

struct variant {
    const char *name;
    bool old;
    int flash, type_k, type_v;
    uint32_t sequences, more_context;
};

struct run {
    const struct variant *variant;
    struct expected *expected;
    struct setup setup;
    char store[128];
    size_t restored; /* wanted */
    int why;
};

static int32_t tokens[TOKENS_MOST], other[PART + 24];
static size_t count = TOKENS_LEAST, full; /* tokens; those in full blocks, of which one is left to decode */

static void keep(const struct rig *rig, float *to)
{
    memcpy(to, engine_logits(rig->engine), engine_vocabulary(rig->engine) * sizeof(float));
}

static struct setup setup_of(const struct variant *v, const char *store)
{
    struct setup setup = SETUP_INIT;

    setup.library = v->old ? rig_library(true) : rig_library(false);
    setup.store = store;
    setup.pinned = (engine_pinned){v->flash, v->type_k, v->type_v, v->sequences > 1, -1};
    setup.sequences = v->sequences;
    setup.context_tokens = (uint32_t)(count / 256 + 2) * 256 + v->more_context;
    return setup;
}

/* Computes, saves, notes the logits, and is killed. */
static int cold(void *argument)
{
    struct run *run = argument;
    struct rig rig;
    int why = -1;

    rig_open(&rig, &run->setup);
    rig_attach(&rig);
    CHECK(rig_decode_and_save(&rig, 0, tokens, full, &why) == full && why == KVO_LLAMA_COMPLETE);
    CHECK(kvo_sync(rig.store, NULL, KVO_WRITTEN, 60000000000u, NULL) == KVO_OK);
    rig_decode(&rig, 0, tokens, full, full + 1);
    keep(&rig, run->expected->one);
    rig_empty(&rig, 0, (int32_t)full);
    rig_decode(&rig, 0, tokens, full, count);
    keep(&rig, run->expected->all);
    rig_answer(&rig, 0, count, run->expected->answer, ANSWER);
    rig_empty(&rig, 0, PART);
    rig_decode(&rig, 0, other, PART, PART + 24);
    keep(&rig, run->expected->part);

    const kvo_llama_stat stat = rig_stat(&rig);
    printf("%s: %s, scratch %d, saved %u blocks of %u B, save %.1f ms of which export %.1f\n", run->variant->name,
           stat.layout, stat.scratch, (unsigned)stat.saved_blocks, BLOCK * stat.token_bytes, (double)stat.save_ns / 1e6,
           (double)stat.export_ns / 1e6);
    fflush(stdout);
    run->expected->saved = true;
    raise(SIGKILL);
    return 1;
}

static size_t restore(struct rig *rig, int32_t sequence, const int32_t *prompt, size_t length, int *why)
{
    size_t have = 0;

    CHECK(kvo_llama_restore(rig->kv, sequence, prompt, length, &have, why) == KVO_OK);
    return have;
}

static int warm(void *argument)
{
    const struct run *run = argument;
    int32_t answer[ANSWER];
    struct rig rig;
    int why = -1;

    rig_open(&rig, &run->setup);
    rig_attach(&rig);
    CHECK(restore(&rig, 0, tokens, count, &why) == full && why == KVO_LLAMA_COMPLETE);
    rig_decode(&rig, 0, tokens, full, count);
    CHECK(rig_same_logits(&rig, run->expected->all));
    rig_answer(&rig, 0, count, answer, ANSWER);
    CHECK(memcmp(answer, run->expected->answer, sizeof answer) == 0);

    CHECK(restore(&rig, 0, tokens, full + 1, &why) == full && why == KVO_LLAMA_COMPLETE);
    rig_decode(&rig, 0, tokens, full, full + 1);
    CHECK(rig_same_logits(&rig, run->expected->one));

    CHECK(restore(&rig, 0, other, PART + 24, &why) == PART && why == KVO_LLAMA_COMPLETE);
    rig_decode(&rig, 0, other, PART, PART + 24);
    CHECK(rig_same_logits(&rig, run->expected->part));
    CHECK(restore(&rig, 0, tokens, full, &why) == full - BLOCK); /* one token is left */

    const kvo_llama_stat stat = rig_stat(&rig);
    printf("%s: restored %u tokens in %.1f ms: get %.1f, import %.1f, check %.1f\n", run->variant->name,
           (unsigned)stat.restored_tokens, (double)stat.restore_ns / 1e6, (double)stat.get_ns / 1e6,
           (double)stat.import_ns / 1e6, (double)stat.check_ns / 1e6);
    rig_close(&rig);
    return 0;
}

/* Nothing is restored, for a reason. */
static int nothing(void *argument)
{
    const struct run *run = argument;
    struct rig rig;
    int why = -1;

    rig_open(&rig, &run->setup);
    rig_attach(&rig);
    CHECK(restore(&rig, 0, tokens, count, &why) == 0);
    CHECK(why == run->why);
    CHECK(rig.functions.memory_seq_pos_max(rig.memory, 0) == -1);
    CHECK(rig_stat(&rig).restore_why[run->why] == 1);
    rig_close(&rig);
    return 0;
}

static const struct variant variants[] = {
    {"f16 flash", false, 1, 1, 1, 2, 0},
    {"f16", false, 0, 1, 1, 2, 0},
    {"q8_0 flash", false, 1, 8, 8, 2, 0},
    {"q8_0/f16", false, 0, 8, 1, 2, 0},
    {"older f16 flash", true, 1, 1, 1, 2, 0},
    {"older f16", true, 0, 1, 1, 2, 0},
};
static const struct variant single = {"one sequence", false, 1, 1, 1, 1, 256};
static const struct variant many = {"four sequences, another size", false, 1, 1, 1, 4, 512};

static int failures, cases;

static void expect(const char *what, int (*body)(void *argument), struct run *run, int status)
{
    const int ended = rig_process(body, run);

    cases++;
    if (ended == status)
        return;
    failures++;
    printf("FAILED: %s, %s: ended with %d\n", run->variant->name, what, ended);
}

static struct run run_of(const struct variant *v, struct expected *expected, const char *name)
{
    struct run run = {.variant = v, .expected = expected};

    snprintf(run.store, sizeof run.store, "dram:%zuM,disk:%s/%s:%zuM", 32 + count / 8, rig_directory(), name,
             64 + count / 4); /* 24 KiB a token, twice */
    return run;
}

static void as(struct run *run, const struct variant *v)
{
    run->variant = v;
    run->setup = setup_of(v, run->store);
}

int main(void)
{
    struct expected *expected = mmap(NULL, sizeof *expected, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (rig_library(false) == NULL || rig_library(true) == NULL || getenv("KVONCE_LLAMA_MODEL") == NULL) {
        printf("KVONCE_LLAMA_LIB, KVONCE_LLAMA_LIB_OLD and KVONCE_LLAMA_MODEL are not set\n");
        return 77;
    }
    CHECK(expected != MAP_FAILED);
    if (getenv("KVO_TEST_TOKENS") != NULL)
        count = strtoul(getenv("KVO_TEST_TOKENS"), NULL, 10);
    if (count < TOKENS_LEAST || count > TOKENS_MOST) {
        printf("KVO_TEST_TOKENS: %d to %d\n", TOKENS_LEAST, TOKENS_MOST);
        return 1;
    }
    full = (count - 1) / BLOCK * BLOCK;
    rig_tokens(tokens, count, 1);
    rig_tokens(other, PART + 24, 2);
    memcpy(other, tokens, PART * sizeof *tokens);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        char name[16];
        snprintf(name, sizeof name, "%zu", i);
        struct run run = run_of(&variants[i], expected, name);

        as(&run, &variants[i]);
        expect("saved and killed", cold, &run, -SIGKILL);
        expect("restored", warm, &run, 0);
        if (i == 0) {
            as(&run, &variants[4]);
            expect("restored by the older build", warm, &run, 0);
            as(&run, &single);
            expect("restored", warm, &run, 0);
            as(&run, &many);
            expect("restored", warm, &run, 0);
        }
        if (i == 4) {
            as(&run, &variants[0]);
            expect("restored by the newer build", warm, &run, 0);
            as(&run, &variants[1]);
            run.why = KVO_LLAMA_SHAPE;
            expect("not without flash attention", nothing, &run, 0);
            as(&run, &variants[2]);
            run.why = KVO_LLAMA_SHAPE;
            expect("not with another type", nothing, &run, 0);
        }
    }
    printf("%zu tokens: %d cases in processes of their own, %d wrong\n", count, cases, failures);
    return failures == 0 ? 0 : 1;
}
