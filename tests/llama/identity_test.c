/* SPDX-License-Identifier: Apache-2.0 */
/* A model's identity: of the bytes of all its files, remembered as long as the file is the same, never longer. */
#include "test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kvonce_llama.h"

static char directory[64], cache[96];

static int open_directory(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/kvonce-identity.XXXXXX");
    if (mkdtemp(directory) == NULL)
        return -1;
    snprintf(cache, sizeof cache, "%s/identities", directory);
    return 0;
}

static int remove_directory(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", directory);
    return system(command);
}

typedef struct path {
    char text[128];
} path;

static path in_directory(const char *name)
{
    path out;

    snprintf(out.text, sizeof out.text, "%s/%s", directory, name);
    return out;
}

/* Written an hour ago, as far as times tell: what is younger than 2 s is not remembered. */
static path write_file(const char *name, const char *content)
{
    const path out = in_directory(name);
    FILE *file = fopen(out.text, "w");
    const struct timespec times[2] = {{.tv_sec = time(NULL) - 3600}, {.tv_sec = time(NULL) - 3600}};

    assert_non_null(file);
    assert_true(fputs(content, file) >= 0 && fclose(file) == 0);
    assert_int_equal(utimensat(AT_FDCWD, out.text, times, 0), 0);
    return out;
}

static int identify(const char *file, const char *remembered, char hex[65])
{
    uint8_t model[KVO_LLAMA_MODEL_BYTES];
    kvo_error error = {""};
    const int status = kvo_llama_model_identity(file, remembered, model, &error);

    assert_true(status == KVO_OK || error.text[0] != 0);
    for (size_t i = 0; i < sizeof model; i++)
        snprintf(hex + 2 * i, 3, "%02x", model[i]);
    return status;
}

#define ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" /* of FIPS 180-4 */

static void it_is_the_sha256_of_the_file(void **state)
{
    const path file = write_file("abc.gguf", "abc");
    char hex[65];

    (void)state;
    assert_int_equal(identify(file.text, NULL, hex), KVO_OK);
    assert_string_equal(hex, ABC);
    assert_int_equal(identify("/nonexistent/x.gguf", cache, hex), KVO_E_NOT_FOUND);
    assert_int_equal(identify(directory, NULL, hex), KVO_E_IO);
    const path pipe = in_directory("pipe");
    assert_int_equal(mkfifo(pipe.text, 0600), 0);
    assert_int_equal(identify(pipe.text, cache, hex), KVO_E_IO);
    assert_int_equal(kvo_llama_model_identity(NULL, NULL, NULL, NULL), KVO_E_ARGUMENT);
}

/* What the cache says is believed, so a lie in it shows whether it was read. */
static void lie(const char *from, char to)
{
    char text[4096] = "";
    FILE *file = fopen(cache, "r+");

    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    char *at = strstr(text, from);
    assert_non_null(at);
    assert_int_equal(fseek(file, at - text, SEEK_SET), 0);
    assert_true(fputc(to, file) == to && fclose(file) == 0);
}

static void wait_until_settled(void)
{
    sleep(4); /* the time of a file's last change cannot be set */
}

static void it_is_remembered_by_what_the_file_system_says(void **state)
{
    const path file = write_file("abc.gguf", "abc"), other = write_file("other.gguf", "abd");
    char hex[65], wrong[65] = ABC;

    (void)state;
    assert_int_equal(identify(file.text, cache, hex), KVO_OK); /* too young to be remembered */
    assert_int_equal(access(cache, F_OK), -1);
    wait_until_settled();
    assert_int_equal(identify(other.text, cache, hex), KVO_OK);
    assert_int_equal(identify(file.text, cache, hex), KVO_OK);
    assert_string_equal(hex, ABC);
    lie(ABC, wrong[0] = 'c');
    assert_int_equal(identify(file.text, cache, hex), KVO_OK);
    assert_string_equal(hex, wrong);

    /* Another content of the same length and time of modification. */
    write_file("abc.gguf", "xyz");
    assert_int_equal(identify(file.text, cache, hex), KVO_OK);
    assert_string_equal(hex, "3608bca1e44ea6c4d268eb6db02260269892c0b42b86bbf1e77a6fa16c3c9282");
}

static void a_damaged_cache_costs_time_only(void **state)
{
    const path file = write_file("abc.gguf", "abc");
    static const char *const contents[] = {"", "kvonce model identities 1", "another file\nof somebody\n",
                                           "kvonce model identities 1\n1 2 3 4.5 6.7 xx\n\n"};
    char hex[65];

    (void)state;
    wait_until_settled();
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        FILE *out = fopen(cache, "w");
        assert_true(out != NULL && fputs(contents[i], out) >= 0 && fclose(out) == 0);
        assert_int_equal(identify(file.text, cache, hex), KVO_OK);
        assert_string_equal(hex, ABC);
        lie(ABC, 'c'); /* it was written again */
    }
    assert_int_equal(identify(file.text, "/nonexistent/cache", hex), KVO_OK);
    assert_string_equal(hex, ABC);
}

static void parts_are_one_model(void **state)
{
    char hex[65], again[65], changed[65];
    const path first = write_file("m-00001-of-00003.gguf", "one"), second = write_file("m-00002-of-00003.gguf", "two");

    (void)state;
    assert_int_equal(identify(first.text, NULL, hex), KVO_E_NOT_FOUND); /* the third */
    write_file("m-00003-of-00003.gguf", "three");
    assert_int_equal(identify(first.text, NULL, hex), KVO_OK);
    assert_int_equal(identify(second.text, NULL, again), KVO_OK);
    assert_string_equal(hex, again);
    write_file("m-00003-of-00003.gguf", "four");
    assert_int_equal(identify(first.text, NULL, changed), KVO_OK);
    assert_string_not_equal(hex, changed);
    const path alone = write_file("m-00007-of-00003.gguf", "abc"); /* no such part: a name like any other */
    assert_int_equal(identify(alone.text, NULL, hex), KVO_OK);
    assert_string_equal(hex, ABC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_the_sha256_of_the_file),
        cmocka_unit_test(it_is_remembered_by_what_the_file_system_says),
        cmocka_unit_test(a_damaged_cache_costs_time_only),
        cmocka_unit_test(parts_are_one_model),
    };

    return cmocka_run_group_tests(tests, open_directory, remove_directory);
}
