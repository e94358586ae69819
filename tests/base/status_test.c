/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"
#include "test.h"

#include <errno.h>
#include <stdio.h>

/* The values of the public enum, by group. */
static const struct {
    int first, last;
    base_status_group group;
} ranges[] = {
    {KVO_OK, KVO_OK, BASE_GROUP_DONE},
    {KVO_STORED, KVO_CANCELLED, BASE_GROUP_ANSWER},
    {KVO_E_ARGUMENT, KVO_E_UNSUPPORTED, BASE_GROUP_CALLER},
    {KVO_E_NOT_FOUND, KVO_E_MISMATCH, BASE_GROUP_DIRECTORY},
    {KVO_E_MEMORY, KVO_E_PERMISSION, BASE_GROUP_MACHINE},
};

static base_status_group expected_group(int status)
{
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (status >= ranges[i].first && status <= ranges[i].last)
            return ranges[i].group;
    return BASE_GROUP_NONE;
}

static void every_status_has_a_name_a_text_and_its_group(void **state)
{
    (void)state;
    for (int status = -10; status < 200; status++) {
        const base_status_group group = expected_group(status);
        assert_int_equal(base_status_group_of(status), group);
        assert_non_null(kvo_status_name(status));
        assert_non_null(kvo_status_text(status));
        assert_int_equal(strcmp(kvo_status_name(status), "KVO_?") == 0, group == BASE_GROUP_NONE);
        assert_true(strlen(kvo_status_text(status)) > 3);
    }
    assert_string_equal(kvo_status_name(KVO_OK), "KVO_OK");
    assert_string_equal(kvo_status_name(KVO_E_IN_USE), "KVO_E_IN_USE");
}

static void names_and_texts_are_distinct(void **state)
{
    (void)state;
    for (int a = 0; a < 200; a++)
        for (int b = 0; b < a; b++)
            if (expected_group(a) != BASE_GROUP_NONE && expected_group(b) != BASE_GROUP_NONE) {
                assert_string_not_equal(kvo_status_name(a), kvo_status_name(b));
                assert_string_not_equal(kvo_status_text(a), kvo_status_text(b));
            }
}

static void every_cause_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(kvo_cause_name(KVO_CAUSE_NONE), "-");
    assert_string_equal(kvo_cause_name(KVO_CAUSE_PUT), "put");
    assert_string_equal(kvo_cause_name(KVO_CAUSE_RESIZE), "resize");
    assert_string_equal(kvo_cause_name(-1), "?");
    assert_string_equal(kvo_cause_name(KVO_CAUSE_UNREAD), "unread");
    assert_string_equal(kvo_cause_name(KVO_CAUSE_COUNT), "?");
    for (int a = 0; a < KVO_CAUSE_COUNT; a++) {
        assert_non_null(kvo_cause_name(a));
        for (int b = 0; b < a; b++)
            assert_string_not_equal(kvo_cause_name(a), kvo_cause_name(b));
    }
}

static void the_version_is_the_headers(void **state)
{
    (void)state;
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", KVO_VERSION_MAJOR, KVO_VERSION_MINOR, KVO_VERSION_PATCH);
    assert_string_equal(kvo_version(), version);
    assert_string_equal(kvo_version(), PROJECT_VERSION);
}

static void a_failure_is_one_line_that_ends(void **state)
{
    (void)state;
    kvo_error error;
    char long_text[600];

    assert_int_equal(base_fail(NULL, KVO_E_IO, "%s", "unread"), KVO_E_IO);
    assert_int_equal(base_fail(&error, KVO_E_RANGE, "field %d", 7), KVO_E_RANGE);
    assert_string_equal(error.text, "field 7");
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    base_fail(&error, KVO_E_RANGE, "%s", long_text);
    assert_int_equal(strlen(error.text), sizeof error.text - 1);
    assert_string_equal(error.text + sizeof error.text - 5, "x...");
}

static void errno_values_have_a_status(void **state)
{
    (void)state;
    static const int expected[][2] = {
        {0, KVO_OK},
        {ENOSPC, KVO_E_NO_SPACE},
        {EDQUOT, KVO_E_NO_SPACE},
        {EFBIG, KVO_E_NO_SPACE},
        {EROFS, KVO_E_PERMISSION},
        {EACCES, KVO_E_PERMISSION},
        {EPERM, KVO_E_PERMISSION},
        {ENOMEM, KVO_E_MEMORY},
        {ENOENT, KVO_E_NOT_FOUND},
        {EIO, KVO_E_IO},
        {EINVAL, KVO_E_IO},
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        assert_int_equal(base_status_of_errno(-expected[i][0]), expected[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_name_a_text_and_its_group),
        cmocka_unit_test(names_and_texts_are_distinct),
        cmocka_unit_test(every_cause_has_a_name),
        cmocka_unit_test(the_version_is_the_headers),
        cmocka_unit_test(a_failure_is_one_line_that_ends),
        cmocka_unit_test(errno_values_have_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
