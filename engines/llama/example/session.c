/* SPDX-License-Identifier: Apache-2.0 */
/* The three calls that a program of yours needs: in answer(), decode() and close_session(). */
#include "session.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define PROMPT_BYTES_MAX ((size_t)256 << 20)

int fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("kvonce-llama: ", stderr);
    (void)vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return 2;
}

uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- An answer: here kvonce is at work --------------------------------------- */

/*
 * Where the batch that begins at `have` ends. Batches end on multiples of a block, and what lies behind the last whole
 * block is a batch of its own: so a run that restores the prefix decodes the same batches as one that computes it, and
 * gets the same logits, bit for bit.
 */
static size_t batch_end(const session *self, size_t have, size_t count)
{
    size_t block = self->settings->block_tokens;
    size_t most = engine_batch_tokens(self->engine);
    size_t step = most < block ? block : most - most % block;
    size_t end = have - have % step + step;
    size_t tail = (count - 1) / block * block;
    size_t last = have < tail ? tail : count;
    end = end < last ? end : last;
    return end - have > most ? have + most : end;
}

/* Decodes tokens[have .. count) and saves what is new. */
int decode(session *self, const int32_t *tokens, size_t have, size_t count)
{
    while (have < count) {
        size_t end = batch_end(self, have, count);
        int status = engine_decode(self->engine, 0, tokens + have, end - have, have);
        if (status != 0) {
            return fail("llama_decode answers %d at token %zu", status, have);
        }
        have = end;
        if (self->kv != NULL) { /* call two: after each decode */
            (void)kvo_llama_save(self->kv, 0, tokens, have, NULL, NULL);
        }
    }
    return 0;
}

static void take_text(const session *self, answered *result, int32_t token)
{
    char piece[256];
    size_t bytes = engine_text(self->engine, token, piece, sizeof piece);
    memcpy(result->text + result->text_bytes, piece, bytes + 1);
    result->text_bytes += bytes;
    if (!self->settings->json) {
        fputs(piece, stdout);
        (void)fflush(stdout);
    }
}

/* Generates up to answer_tokens behind the prompt, the likeliest token each time. */
static int generate(session *self, answered *result)
{
    for (uint32_t made = 0; made < self->settings->answer_tokens; made++) {
        int32_t token = engine_greedy(self->engine);
        result->first_ns = made == 0 ? now_ns() : result->first_ns;
        if (engine_is_end(self->engine, token)) {
            break;
        }
        take_text(self, result, token);
        result->tokens[result->count++] = token;
        if (decode(self, result->tokens, result->count - 1, result->count) != 0) {
            return 2;
        }
    }
    result->end_ns = now_ns();
    return 0;
}

/* For models with a sliding window, whose last cells are worth keeping here; others have nothing new. */
static void save_end(session *self, const answered *result)
{
    if (self->kv != NULL) {
        (void)kvo_llama_save_end(self->kv, 0, result->tokens, result->count, NULL, NULL);
    }
}

/* Tokens of `text`, KV from the store, the rest computed, then the answer. 0, or 2 after a message. */
int answer(session *self, const char *text, answered *result)
{
    *result = (answered){0};
    size_t answer_most = self->settings->answer_tokens;
    int32_t *tokens = engine_tokenize(self->engine, text, strlen(text), 1, &result->prompt_count);
    int32_t *longer = tokens == NULL ? NULL : realloc(tokens, (result->prompt_count + answer_most) * sizeof *tokens);
    result->tokens = longer != NULL ? longer : tokens;
    result->text = malloc(answer_most * 256 + 1);
    if (longer == NULL || result->text == NULL) {
        return fail("out of memory");
    }
    result->text[0] = 0;
    result->count = result->prompt_count;
    if (result->count == 0 || result->count + answer_most > engine_context_tokens(self->engine)) {
        return fail("%zu tokens and an answer of %zu are not what a context of %u can hold (--context, -n)",
                    result->count, answer_most, engine_context_tokens(self->engine));
    }
    result->begin_ns = now_ns();
    if (self->kv != NULL && !self->settings->cold) { /* call one: before the first decode */
        int status = kvo_llama_restore(self->kv, 0, result->tokens, result->count, &result->restored, &result->why);
        if (status != KVO_OK) {
            return fail("restore: %s", kvo_status_text(status));
        }
    }
    result->prefill_ns = now_ns();
    int code = decode(self, result->tokens, result->restored, result->count);
    save_end(self, result);
    if (code == 0) {
        code = generate(self, result);
        save_end(self, result);
    }
    return code;
}

void free_answer(answered *result)
{
    free(result->tokens);
    free(result->text);
}

/* ---- Opening and closing -------------------------------------------------------- */

static void on_log(void *context, const char *line)
{
    (void)context;
    fprintf(stderr, "kvonce-llama: %s\n", line);
}

/* Where identities of model files are remembered; NULL: nowhere. */
static const char *identity_cache(char path[PATH_MAX])
{
    const char *own = getenv("KVONCE_CACHE"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = own != NULL && *own != 0       ? snprintf(path, PATH_MAX, "%s", own)
                 : cache != NULL && *cache != 0 ? snprintf(path, PATH_MAX, "%s/kvonce", cache)
                 : home != NULL && *home != 0   ? snprintf(path, PATH_MAX, "%s/.cache/kvonce", home)
                                                : PATH_MAX;
    if (length >= PATH_MAX - (int)sizeof "/models") {
        return NULL;
    }
    for (char *slash = path + 1; (slash = strchr(slash, '/')) != NULL; *slash++ = '/') {
        *slash = 0;
        (void)mkdir(path, 0777);
    }
    (void)mkdir(path, 0777);
    return strcat(path, "/models");
}

static int open_store(session *self, kvo_error *error)
{
    kvo_options options = KVO_OPTIONS_INIT;
    kvo_llama_options kv = KVO_LLAMA_OPTIONS_INIT;
    kvo_llama_functions functions = {.size = sizeof functions};
    uint8_t model[KVO_LLAMA_MODEL_BYTES];
    char path[PATH_MAX];
    options.on_log = on_log;
    kv.on_log = on_log;
    kv.model = model;
    kv.block_tokens = self->settings->block_tokens;
    int status = kvo_llama_bind(engine_library(self->engine), &functions, error);
    if (status == KVO_OK) {
        status = kvo_llama_model_identity(self->settings->engine.model, identity_cache(path), model, error);
    }
    if (status == KVO_OK) {
        status = kvo_open(self->settings->store, &options, &self->store, error);
    }
    if (status == KVO_OK) {
        status = kvo_llama_open(self->store, engine_context(self->engine), &functions, &kv, &self->kv, error);
    }
    return status;
}

int open_session(session *self, const setup *settings)
{
    kvo_error error = {.text = ""};
    *self = (session){.settings = settings};
    self->engine = engine_open(&settings->engine, &error);
    if (self->engine == NULL || (settings->store != NULL && open_store(self, &error) != KVO_OK)) {
        return fail("%s", error.text);
    }
    return engine_warm_up(self->engine) == 0 ? 0 : fail("%s: the first decode fails", settings->engine.model);
}

/* Call three: close. What was saved goes to disk first; who kills the process before that loses the last block or
   two, and gets no wrong one. */
int close_session(session *self, int code)
{
    if (kvo_llama_close(self->kv, 60000000000u) != KVO_OK) {
        (void)fail("not everything that was saved is on disk");
        code = code == 0 ? 1 : code;
    }
    engine_close(self->engine);
    int status = kvo_close(self->store, 60000000000u);
    if (status != KVO_OK) {
        (void)fail("%s: %s", self->settings->store, kvo_status_text(status));
        code = code == 0 ? 1 : code;
    }
    return code;
}

/* ---- Prompts ---------------------------------------------------------------------- */

/* Also from what never ends: a device of zeros is no text, and no prompt is that long. */
char *read_file(const char *path)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    const char *bad = file == NULL ? strerror(errno) : NULL;
    char *text = NULL;
    size_t used = 0, room = 0, got = 1;
    while (bad == NULL && got != 0) {
        if (used + 1 >= room) {
            room = 2 * room + 65536;
            char *moved = realloc(text, room);
            if (moved == NULL) {
                bad = "out of memory";
                break;
            }
            text = moved;
        }
        got = fread(text + used, 1, room - used - 1, file);
        bad = ferror(file) != 0                    ? strerror(errno)
              : memchr(text + used, 0, got) != NULL ? "not a text"
              : used + got > PROMPT_BYTES_MAX       ? "longer than a prompt can be"
                                                    : NULL;
        used += got;
        text[used] = 0;
    }
    if (file != NULL && file != stdin) {
        (void)fclose(file);
    }
    if (bad == NULL) {
        return text;
    }
    (void)fail("%s: %s", path, bad);
    free(text);
    return NULL;
}

/* The prompt file as it is, or as what a user says in the form that the model was trained for. */
char *read_prompt(const session *self)
{
    char *text = read_file(self->settings->prompt_file);
    if (text == NULL || self->settings->raw) {
        return text;
    }
    char *prompt = engine_chat(self->engine, (const char *[]){"user"}, (const char *[]){text}, 1, 1);
    free(text);
    if (prompt == NULL) {
        (void)fail("the model has no template for chats that llama.cpp knows: use --raw");
    }
    return prompt;
}
