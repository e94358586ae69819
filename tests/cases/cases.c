/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"

#include <pthread.h>

_Noreturn void cases_fail(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: %s, KVO_TEST_SEED=%llu\n", file, line, what, (unsigned long long)cases_seed());
    abort();
}

unsigned long cases_many(const char *variable, unsigned long usual)
{
    const char *text = getenv(variable);
    return text && *text ? strtoul(text, NULL, 10) : usual;
}

uint64_t cases_seed(void) { return cases_many("KVO_TEST_SEED", 1); }

uint32_t cases_draw(uint64_t *random, uint32_t below)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*random >> 33) % below;
}

void cases_open_on(base_env *machine, const char *tiers)
{
    char text[1024], paths[1024];
    kvo_tier_config configs[KVO_TIERS_MAX];
    kvo_error error = {{0}};
    uint32_t count;
    fixture_text(tiers, text, sizeof text);
    assert_int_equal(kvo_parse_tiers(text, configs, &count, paths, sizeof paths, NULL), KVO_OK);
    if (store_open(machine, configs, count, &options, &store, &error) != KVO_OK)
        fail_msg("open: %s", error.text);
}

int cases_put(uint64_t number, size_t bytes, uint32_t version, uint64_t deadline_ns)
{
    uint8_t *memory = malloc(bytes);
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    kvo_answer answer;
    kvo_names names = names_of(number, 1);
    kvo_segment segment = {memory, bytes};
    kvo_memory of = {&segment, NULL};
    o.deadline_ns = deadline_ns;
    payload_make(memory, bytes, number, version);
    MUST(kvo_put(store, &names, &of, &o, &answer) == KVO_OK);
    free(memory);
    return answer.status;
}

int cases_get(uint64_t number, size_t bytes, uint32_t version, uint64_t deadline_ns)
{
    uint8_t *memory = malloc(bytes);
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    kvo_answer answer;
    kvo_names names = names_of(number, 1);
    kvo_segment segment = {memory, bytes};
    kvo_memory to = {&segment, NULL};
    o.deadline_ns = deadline_ns;
    MUST(kvo_get(store, &names, &to, &o, &answer) == KVO_OK);
    MUST(answer.status != KVO_OK || payload_is(memory, bytes, number, version));
    free(memory);
    return answer.status;
}

cases_batch cases_batch_make(uint64_t first, size_t count, size_t bytes, bool filled)
{
    cases_batch b = {.count = count, .bytes = bytes};
    b.list = malloc(count * NAME_BYTES);
    b.memory = aligned_alloc(4096, (count * bytes + 4095) / 4096 * 4096);
    b.segments = calloc(count, sizeof *b.segments);
    b.answers = calloc(count, sizeof *b.answers);
    for (size_t i = 0; i < count; i++) {
        b.segments[i] = (kvo_segment){b.memory + i * bytes, bytes};
        name_of(first + i, b.list + i * NAME_BYTES);
        if (filled)
            payload_make(b.segments[i].base, bytes, first + i, 0);
    }
    b.names = (kvo_names){.first = b.list, .name_bytes = NAME_BYTES, .count = count, .space = space};
    b.of = (kvo_memory){b.segments, NULL};
    return b;
}

void cases_batch_free(cases_batch *b)
{
    free(b->list);
    free(b->memory);
    free(b->segments);
    free(b->answers);
}

size_t cases_batch_count(const cases_batch *b, int status)
{
    size_t n = 0;
    for (size_t i = 0; i < b->count; i++)
        n += b->answers[i].status == status;
    return n;
}

bool cases_batch_right(const cases_batch *b, uint64_t first)
{
    for (size_t i = 0; i < b->count; i++)
        if (!payload_is(b->segments[i].base, b->bytes, first + i, 0))
            return false;
    return true;
}

typedef struct thread_of {
    void (*body)(unsigned number);
    unsigned number;
} thread_of;

static void *run(void *argument)
{
    thread_of *t = argument;
    t->body(t->number);
    return NULL;
}

void cases_threads(unsigned count, void (*body)(unsigned number))
{
    pthread_t threads[64];
    thread_of of[64];
    MUST(count <= 64);
    for (unsigned i = 0; i < count; i++) {
        of[i] = (thread_of){body, i};
        MUST(pthread_create(&threads[i], NULL, run, &of[i]) == 0);
    }
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

uint64_t cases_evictions(uint32_t tier)
{
    kvo_tier_stat t = tier_stat(tier);
    return t.clean_discards + t.other_evictions;
}

uint64_t cases_there(uint64_t first, uint64_t count)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < count; i++)
        n += exists(first + i, NULL) == KVO_OK;
    return n;
}
