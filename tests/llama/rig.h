/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real engine, a store and an adapter between them, for the tests. Each run is a process of its own, as one
 * process holds one build of the library.
 */
#ifndef LLAMA_RIG_H
#define LLAMA_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvonce.h>
#include <kvonce_llama.h>

#include "engine.h"

#define BLOCK 64u

struct setup {
    const char *library; /* NULL: the newer one */
    const char *store;   /* tiers */
    engine_pinned pinned;
    uint32_t sequences, context_tokens;
    uint32_t flags;      /* KVO_LLAMA_... */
    const char *settings;
    const char *salt;
    uint8_t model_byte;  /* of a made-up identity */
    uint32_t block_tokens, window_stride_tokens;
};
#define SETUP_INIT {NULL, NULL, {1, -1, -1, 1, -1}, 2, 1024, 0, NULL, NULL, 1, 0, 0}

struct rig {
    engine *engine;
    kvo_store *store;
    kvo_llama_functions functions; /* what the adapter got: faults are put in here before rig_attach() */
    struct llama_memory_i *memory;
    kvo_llama *kv;
    struct setup setup;
};

/* Everything but the adapter; the process ends with a message where a part is missing. */
void rig_open(struct rig *rig, const struct setup *setup);
void rig_attach(struct rig *rig);
void rig_close(struct rig *rig);

/* Made-up tokens, the same for the same seed. */
void rig_tokens(int32_t *tokens, size_t count, uint64_t seed);

/* Decodes tokens[from .. to) in batches of at most 512 that end on blocks where they can. */
void rig_decode(struct rig *rig, int32_t sequence, const int32_t *tokens, size_t from, size_t to);
/* With a save after each batch; returns how many tokens the store has in the end. */
size_t rig_decode_and_save(struct rig *rig, int32_t sequence, const int32_t *tokens, size_t to, int *why);
void rig_empty(struct rig *rig, int32_t sequence, int32_t first);

/* Copies the last token's logits; the caller frees. */
float *rig_logits(const struct rig *rig);
bool rig_same_logits(const struct rig *rig, const float *logits);
/* Greedy tokens from the last logits on, after `position` tokens. */
void rig_answer(struct rig *rig, int32_t sequence, size_t position, int32_t *answer, size_t count);

kvo_llama_stat rig_stat(const struct rig *rig);
const char *rig_library(bool old); /* NULL: not given */

/* Runs `body` in a process of its own and returns its exit status; -9 where it killed itself. */
int rig_process(int (*body)(void *argument), void *argument);
/* A directory of this test, removed when it ends. */
const char *rig_directory(void);

/* Says what failed and ends the process. */
#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition))                                                                      \
            rig_fail(__FILE__, __LINE__, #condition);                                          \
    } while (0)
_Noreturn void rig_fail(const char *file, int line, const char *what);

#endif
