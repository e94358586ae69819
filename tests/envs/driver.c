/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that uses the public library and does what the lines of its input say, one answer a line; what the
 * library logs goes to standard error. For tests that need a process of their own: another user, other limits, a
 * sandbox, one that is killed, two on one directory. See envs.py.
 */
#include <dirent.h>
#include <errno.h>
#include <seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kvonce.h"

enum { WORDS_MAX = 8, NAME = 32 };

static kvo_store *store;
static kvo_space space;
static kvo_pin pin;

static void on_log(void *context, const char *line)
{
    (void)context;
    fprintf(stderr, "%s\n", line);
}

static uint64_t number(const char *word) { return word ? strtoull(word, NULL, 10) : 0; }

static void answer(int status, const char *text) { printf("%s %s\n", kvo_status_name(status), text); }

/* ---- bytes that follow from a number ---- */

static void name_of(uint64_t n, uint8_t name[NAME])
{
    memset(name, 0, NAME);
    snprintf((char *)name, NAME, "driver-%llu", (unsigned long long)n);
}

static uint8_t byte_of(uint64_t n, uint64_t i)
{
    uint64_t x = (n * 0x9e3779b97f4a7c15u + (i >> 3)) * 0xbf58476d1ce4e5b9u;
    return (uint8_t)(x >> 32 >> (i & 7));
}

static bool is_payload(const uint8_t *memory, uint64_t n, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        if (memory[i] != byte_of(n, i))
            return false;
    return true;
}

/* ---- commands ---- */

/* open TIERS BLOCK_BYTES ENGINE FLAGS; ENGINE: a kvo_io_engine */
static void do_open(char **word)
{
    kvo_options o = KVO_OPTIONS_INIT;
    kvo_error error = {{0}};
    o.block_bytes = number(word[1]);
    o.io_engine = (int)number(word[2]);
    o.flags = (uint32_t)number(word[3]);
    o.on_log = on_log;
    answer(kvo_open(word[0], &o, &store, &error), error.text);
}

/* space LABEL BYTES MODEL DTYPE */
static void do_space(char **word)
{
    kvo_space_config c = KVO_SPACE_CONFIG_INIT;
    kvo_error error = {{0}};
    c.label = word[0];
    c.block_bytes_max = number(word[1]);
    c.model = word[2];
    c.dtype = word[2] ? word[3] : NULL;
    c.block_positions = 16;
    answer(kvo_space_open(store, &c, &space, &error), error.text);
}

/* put FIRST COUNT BYTES LEVEL, get FIRST COUNT BYTES: how many of each answer; the answer "wrong" is a wrong byte */
static void do_blocks(char **word, bool is_put)
{
    uint64_t first = number(word[0]), bytes = number(word[2]);
    unsigned counts[256] = {0}, wrong = 0;
    uint8_t *memory = malloc(bytes + 1), name[NAME];
    kvo_put_options options = KVO_PUT_OPTIONS_INIT;
    kvo_get_options how = KVO_GET_OPTIONS_INIT;
    options.level = word[3] ? (int)number(word[3]) : KVO_SEALED;
    options.deadline_ns = how.deadline_ns = 5000000000u;
    for (uint64_t n = first; n < first + number(word[1]); n++) {
        kvo_names names = {.first = name, .name_bytes = NAME, .count = 1, .space = space};
        kvo_segment segment = {memory, bytes};
        kvo_memory where = {&segment, NULL};
        kvo_answer a = {0};
        name_of(n, name);
        for (uint64_t i = 0; i < bytes; i++)
            memory[i] = is_put ? byte_of(n, i) : 0;
        int r = is_put ? kvo_put(store, &names, &where, &options, &a) : kvo_get(store, &names, &where, &how, &a);
        counts[(r == KVO_OK ? a.status : r) & 255]++;
        wrong += !is_put && r == KVO_OK && a.status == KVO_OK && !is_payload(memory, n, bytes);
    }
    free(memory);
    for (int i = 0; i < 256; i++)
        if (counts[i])
            printf("%s=%u ", kvo_status_name(i), counts[i]);
    printf("wrong=%u\n", wrong);
}

static void do_pin(char **word)
{
    uint8_t name[NAME];
    kvo_names names = {.first = name, .name_bytes = NAME, .count = 1, .space = space};
    kvo_answer a = {0};
    name_of(number(word[0]), name);
    int r = kvo_pin_blocks(store, &names, NULL, &pin, &a);
    answer(r == KVO_OK ? a.status : r, "");
}

static unsigned open_files(void)
{
    DIR *directory = opendir("/proc/self/fd");
    unsigned count = 0;
    while (directory && readdir(directory))
        count++;
    closedir(directory);
    return count;
}

static void do_stat(void)
{
    kvo_stat s = KVO_STAT_INIT;
    kvo_tier_stat t;
    int r = kvo_stat_store(store, &s);
    printf("status=%s engine=%d registered=%d blocks=%llu pinned=%llu damaged=%llu digest_misses=%llu files=%u",
           kvo_status_name(r), s.io_engine, s.io_registered, (unsigned long long)s.blocks,
           (unsigned long long)s.pinned_blocks, (unsigned long long)s.damaged_slots,
           (unsigned long long)s.digest_misses, open_files());
    for (uint32_t i = 0; i < s.present_tier_count && kvo_stat_tier(store, i, &t) == KVO_OK; i++)
        printf(" %s.direct=%d %s.capacity=%llu %s.errors=%llu %s.resident=%llu", t.name, t.direct_io, t.name,
               (unsigned long long)t.capacity_bytes, t.name, (unsigned long long)t.io_errors, t.name,
               (unsigned long long)t.resident_blocks);
    printf("\n");
}

/* From now on the three calls of io_uring end with this errno value, as in a container. */
static void do_sandbox(char **word)
{
    static const char *const calls[] = {"io_uring_setup", "io_uring_enter", "io_uring_register"};
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    int r = filter ? 0 : -ENOMEM;
    for (size_t i = 0; r == 0 && i < sizeof calls / sizeof *calls; i++)
        r = seccomp_rule_add(filter, SCMP_ACT_ERRNO((uint32_t)number(word[0])),
                             seccomp_syscall_resolve_name(calls[i]), 0);
    if (r == 0) /* all threads, those of a store that is open as well */
        r = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
    if (r == 0)
        r = seccomp_load(filter);
    seccomp_release(filter);
    printf("%d\n", r);
}

/* fork idle|exit|crash|close: a child that inherits the store: how it ended, or the number of one that stays. */
static void do_fork(char **word)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        kvo_stat s = KVO_STAT_INIT;
        if (kvo_stat_store(store, &s) != KVO_E_FORKED)
            _exit(1);
        if (strcmp(word[0], "close") == 0)
            _exit(kvo_close(store, 0) == KVO_E_FORKED ? 0 : 1);
        if (strcmp(word[0], "crash") == 0)
            raise(SIGKILL);
        if (strcmp(word[0], "exit") == 0)
            exit(0);
        fclose(stdout);
        fclose(stderr);
        for (;;)
            pause();
    }
    if (strcmp(word[0], "idle") == 0)
        printf("%d\n", (int)child);
    else if (child < 0 || waitpid(child, &status, 0) != child)
        printf("errno=%d\n", errno);
    else if (WIFSIGNALED(status))
        printf("signal=%d\n", WTERMSIG(status));
    else
        printf("exit=%d\n", WEXITSTATUS(status));
}

static void command(char *verb, char **word)
{
    if (strcmp(verb, "open") == 0)
        do_open(word);
    else if (strcmp(verb, "space") == 0)
        do_space(word);
    else if (strcmp(verb, "put") == 0 || strcmp(verb, "get") == 0)
        do_blocks(word, verb[0] == 'p');
    else if (strcmp(verb, "pin") == 0)
        do_pin(word);
    else if (strcmp(verb, "sync") == 0)
        answer(kvo_sync(store, NULL, (int)number(word[0]), 20000000000u, NULL), "");
    else if (strcmp(verb, "stat") == 0)
        do_stat();
    else if (strcmp(verb, "sandbox") == 0)
        do_sandbox(word);
    else if (strcmp(verb, "fork") == 0)
        do_fork(word);
    else if (strcmp(verb, "close") == 0) {
        answer(kvo_close(store, 20000000000u), "");
        store = NULL;
    } else
        printf("what is \"%s\"?\n", verb);
}

int main(void)
{
    char line[4096];
    while (fgets(line, sizeof line, stdin)) {
        char *word[WORDS_MAX] = {NULL}, *rest = NULL;
        size_t count = 0;
        for (char *w = strtok_r(line, " \n", &rest); w && count < WORDS_MAX; w = strtok_r(NULL, " \n", &rest))
            word[count++] = w;
        if (count)
            command(word[0], word + 1);
        fflush(stdout);
    }
    return 0;
}
