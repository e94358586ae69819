/* SPDX-License-Identifier: Apache-2.0 */
/* Reuse distances against a list that is moved to front, access by access, through growing tables and time run out. */
#include "../../src/cli/common.h"
#include "../../src/cli/reuse.h"
#include "test.h"

#include <stdlib.h>

#define KEYS 600
#define ACCESSES 6000

/* A least-recently-used cache of unlimited size, newest first. */
typedef struct stack {
    uint64_t keys[KEYS];
    size_t count;
    uint64_t served[CLI_REUSE_LOGS], first;
} stack;

static void stack_touch(stack *s, uint64_t key)
{
    size_t at = 0;
    while (at < s->count && s->keys[at] != key) {
        at++;
    }
    if (at == s->count) {
        s->first++;
        s->count++;
    } else {
        for (unsigned log = 0; log < CLI_REUSE_LOGS; log++) {
            s->served[log] += at < (uint64_t)1 << log; /* `at` others were touched since */
        }
    }
    memmove(s->keys + 1, s->keys, at * sizeof *s->keys);
    s->keys[0] = key;
}

static uint64_t compare(uint64_t seed, uint64_t keys, unsigned shape)
{
    uint64_t random = seed, i;
    stack *s = cli_alloc(1, sizeof *s);
    cli_reuse r;
    cli_reuse_open(&r, 4, 8); /* both too small: keys are placed anew, and time is pushed together, again and again */
    for (i = 0; i < ACCESSES; i++) {
        uint64_t draw = cli_random(&random), below = shape == 0 ? keys : 1 + cli_random(&random) % keys;
        uint64_t key = shape == 2 ? 1 + i % keys : 1 + draw % below; /* even, mostly few, a cycle */
        cli_reuse_touch(&r, key * 0x9e3779b97f4a7c15u);
        stack_touch(s, key);
    }
    if (r.access_count != ACCESSES || r.first_count != s->first) {
        fail_msg("seed %llu: %llu first accesses, not %llu", (unsigned long long)seed,
                 (unsigned long long)r.first_count, (unsigned long long)s->first);
    }
    for (unsigned log = 0; log < CLI_REUSE_LOGS; log++) {
        if (cli_reuse_served(&r, log) != s->served[log]) {
            fail_msg("seed %llu, %llu keys, shape %u: 2^%u keys serve %llu, not %llu", (unsigned long long)seed,
                     (unsigned long long)keys, shape, log, (unsigned long long)cli_reuse_served(&r, log),
                     (unsigned long long)s->served[log]);
        }
    }
    cli_reuse_close(&r);
    free(s);
    return i;
}

static void distances_are_those_of_a_list(void **state)
{
    static const uint64_t counts[] = {1, 2, 3, 7, 8, 9, 64, 100, KEYS};
    uint64_t compared = 0;
    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        for (unsigned shape = 0; shape < 3; shape++) {
            compared += compare(1000 * i + shape + 1, counts[i], shape);
        }
    }
    printf("%llu accesses, each distance that of a list\n", (unsigned long long)compared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(distances_are_those_of_a_list)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
