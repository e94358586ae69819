/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the store share: directories that go away, names and payloads that follow from a
 * number, one-block calls. A payload follows from (number, version), so any byte can be
 * checked without keeping it; the bytes of two versions differ from the first one on.
 */
#ifndef FIXTURE_H
#define FIXTURE_H

#include "kvonce.h"
#include "store/open.h"
#include "test.h"

#define NAME_BYTES 32u

/* ---- directories ---- */

/* A path below the test's own directory, 0 .. 3; it does not exist at first. */
const char *fixture_path(int which);
void fixture_remove(int which); /* with all that is in it */
void fixture_copy(int from, int to);
int fixture_setup(void **state);    /* cmocka's, before each test */
int fixture_teardown(void **state); /* closes what is open, removes all directories */

/* ---- a store ---- */

extern kvo_store *store;
extern kvo_space space;
extern kvo_options options; /* of the next open; defaults after setup: 64 KiB blocks, no write-out by itself */
extern bool with_mover;     /* blocks are demoted ahead of need; false after setup. KVO_TEST_MOVER=1: always */
uint32_t fixture_stepped(void); /* the flag of that */

/* "@0" .. "@3" behind a ":" stand for fixture_path(). KVO_TEST_WRAPPERS=fault: stands in front of each tier. */
void fixture_text(const char *tiers, char *text, size_t bytes); /* with the paths in their places */
int try_open(const char *tiers, kvo_error *error);
void open_is_refused(const char *tiers, int status, const char *text); /* with that text somewhere in the line */
void open_store(const char *tiers);
void open_more(const char *tiers); /* with space "b" of options.block_bytes instead of 64 KiB */
void close_store(void);            /* must say KVO_OK */
void abandon_store(void);          /* as a crash would leave the directory: for a child that exits */
kvo_space open_space(const char *label, uint64_t block_bytes_max);
#define check_valid() check_valid_at(__FILE__, __LINE__)
void check_valid_at(const char *file, int line);

/* ---- a machine of the test's own ---- */

size_t iov_bytes(const struct iovec *iov, int count); /* of all pieces of a read or a write */

/* ---- names and payloads ---- */

void name_of(uint64_t number, uint8_t name[NAME_BYTES]);
void payload_make(void *out, size_t bytes, uint64_t number, uint32_t version);
int payload_is(const void *memory, size_t bytes, uint64_t number, uint32_t version);
/* Names first .. first + count - 1, in the fixture's space; memory is one of 4 buffers in turn. */
kvo_names names_of(uint64_t first, size_t count);
kvo_target target_of(uint64_t first, size_t count);

/* ---- one block ---- */

int put(uint64_t number, size_t bytes);
int put_as(uint64_t number, size_t bytes, uint32_t version, const kvo_put_options *o, kvo_answer *answer);
/* KVO_OK only with the right bytes: asserts it. */
int get(uint64_t number, size_t bytes);
int get_as(uint64_t number, size_t bytes, uint32_t version, const kvo_get_options *o, kvo_answer *answer);
int rewrite(uint64_t number, size_t bytes, uint32_t version, uint32_t format, int level);
int exists(uint64_t number, kvo_answer *answer);
int pin(uint64_t number, kvo_pin *pin);
int drop(uint64_t number, int level); /* kvo_remove() of one name: its answer */
int touch(uint64_t number);
kvo_block_info info_of(uint64_t number);
kvo_tier_stat tier_stat(uint32_t index);
kvo_stat store_stat(void);
kvo_policy policy_of(uint64_t number);
int set_policy(uint64_t number, const kvo_policy *policy, uint32_t mask);
/* Puts fresh names from `first` on; returns how many were stored. */
size_t fill_with(uint64_t first, size_t count, size_t bytes);

/* Runs body in a child and returns how it ended, as waitpid() says. */
int in_child(void (*body)(void *context), void *context);
#define assert_child_ok(status) assert_int_equal(status, 0)

#define FIXTURE_TEST(f) cmocka_unit_test_setup_teardown(f, fixture_setup, fixture_teardown)

#endif
