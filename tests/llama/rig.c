/* SPDX-License-Identifier: Apache-2.0 */
#include "rig.h"

#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BATCH 512u

void rig_fail(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: %s\n", file, line, what);
    exit(1);
}

const char *rig_library(bool old)
{
    const char *path = getenv(old ? "KVONCE_LLAMA_LIB_OLD" : "KVONCE_LLAMA_LIB");

    return path != NULL && *path != 0 ? path : NULL;
}

static void on_log(void *context, const char *line)
{
    (void)context;
    if (getenv("KVO_TEST_LOG") != NULL)
        fprintf(stderr, "adapter: %s\n", line);
}

void rig_open(struct rig *rig, const struct setup *setup)
{
    const engine_options options = {.library = setup->library == NULL ? rig_library(false) : setup->library,
                                    .model = getenv("KVONCE_LLAMA_MODEL"),
                                    .context_tokens = setup->context_tokens,
                                    .sequences = setup->sequences,
                                    .batch_tokens = BATCH,
                                    .pinned = &setup->pinned};
    kvo_error error = {""};

    memset(rig, 0, sizeof *rig);
    rig->setup = *setup;
    rig->engine = engine_open(&options, &error);
    if (rig->engine == NULL)
        rig_fail(__FILE__, __LINE__, error.text);
    if (kvo_open(setup->store, NULL, &rig->store, &error) != KVO_OK)
        rig_fail(__FILE__, __LINE__, error.text);
    if (kvo_llama_bind(engine_library(rig->engine), &rig->functions, &error) != KVO_OK)
        rig_fail(__FILE__, __LINE__, error.text);
    rig->memory = rig->functions.get_memory(engine_context(rig->engine));
}

void rig_attach(struct rig *rig)
{
    uint8_t model[KVO_LLAMA_MODEL_BYTES] = {rig->setup.model_byte};
    kvo_llama_options options = KVO_LLAMA_OPTIONS_INIT;
    kvo_error error = {""};

    options.model = model;
    options.flags = rig->setup.flags;
    options.settings = rig->setup.settings;
    options.salt = rig->setup.salt;
    options.salt_bytes = rig->setup.salt == NULL ? 0 : strlen(rig->setup.salt);
    options.block_tokens = rig->setup.block_tokens;
    options.window_stride_tokens = rig->setup.window_stride_tokens;
    options.on_log = on_log;
    if (kvo_llama_open(rig->store, engine_context(rig->engine), &rig->functions, &options, &rig->kv, &error) != KVO_OK)
        rig_fail(__FILE__, __LINE__, error.text);
}

void rig_close(struct rig *rig)
{
    CHECK(kvo_llama_close(rig->kv, 60000000000u) == KVO_OK);
    CHECK(kvo_close(rig->store, 60000000000u) == KVO_OK);
    engine_close(rig->engine);
}

void rig_tokens(int32_t *tokens, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        tokens[i] = 100 + (int32_t)((seed >> 33) % 40000);
    }
}

static size_t batch_end(size_t from, size_t to)
{
    const size_t end = to - from > BATCH ? from + BATCH : to;

    return end > from + BLOCK ? end - end % BLOCK : end;
}

void rig_decode(struct rig *rig, int32_t sequence, const int32_t *tokens, size_t from, size_t to)
{
    while (from < to) {
        const size_t end = batch_end(from, to);

        CHECK(engine_decode(rig->engine, sequence, tokens + from, end - from, from) == 0);
        from = end;
    }
}

size_t rig_decode_and_save(struct rig *rig, int32_t sequence, const int32_t *tokens, size_t to, int *why)
{
    size_t stored = 0;

    for (size_t from = 0; from < to;) {
        const size_t end = batch_end(from, to);

        rig_decode(rig, sequence, tokens, from, end);
        CHECK(kvo_llama_save(rig->kv, sequence, tokens, end, &stored, why) == KVO_OK);
        from = end;
    }
    return stored;
}

void rig_empty(struct rig *rig, int32_t sequence, int32_t first)
{
    CHECK(rig->functions.memory_seq_rm(rig->memory, sequence, first, -1));
}

float *rig_logits(const struct rig *rig)
{
    const size_t bytes = engine_vocabulary(rig->engine) * sizeof(float);
    float *copy = malloc(bytes);

    CHECK(copy != NULL);
    return memcpy(copy, engine_logits(rig->engine), bytes);
}

bool rig_same_logits(const struct rig *rig, const float *logits)
{
    return memcmp(engine_logits(rig->engine), logits, engine_vocabulary(rig->engine) * sizeof(float)) == 0;
}

void rig_answer(struct rig *rig, int32_t sequence, size_t position, int32_t *answer, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        answer[i] = engine_greedy(rig->engine);
        CHECK(engine_decode(rig->engine, sequence, &answer[i], 1, position + i) == 0);
    }
}

kvo_llama_stat rig_stat(const struct rig *rig)
{
    kvo_llama_stat stat = KVO_LLAMA_STAT_INIT;

    CHECK(kvo_llama_stat_get(rig->kv, &stat) == KVO_OK);
    return stat;
}

/* ---- Processes and files ------------------------------------------------------ */

int rig_process(int (*body)(void *argument), void *argument)
{
    int status = 0;

    fflush(NULL);
    const pid_t child = fork();

    if (child == 0) {
        alarm(900); /* against a hang */
        exit(body(argument));
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static char directory[64];
static pid_t owner;

static int remove_entry(const char *path, const struct stat *about, int type, struct FTW *where)
{
    (void)about;
    (void)type;
    (void)where;
    return remove(path);
}

static void remove_directory(void)
{
    if (getpid() == owner)
        (void)nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

const char *rig_directory(void)
{
    if (directory[0] == 0) {
        strcpy(directory, "/tmp/kvonce-llama.XXXXXX");
        CHECK(mkdtemp(directory) != NULL);
        owner = getpid();
        CHECK(atexit(remove_directory) == 0);
    }
    return directory;
}
