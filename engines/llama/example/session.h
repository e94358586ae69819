/* SPDX-License-Identifier: Apache-2.0 */
/* A model, a store, and prompts answered with both: what the programs of this folder share. */
#ifndef KVONCE_SESSION_H
#define KVONCE_SESSION_H

#include "../kvonce_llama.h"
#include "engine.h"

#include <stddef.h>
#include <stdint.h>

typedef struct setup {
    engine_options engine;
    const char *store;
    const char *prompt_file;
    uint32_t answer_tokens;
    uint32_t block_tokens;
    int cold, raw, json;
} setup;

typedef struct session {
    const setup *settings;
    engine *engine;
    kvo_store *store;
    kvo_llama *kv; /* NULL: no store */
} session;

/* One prompt and its answer. */
typedef struct answered {
    int32_t *tokens; /* the prompt's, then the answer's */
    size_t prompt_count, count;
    size_t restored;
    int why;
    uint64_t begin_ns, prefill_ns, first_ns, end_ns; /* when */
    char *text;                                      /* the answer's */
    size_t text_bytes;
} answered;

/* "kvonce-llama: ..." on standard error, one line; returns 2, so that `return fail(...)` reads well. */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
int fail(const char *format, ...);
uint64_t now_ns(void);

/* 0, or 2 after a message; then close_session() frees what there is. */
int open_session(session *self, const setup *settings);
/* `code`, or 1 after a message if what was saved is not all on disk. */
int close_session(session *self, int code);

/* A file, "-" is standard input, as one string for free(); NULL after a message. */
char *read_file(const char *path);
/* settings->prompt_file as it is (raw), or as what a user says, in the form that the model was trained for. */
char *read_prompt(const session *self);

/* Decodes tokens[have .. count) in batches, and saves what is new. 0, or 2 after a message. */
int decode(session *self, const int32_t *tokens, size_t have, size_t count);
/* The KV that the store has of a prompt, the rest of it computed, then an answer. 0, or 2 after a message;
   free_answer() in both cases. */
int answer(session *self, const char *prompt, answered *result);
void free_answer(answered *result);

#endif
