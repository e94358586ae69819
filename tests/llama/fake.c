/* SPDX-License-Identifier: Apache-2.0 */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, ROW = 68, ROW_F16 = 32 };
#define MAGIC 0xaf143cd8u

typedef struct cell {
    int32_t position; /* -1: free */
    uint32_t sequences; /* bits */
    uint64_t sum;       /* of all its rows */
    uint8_t k[LAYERS][ROW], v[LAYERS][ROW];
} cell;

struct llama_memory_i {
    uint32_t count;
    cell *cells;
};

struct llama_context {
    fake_options options;
    struct llama_memory_i caches[2]; /* the memory is the first one's address */
    uint64_t answer;
};

static struct llama_context *of(struct llama_memory_i *memory)
{
    return (struct llama_context *)((char *)memory - offsetof(struct llama_context, caches));
}

static size_t cache_count(const struct llama_context *context)
{
    return context->options.window > 0 ? 2 : 1;
}

static size_t row_bytes(const struct llama_context *context)
{
    return context->options.type == 1 ? ROW_F16 : ROW;
}

/* ---- Computing ------------------------------------------------------------------ */

static uint64_t mix(uint64_t a, uint64_t b)
{
    a = (a ^ b) * 0x9e3779b97f4a7c15u;
    a ^= a >> 29;
    a *= 0xbf58476d1ce4e5b9u;
    return a ^ a >> 32;
}

static uint64_t sum_rows(const cell *c, size_t bytes)
{
    uint64_t sum = 1;

    for (int layer = 0; layer < LAYERS; layer++)
        for (size_t i = 0; i < bytes; i++)
            sum = mix(sum, (uint64_t)c->k[layer][i] << 8 | c->v[layer][i]);
    return sum;
}

/* Finite as halves and as scales. */
static void fill_rows(cell *c, uint64_t seed, size_t bytes)
{
    for (int layer = 0; layer < LAYERS; layer++)
        for (size_t i = 0; i < bytes; i++) {
            seed = mix(seed, i + 1);
            c->k[layer][i] = (uint8_t)(seed >> 20 & 0x3f);
            c->v[layer][i] = (uint8_t)(seed >> 40 & 0x3f);
        }
    c->sum = sum_rows(c, bytes);
}

static bool visible(const struct llama_context *context, size_t cache, const cell *c, int32_t sequence,
                    int32_t position)
{
    return c->position >= 0 && (c->sequences >> sequence & 1) != 0 && c->position < position &&
           (cache == 0 || c->position > position - (int32_t)context->options.window);
}

/* The last position of the one sequence that has a cell; -1: several have it. */
static int32_t last_of_owner(const struct llama_memory_i *cache, uint32_t sequences)
{
    int32_t last = -1;

    if ((sequences & (sequences - 1)) != 0)
        return -1;
    for (uint32_t i = 0; i < cache->count; i++)
        if (cache->cells[i].position > last && (cache->cells[i].sequences & sequences) != 0)
            last = cache->cells[i].position;
    return last;
}

/* A free cell, or one that its sequence's next token will not see. */
static cell *take_cell(struct llama_context *context, size_t number)
{
    struct llama_memory_i *cache = &context->caches[number];

    for (uint32_t i = 0; i < cache->count; i++)
        if (cache->cells[i].position < 0)
            return &cache->cells[i];
    for (uint32_t i = 0; number > 0 && i < cache->count; i++) {
        cell *c = &cache->cells[i];
        if (c->position <= last_of_owner(cache, c->sequences) + 1 - (int32_t)context->options.window)
            return c;
    }
    return NULL;
}

static bool beyond(const struct llama_context *context)
{
    return context->options.original > 0 && context->options.cells > context->options.original;
}

/* In any order: the sum does not tell cells apart by where they lie. */
static bool compute(struct llama_context *context, int32_t sequence, int32_t token, int32_t position)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < cache_count(context); i++)
        for (uint32_t j = 0; j < context->caches[i].count; j++)
            if (visible(context, i, &context->caches[i].cells[j], sequence, position))
                sum += mix(context->caches[i].cells[j].sum, (uint64_t)context->caches[i].cells[j].position);
    sum = mix(mix(sum, (uint64_t)token), (uint64_t)position);
    if (beyond(context))
        sum = mix(sum, 1);
    for (size_t i = 0; i < cache_count(context); i++) {
        cell *c = take_cell(context, i);
        if (c == NULL)
            return false;
        c->position = position;
        c->sequences = 1u << sequence;
        fill_rows(c, mix(sum, i), row_bytes(context));
    }
    context->answer = sum;
    return true;
}

/* Cells that the batch's first token no longer sees leave the window. */
static void move_window(struct llama_context *context, int32_t sequence, int32_t position)
{
    struct llama_memory_i *cache = &context->caches[1];

    for (uint32_t i = 0; i < cache->count; i++) {
        cell *c = &cache->cells[i];
        if (c->position >= 0 && c->position <= position - (int32_t)context->options.window)
            c->sequences &= ~(1u << sequence);
        if (c->sequences == 0)
            c->position = -1;
    }
}

bool fake_decode(struct llama_context *context, int32_t sequence, const int32_t *tokens, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        if ((i - from) % context->options.batch == 0)
            move_window(context, sequence, (int32_t)i);
        if (!compute(context, sequence, tokens[i], (int32_t)i))
            return false;
    }
    return true;
}

uint64_t fake_answer(const struct llama_context *context)
{
    return context->answer;
}

uint64_t fake_right_answer(const fake_options *options, const int32_t *tokens, size_t count)
{
    fake_options alone = *options;
    struct llama_context *context;

    alone.cells = (uint32_t)count + 1;
    if (alone.original > 0)
        alone.cells += options->cells > options->original ? alone.original : 0;
    alone.batch = (uint32_t)count + 1;
    context = fake_open(&alone);
    if (!fake_decode(context, 0, tokens, 0, count))
        abort();
    const uint64_t answer = context->answer;

    fake_close(context);
    return answer;
}

/* ---- Memory ------------------------------------------------------------------------ */

static bool within(const cell *c, int32_t sequence, int32_t first, int32_t end)
{
    return c->position >= 0 && (c->sequences >> sequence & 1) != 0 && (first < 0 || c->position >= first) &&
           (end < 0 || c->position < end);
}

static void seq_cp(struct llama_memory_i *memory, int32_t from, int32_t to, int32_t first, int32_t end)
{
    struct llama_context *context = of(memory);

    if (context->options.apart && context->options.sequences > 1)
        abort(); /* as the engine does */
    for (size_t i = 0; i < cache_count(context); i++)
        for (uint32_t j = 0; j < context->caches[i].count; j++)
            if (within(&context->caches[i].cells[j], from, first, end))
                context->caches[i].cells[j].sequences |= 1u << to;
}

static bool seq_rm(struct llama_memory_i *memory, int32_t sequence, int32_t first, int32_t end)
{
    struct llama_context *context = of(memory);

    for (size_t i = 0; i < cache_count(context); i++)
        for (uint32_t j = 0; j < context->caches[i].count; j++) {
            cell *c = &context->caches[i].cells[j];
            if (within(c, sequence, first, end))
                c->sequences &= ~(1u << sequence);
            if (c->sequences == 0)
                c->position = -1;
        }
    return true;
}

/* Of the window where there is one. */
static int32_t pos_min(struct llama_memory_i *memory, int32_t sequence)
{
    const struct llama_memory_i *cache = &memory[cache_count(of(memory)) - 1];
    int32_t least = -1;

    for (uint32_t i = 0; i < cache->count; i++)
        if (within(&cache->cells[i], sequence, -1, -1) && (least < 0 || cache->cells[i].position < least))
            least = cache->cells[i].position;
    return least;
}

static int32_t pos_max(struct llama_memory_i *memory, int32_t sequence)
{
    const struct llama_memory_i *cache = &memory[cache_count(of(memory)) - 1];
    int32_t most = -1;

    for (uint32_t i = 0; i < cache->count; i++)
        if (within(&cache->cells[i], sequence, -1, -1) && cache->cells[i].position > most)
            most = cache->cells[i].position;
    return most;
}

static void clear(struct llama_memory_i *memory, bool data)
{
    struct llama_context *context = of(memory);

    for (size_t i = 0; i < cache_count(context); i++)
        for (uint32_t j = 0; j < context->caches[i].count; j++) {
            if (data)
                memset(&context->caches[i].cells[j], 0, sizeof(cell));
            context->caches[i].cells[j].sequences = 0;
            context->caches[i].cells[j].position = -1;
        }
}

/* ---- States ------------------------------------------------------------------------- */

/* Writes to `to`, or reads from `from` and compares, or only counts. */
typedef struct stream {
    uint8_t *to;
    const uint8_t *from;
    size_t at, bytes;
    bool ok;
} stream;

static void pass(stream *s, void *value, size_t bytes)
{
    if (s->to != NULL)
        memcpy(s->to + s->at, value, bytes);
    if (s->from != NULL) {
        s->ok = s->ok && bytes <= s->bytes - s->at;
        if (!s->ok)
            return;
        memcpy(value, s->from + s->at, bytes);
    }
    s->at += bytes;
}

static void expect32(stream *s, uint32_t wanted)
{
    uint32_t value = wanted;

    pass(s, &value, sizeof value);
    s->ok = s->ok && value == wanted;
}

static void expect64(stream *s, uint64_t wanted)
{
    uint64_t value = wanted;

    pass(s, &value, sizeof value);
    s->ok = s->ok && value == wanted;
}

static void pass_rows(struct llama_context *context, stream *s, cell **cells, uint32_t count)
{
    const size_t bytes = row_bytes(context);
    const uint32_t type = context->options.type, rotation = type == 8 ? 64 : 0;

    expect32(s, context->options.transposed);
    expect32(s, LAYERS);
    if (context->options.rotation) {
        expect32(s, rotation);
        expect32(s, rotation);
    }
    for (int layer = 0; layer < LAYERS; layer++) {
        expect32(s, type);
        expect64(s, bytes);
        for (uint32_t i = 0; i < count && s->ok; i++)
            pass(s, cells[i]->k[layer], bytes);
    }
    for (int layer = 0; layer < LAYERS; layer++) {
        expect32(s, type);
        if (!context->options.transposed) {
            expect64(s, bytes);
            for (uint32_t i = 0; i < count && s->ok; i++)
                pass(s, cells[i]->v[layer], bytes);
            continue;
        }
        expect32(s, 2);
        expect32(s, (uint32_t)bytes / 2);
        for (size_t at = 0; at < bytes; at += 2)
            for (uint32_t i = 0; i < count && s->ok; i++)
                pass(s, cells[i]->v[layer] + at, 2);
    }
}

static void write_cache(struct llama_context *context, stream *s, struct llama_memory_i *cache, int32_t sequence)
{
    cell **cells = malloc((cache->count + 1) * sizeof *cells);
    uint32_t count = 0;

    for (uint32_t i = 0; i < cache->count; i++)
        if (within(&cache->cells[i], sequence, -1, -1))
            cells[count++] = &cache->cells[i];
    expect32(s, 1);
    expect32(s, count);
    for (uint32_t i = 0; i < count; i++) {
        expect32(s, (uint32_t)cells[i]->position);
        expect32(s, 1);
        expect32(s, (uint32_t)sequence);
    }
    if (count > 0)
        pass_rows(context, s, cells, count);
    free(cells);
}

static bool read_cells(struct llama_context *context, stream *s, size_t number, int32_t sequence, cell **cells,
                       uint32_t count)
{
    for (uint32_t i = 0; i < count && s->ok; i++) {
        uint32_t position = 0, old_sequence = 0;

        pass(s, &position, sizeof position);
        expect32(s, 1);
        pass(s, &old_sequence, sizeof old_sequence);
        cells[i] = take_cell(context, number);
        s->ok = s->ok && cells[i] != NULL && position <= INT32_MAX;
        if (s->ok) {
            cells[i]->position = (int32_t)position;
            cells[i]->sequences = 1u << sequence;
        }
    }
    return s->ok;
}

static void read_cache(struct llama_context *context, stream *s, size_t number, int32_t sequence)
{
    const struct llama_memory_i *cache = &context->caches[number];
    uint32_t count = 0;
    cell **cells;

    expect32(s, 1);
    pass(s, &count, sizeof count);
    s->ok = s->ok && count <= cache->count;
    cells = malloc((cache->count + 1) * sizeof *cells);
    if (s->ok && count > 0 && read_cells(context, s, number, sequence, cells, count))
        pass_rows(context, s, cells, count);
    for (uint32_t i = 0; i < count && s->ok; i++)
        cells[i]->sum = sum_rows(cells[i], row_bytes(context));
    free(cells);
}

static size_t write_state(struct llama_context *context, uint8_t *to, int32_t sequence)
{
    stream s = {.to = to, .ok = true};

    expect32(&s, MAGIC ^ (context->options.scrambled ? 1u : 0u));
    expect32(&s, (uint32_t)sequence);
    for (size_t i = 0; i < cache_count(context); i++)
        write_cache(context, &s, &context->caches[i], sequence);
    return s.at;
}

static size_t get_size(struct llama_context *context, int32_t sequence, uint32_t flags)
{
    (void)flags;
    return write_state(context, NULL, sequence);
}

static size_t get_data(struct llama_context *context, uint8_t *to, size_t bytes, int32_t sequence, uint32_t flags)
{
    return get_size(context, sequence, flags) > bytes ? 0 : write_state(context, to, sequence);
}

static size_t set_data(struct llama_context *context, const uint8_t *from, size_t bytes, int32_t sequence,
                       uint32_t flags)
{
    stream s = {.from = from, .bytes = bytes, .ok = true};
    uint32_t old_sequence = 0;

    (void)flags;
    (void)seq_rm(context->caches, sequence, -1, -1);
    expect32(&s, MAGIC ^ (context->options.scrambled ? 1u : 0u));
    pass(&s, &old_sequence, sizeof old_sequence);
    for (size_t i = 0; i < cache_count(context); i++)
        read_cache(context, &s, i, sequence);
    if (s.ok)
        return s.at;
    (void)seq_rm(context->caches, sequence, -1, -1);
    return 0;
}

/* ---- The rest -------------------------------------------------------------------------- */

static struct llama_memory_i *get_memory(const struct llama_context *context)
{
    return (struct llama_memory_i *)(uintptr_t)context->caches;
}

static uint32_t n_seq_max(const struct llama_context *context)
{
    return context->options.sequences;
}

static uint32_t n_ctx(const struct llama_context *context)
{
    return context->options.cells;
}

static uint32_t n_ctx_seq(const struct llama_context *context)
{
    return context->options.cells / (context->options.apart ? context->options.sequences : 1);
}

static const struct llama_model *get_model(const struct llama_context *context)
{
    return (const struct llama_model *)(const void *)context;
}

static const fake_options *options_of(const struct llama_model *model)
{
    return &((const struct llama_context *)(const void *)model)->options;
}

static int32_t model_n_swa(const struct llama_model *model)
{
    return (int32_t)options_of(model)->window;
}

static bool model_is_recurrent(const struct llama_model *model)
{
    (void)model;
    return false;
}

static bool model_is_hybrid(const struct llama_model *model)
{
    return options_of(model)->hybrid;
}

static int32_t model_meta_val_str(const struct llama_model *model, const char *key, char *value, size_t bytes)
{
    if (strcmp(key, "general.architecture") == 0)
        return snprintf(value, bytes, "fake");
    if (strcmp(key, "fake.rope.scaling.original_context_length") != 0 || options_of(model)->original == 0)
        return -1;
    return snprintf(value, bytes, "%u", options_of(model)->original);
}

kvo_llama_functions fake_functions(void)
{
    return (kvo_llama_functions){sizeof(kvo_llama_functions), get_memory, seq_cp, seq_rm, pos_min, pos_max, get_size,
                                 get_data, set_data, n_seq_max, n_ctx, n_ctx_seq, get_model, model_n_swa,
                                 model_is_recurrent, model_is_hybrid, clear, NULL, model_meta_val_str};
}

struct llama_context *fake_open(const fake_options *options)
{
    struct llama_context *context = calloc(1, sizeof *context);
    const uint32_t window_cells = options->window * options->sequences + options->batch;

    context->options = *options;
    context->caches[0].count = options->cells;
    context->caches[1].count = options->window == 0 ? 0 : window_cells < options->cells ? window_cells : options->cells;
    for (int i = 0; i < 2; i++)
        context->caches[i].cells = calloc(context->caches[i].count + 1, sizeof(cell));
    clear(context->caches, true);
    return context;
}

void fake_close(struct llama_context *context)
{
    free(context->caches[0].cells);
    free(context->caches[1].cells);
    free(context);
}

uint32_t fake_used(const struct llama_context *context)
{
    uint32_t used = 0;

    for (int i = 0; i < 2; i++)
        for (uint32_t j = 0; j < context->caches[i].count; j++)
            used += context->caches[i].cells[j].position >= 0;
    return used;
}
