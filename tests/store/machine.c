/* SPDX-License-Identifier: Apache-2.0 */
#include "machine.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

machine_state machine;

static base_env env_slow;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t goes_on = PTHREAD_COND_INITIALIZER;
static bool stopped;

void machine_stop(void)
{
    pthread_mutex_lock(&lock);
    stopped = true;
    pthread_mutex_unlock(&lock);
}

void machine_go_on(void)
{
    pthread_mutex_lock(&lock);
    stopped = false;
    pthread_cond_broadcast(&goes_on);
    pthread_mutex_unlock(&lock);
}

void machine_wait(int count)
{
    for (int i = 0; i < 20000 && machine.waiting < count; i++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    assert_true(machine.waiting >= count);
}

static void pass(void)
{
    pthread_mutex_lock(&lock);
    machine.waiting++;
    while (stopped)
        pthread_cond_wait(&goes_on, &lock);
    machine.waiting--;
    pthread_mutex_unlock(&lock);
}

static ssize_t slow_read(base_env *env, int file, const struct iovec *iov, int count, uint64_t offset)
{
    (void)env;
    pass();
    return base_env_posix()->read(base_env_posix(), file, iov, count, offset);
}

static ssize_t slow_write(base_env *env, int file, const struct iovec *iov, int count, uint64_t offset)
{
    (void)env;
    unsigned us = machine.write_us;
    pass();
    if (us && iov_bytes(iov, count) > 4096)
        nanosleep(&(struct timespec){0, us * 1000L}, NULL);
    return base_env_posix()->write(base_env_posix(), file, iov, count, offset);
}

static int slow_flush(base_env *env, int file)
{
    (void)env;
    pass();
    return base_env_posix()->flush(base_env_posix(), file);
}

static uint64_t ahead; /* never back: what a faster clock was ahead stays */

void machine_pass_time(uint64_t ns)
{
    pthread_mutex_lock(&lock);
    ahead += ns;
    pthread_mutex_unlock(&lock);
}

static uint64_t fast_now_ns(base_env *env)
{
    static uint64_t last;
    (void)env;
    pthread_mutex_lock(&lock);
    uint64_t now = base_env_posix()->now_ns(base_env_posix());
    if (last)
        ahead += (now - last) * (machine.clock_rate - 1);
    last = now;
    uint64_t told = now + ahead;
    pthread_mutex_unlock(&lock);
    return told;
}

static int sparse_allocate(base_env *env, int file, uint64_t bytes) { return env->truncate(env, file, bytes); }

static void *counted_alloc(base_env *env, size_t bytes)
{
    (void)env;
    void *memory = base_env_posix()->alloc(base_env_posix(), bytes);
    long now = memory ? atomic_fetch_add(&machine.memory_bytes, (long)bytes) + (long)bytes : 0;
    for (long most = machine.most; now > most && !atomic_compare_exchange_weak(&machine.most, &most, now);) {}
    return memory;
}

static void counted_free(base_env *env, void *memory, size_t bytes)
{
    (void)env;
    atomic_fetch_sub(&machine.memory_bytes, (long)bytes);
    base_env_posix()->free(base_env_posix(), memory, bytes);
}

int machine_try_open(const char *tiers, bool sparse, kvo_error *error)
{
    char text[1024], paths[4096];
    kvo_tier_config configs[KVO_TIERS_MAX];
    uint32_t count;
    size_t n = 0;
    for (const char *p = tiers; *p; p++)
        if (*p == '@')
            n += (size_t)snprintf(text + n, sizeof text - n, "%s", fixture_path(*++p - '0'));
        else
            text[n++] = *p;
    text[n] = 0;
    machine_go_on();
    machine.write_us = 0;
    machine.memory_bytes = machine.most = 0;
    machine.clock_rate = 1;
    env_slow = *base_env_posix();
    env_slow.now_ns = fast_now_ns;
    env_slow.read = slow_read;
    env_slow.write = slow_write;
    env_slow.flush = slow_flush;
    env_slow.alloc = counted_alloc;
    env_slow.free = counted_free;
    if (sparse)
        env_slow.allocate = sparse_allocate;
    int r = kvo_parse_tiers(text, configs, &count, paths, sizeof paths, error);
    kvo_options o = options;
    o.flags |= fixture_stepped();
    return r == KVO_OK ? store_open(&env_slow, configs, count, &o, &store, error) : r;
}

void machine_open(const char *tiers, bool sparse)
{
    kvo_error error = {{0}};
    if (machine_try_open(tiers, sparse, &error) != KVO_OK)
        fail_msg("open: %s", error.text);
    space = open_space("a", 65536);
}
