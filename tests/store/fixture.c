/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <pthread.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

kvo_store *store;
kvo_space space;
kvo_options options;

static char root[64];
static uint8_t *buffer; /* of one payload */
enum { BUFFER_BYTES = 9 << 20 };

/* KVO_TEST_ONLY=PATTERN: of a program's tests only those whose names match. */
__attribute__((constructor)) static void choose_tests(void)
{
    if (getenv("KVO_TEST_ONLY"))
        cmocka_set_test_filter(getenv("KVO_TEST_ONLY"));
}

/* ---- directories ---- */

const char *fixture_path(int which)
{
    static char paths[4][80];
    snprintf(paths[which], sizeof paths[which], "%s/%d", root, which);
    return paths[which];
}

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *walk)
{
    (void)about, (void)kind, (void)walk;
    return remove(path);
}

static void remove_tree(const char *path) { nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS); }

void fixture_remove(int which) { remove_tree(fixture_path(which)); }

void fixture_copy(int from, int to)
{
    char command[256], a[80];
    snprintf(a, sizeof a, "%s", fixture_path(from));
    snprintf(command, sizeof command, "cp -a --sparse=always %s %s", a, fixture_path(to));
    assert_int_equal(system(command), 0);
}

int fixture_setup(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/kvonce-test-XXXXXX", base && strlen(base) < 40 ? base : "/tmp");
    assert_non_null(mkdtemp(root));
    store = NULL;
    with_mover = false;
    options = (kvo_options)KVO_OPTIONS_INIT;
    options.block_bytes = 65536;
    options.io_threads = 2;
    options.write_out_ns = 3600000000000u;
    if (buffer == NULL)
        buffer = aligned_alloc(4096, BUFFER_BYTES);
    return 0;
}

int fixture_teardown(void **state)
{
    (void)state;
    kvo_close(store, 0);
    store = NULL;
    remove_tree(root);
    return 0;
}

/* ---- a store ---- */

bool with_mover;

uint32_t fixture_stepped(void) { return with_mover || getenv("KVO_TEST_MOVER") ? 0 : KVO_OPEN_STEPPED; }

void fixture_text(const char *tiers, char *text, size_t bytes)
{
    const char *wrappers = options.flags & KVO_OPEN_GHOST ? NULL : getenv("KVO_TEST_WRAPPERS");
    size_t n = 0;
    for (const char *p = tiers; *p && n < bytes; p++) {
        if (wrappers && (p == tiers || p[-1] == ','))
            n += (size_t)snprintf(text + n, bytes - n, "%s+", wrappers);
        if (*p == '@' && p > tiers && p[-1] == ':')
            n += (size_t)snprintf(text + n, bytes - n, "%s", fixture_path(*++p - '0'));
        else
            text[n++] = *p;
    }
    assert_true(n < bytes);
    text[n] = 0;
}

int try_open(const char *tiers, kvo_error *error)
{
    char text[1024];
    fixture_text(tiers, text, sizeof text);
    kvo_options o = options;
    o.flags |= fixture_stepped();
    return kvo_open(text, &o, &store, error);
}

void open_is_refused(const char *tiers, int status, const char *text)
{
    kvo_error error = {{0}};
    int r = try_open(tiers, &error);
    if (r != status || strstr(error.text, text) == NULL)
        fail_msg("%s: %d, \"%s\" lacks \"%s\"", tiers, r, error.text, text);
    assert_null(store);
}

kvo_space open_space(const char *label, uint64_t block_bytes_max)
{
    kvo_space_config config = KVO_SPACE_CONFIG_INIT;
    kvo_space opened = 0;
    kvo_error error = {{0}};
    config.label = label;
    config.model = "m";
    config.block_positions = 16;
    config.block_bytes_max = block_bytes_max;
    int r = kvo_space_open(store, &config, &opened, &error);
    if (r != KVO_OK)
        fail_msg("space: %s", error.text);
    return opened;
}

static void open_with(const char *tiers, const char *label, uint64_t bytes)
{
    kvo_error error = {{0}};
    if (try_open(tiers, &error) != KVO_OK)
        fail_msg("open: %s", error.text);
    space = open_space(label, bytes);
}

void open_store(const char *tiers) { open_with(tiers, "a", 65536); }
void open_more(const char *tiers) { open_with(tiers, "b", options.block_bytes); }

void close_store(void)
{
    check_valid();
    int r = kvo_close(store, KVO_FOREVER);
    store = NULL;
    assert_int_equal(r, KVO_OK);
}

void abandon_store(void) { store = NULL; }

void check_valid_at(const char *file, int line)
{
    char why[256] = "";
    unsigned tries = 2000; /* the keeper and the mover may be at it: what is wrong stays wrong */
    bool valid = false;
    for (; tries && !(valid = store_valid(store, why, sizeof why)); tries--)
        usleep(1000);
    if (!valid) {
        print_error("%s\n", why);
        _fail(file, line);
    }
}

/* ---- a machine of the test's own ---- */

size_t iov_bytes(const struct iovec *iov, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += iov[i].iov_len;
    return bytes;
}

/* ---- names and payloads ---- */

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

void name_of(uint64_t number, uint8_t name[NAME_BYTES])
{
    for (size_t i = 0; i < NAME_BYTES / 8; i++) {
        uint64_t word = mix(number * 4 + i + 0x9e3779b97f4a7c15u);
        memcpy(name + i * 8, &word, 8);
    }
}

static uint64_t payload_word(uint64_t seed, uint64_t i) { return (seed + i) * 0x9e3779b97f4a7c15u; }

void payload_make(void *out, size_t bytes, uint64_t number, uint32_t version)
{
    uint64_t seed = mix(number ^ (uint64_t)version << 48 ^ 0x1234567);
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = payload_word(seed, i / 8);
        if (i == 0) /* however short, two versions differ */
            word = (word & ~0xffull) | ((number * 7 + version * 31) & 0xff);
        memcpy((uint8_t *)out + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

int payload_is(const void *memory, size_t bytes, uint64_t number, uint32_t version)
{
    uint8_t *want = malloc(bytes + 8);
    payload_make(want, bytes, number, version);
    int same = memcmp(want, memory, bytes) == 0;
    free(want);
    return same;
}

/* The last four lists of names of each thread stay; a thread's go with it. */
typedef struct name_lists {
    uint8_t *list[4];
    unsigned turn;
} name_lists;
static pthread_key_t lists_key;
static pthread_once_t lists_once = PTHREAD_ONCE_INIT;

static void lists_free(void *argument)
{
    name_lists *lists = argument;
    for (unsigned i = 0; i < 4; i++)
        free(lists->list[i]);
    free(lists);
}

static void lists_make(void) { pthread_key_create(&lists_key, lists_free); }

static uint8_t **next_list(void)
{
    pthread_once(&lists_once, lists_make);
    name_lists *lists = pthread_getspecific(lists_key);
    if (lists == NULL) {
        lists = calloc(1, sizeof *lists);
        pthread_setspecific(lists_key, lists);
    }
    return &lists->list[lists->turn++ % 4];
}

kvo_names names_of(uint64_t first, size_t count)
{
    uint8_t **list = next_list();
    free(*list);
    *list = malloc(count * NAME_BYTES + 1);
    for (size_t i = 0; i < count; i++)
        name_of(first + i, *list + i * NAME_BYTES);
    return (kvo_names){.first = *list, .name_bytes = NAME_BYTES, .count = count, .space = space};
}

kvo_target target_of(uint64_t first, size_t count)
{
    return (kvo_target){.by = KVO_BY_NAMES, .names = names_of(first, count)};
}

/* ---- one block ---- */

int put_as(uint64_t number, size_t bytes, uint32_t version, const kvo_put_options *o, kvo_answer *answer)
{
    kvo_answer ignored, *a = answer ? answer : &ignored;
    kvo_names names = names_of(number, 1);
    payload_make(buffer, bytes, number, version);
    kvo_segment segment = {buffer, bytes};
    kvo_memory memory = {&segment, NULL};
    assert_int_equal(kvo_put(store, &names, &memory, o, a), KVO_OK);
    return a->status;
}

int put(uint64_t number, size_t bytes) { return put_as(number, bytes, 0, NULL, NULL); }

int get_as(uint64_t number, size_t bytes, uint32_t version, const kvo_get_options *o, kvo_answer *answer)
{
    kvo_answer ignored, *a = answer ? answer : &ignored;
    kvo_names names = names_of(number, 1);
    memset(buffer, 0x5a, bytes + 1);
    kvo_segment segment = {buffer, bytes};
    kvo_memory memory = {&segment, NULL};
    assert_int_equal(kvo_get(store, &names, &memory, o, a), KVO_OK);
    if (a->status == KVO_OK && !payload_is(buffer, bytes, number, version))
        fail_msg("block %llu: wrong bytes", (unsigned long long)number);
    assert_int_equal(buffer[bytes], 0x5a);
    return a->status;
}

int get(uint64_t number, size_t bytes) { return get_as(number, bytes, 0, NULL, NULL); }

int rewrite(uint64_t number, size_t bytes, uint32_t version, uint32_t format, int level)
{
    kvo_answer answer;
    kvo_put_options o = KVO_PUT_OPTIONS_INIT;
    o.level = level;
    o.deadline_ns = 0;
    kvo_names names = names_of(number, 1);
    payload_make(buffer, bytes, number, version);
    kvo_segment segment = {buffer, bytes};
    kvo_memory memory = {&segment, NULL};
    assert_int_equal(kvo_rewrite(store, &names, &memory, format, &o, &answer), KVO_OK);
    return answer.status;
}

int exists(uint64_t number, kvo_answer *answer)
{
    kvo_answer ignored, *a = answer ? answer : &ignored;
    kvo_names names = names_of(number, 1);
    assert_int_equal(kvo_exists(store, &names, a), KVO_OK);
    return a->status;
}

int pin(uint64_t number, kvo_pin *p)
{
    kvo_answer answer;
    kvo_get_options o = KVO_GET_OPTIONS_INIT;
    o.deadline_ns = 0;
    kvo_names names = names_of(number, 1);
    assert_int_equal(kvo_pin_blocks(store, &names, &o, p, &answer), KVO_OK);
    assert_int_equal(answer.status == KVO_OK, p->token != 0);
    return answer.status;
}

int drop(uint64_t number, int level)
{
    kvo_answer answer;
    kvo_target target = target_of(number, 1);
    kvo_remove(store, &target, level, 0, &answer, NULL);
    return answer.status;
}

int touch(uint64_t number)
{
    kvo_answer answer;
    kvo_target target = target_of(number, 1);
    assert_int_equal(kvo_touch(store, &target, &answer), KVO_OK);
    return answer.status;
}

kvo_block_info info_of(uint64_t number)
{
    kvo_block_info info;
    uint64_t cursor = 0;
    size_t count = 0;
    kvo_target target = target_of(number, 1);
    assert_int_equal(kvo_walk(store, &target, &cursor, &info, 1, &count), KVO_OK);
    if (count != 1)
        memset(&info, 0, sizeof info);
    return info;
}

kvo_tier_stat tier_stat(uint32_t index)
{
    kvo_tier_stat stat;
    assert_int_equal(kvo_stat_tier(store, index, &stat), KVO_OK);
    return stat;
}

kvo_stat store_stat(void)
{
    kvo_stat stat = KVO_STAT_INIT;
    assert_int_equal(kvo_stat_store(store, &stat), KVO_OK);
    return stat;
}

kvo_policy policy_of(uint64_t number)
{
    kvo_policy policy;
    kvo_answer answer;
    kvo_target target = target_of(number, 1);
    assert_int_equal(kvo_policy_get(store, &target, &policy, &answer), KVO_OK);
    assert_int_equal(answer.status, KVO_OK);
    return policy;
}

int set_policy(uint64_t number, const kvo_policy *policy, uint32_t mask)
{
    kvo_answer answer;
    kvo_target target = target_of(number, 1);
    int r = kvo_policy_set(store, &target, policy, mask, &answer, NULL);
    return r == KVO_OK ? answer.status : r;
}

size_t fill_with(uint64_t first, size_t count, size_t bytes)
{
    size_t stored = 0;
    for (size_t i = 0; i < count; i++)
        stored += put(first + i, bytes) == KVO_STORED;
    return stored;
}

int in_child(void (*body)(void *context), void *context)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        body(context);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}
