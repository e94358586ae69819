/* SPDX-License-Identifier: Apache-2.0 */
/* Which engine a store gets. */
#include "test.h"

#include <stdlib.h>

#include "move/move.h"

static base_env other;

static int open_as(base_env *env, move_kind kind, move_kind *got)
{
    move_engine *e;
    kvo_error error = {{0}};
    int r = move_open(env, kind, 1, 1 << 20, &e, &error);
    assert_int_equal(r == KVO_OK, e != NULL);
    assert_int_equal(r == KVO_OK, error.text[0] == 0);
    if (e)
        *got = move_kind_of(e);
    move_close(e);
    return r;
}

static int setup(void **state)
{
    (void)state;
    unsetenv("KVONCE_IO");
    other = *base_env_posix();
    return 0;
}

static void automatic_is_io_uring_where_the_kernel_allows_it(void **state)
{
    (void)state;
    move_kind got = MOVE_AUTO;
    int r = open_as(base_env_posix(), MOVE_URING, &got);
    assert_true(r == KVO_OK || r == KVO_E_UNSUPPORTED);
    assert_int_equal(open_as(base_env_posix(), MOVE_AUTO, &got), KVO_OK);
    assert_int_equal(got, r == KVO_OK ? MOVE_URING : MOVE_THREADS);
}

static void the_environment_variable_decides_for_automatic_alone(void **state)
{
    (void)state;
    move_kind got = MOVE_AUTO;
    setenv("KVONCE_IO", "threads", 1);
    assert_int_equal(open_as(base_env_posix(), MOVE_AUTO, &got), KVO_OK);
    assert_int_equal(got, MOVE_THREADS);
    setenv("KVONCE_IO", "auto", 1);
    assert_int_equal(open_as(base_env_posix(), MOVE_AUTO, &got), KVO_OK);
    setenv("KVONCE_IO", "", 1);
    assert_int_equal(open_as(base_env_posix(), MOVE_AUTO, &got), KVO_OK);
    setenv("KVONCE_IO", "threads ", 1);
    assert_int_equal(open_as(base_env_posix(), MOVE_AUTO, &got), KVO_E_ARGUMENT);
    assert_int_equal(open_as(base_env_posix(), MOVE_THREADS, &got), KVO_OK);
    unsetenv("KVONCE_IO");
}

static void automatic_is_threads_where_they_serve_better_and_the_variable_decides_there_too(void **state)
{
    (void)state;
    move_kind got = MOVE_AUTO;
    const char *const nothing[] = {"auto", "", "threads"};
    assert_int_equal(open_as(base_env_posix(), MOVE_AUTO_THREADS, &got), KVO_OK);
    assert_int_equal(got, MOVE_THREADS);
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) {
        setenv("KVONCE_IO", nothing[i], 1);
        assert_int_equal(open_as(base_env_posix(), MOVE_AUTO_THREADS, &got), KVO_OK);
        assert_int_equal(got, MOVE_THREADS);
    }
    setenv("KVONCE_IO", "io_uring", 1);
    int r = open_as(base_env_posix(), MOVE_URING, &got);
    assert_int_equal(open_as(base_env_posix(), MOVE_AUTO_THREADS, &got), r);
    if (r == KVO_OK)
        assert_int_equal(got, MOVE_URING);
    setenv("KVONCE_IO", "ring", 1);
    assert_int_equal(open_as(base_env_posix(), MOVE_AUTO_THREADS, &got), KVO_E_ARGUMENT);
    unsetenv("KVONCE_IO");
}

static void what_passes_by_an_environment_is_not_used_in_it(void **state)
{
    (void)state;
    move_kind got = MOVE_AUTO;
    assert_int_equal(open_as(&other, MOVE_AUTO, &got), KVO_OK);
    assert_int_equal(got, MOVE_THREADS);
    setenv("KVONCE_IO", "io_uring", 1);
    assert_int_equal(open_as(&other, MOVE_AUTO, &got), KVO_OK);
    assert_int_equal(got, MOVE_THREADS);
    unsetenv("KVONCE_IO");
    assert_int_equal(open_as(&other, MOVE_URING, &got), KVO_E_UNSUPPORTED);
    assert_int_equal(open_as(&other, MOVE_SIMULATED, &got), KVO_OK);
    assert_int_equal(open_as(base_env_posix(), MOVE_SIMULATED, &got), KVO_E_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(automatic_is_io_uring_where_the_kernel_allows_it),
        cmocka_unit_test(the_environment_variable_decides_for_automatic_alone),
        cmocka_unit_test(automatic_is_threads_where_they_serve_better_and_the_variable_decides_there_too),
        cmocka_unit_test(what_passes_by_an_environment_is_not_used_in_it),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
