/* SPDX-License-Identifier: Apache-2.0 */
#include "kvonce.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

#define KIB UINT64_C(1024)
#define GIB (KIB * KIB * KIB)
#define PIB (KIB * KIB * GIB)

static void sizes_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } sizes[] = {
        {"0", 0},
        {"1", 1},
        {"007", 7},
        {"1.0", 1},
        {"4096", 4096},
        {"10G", 10 * GIB},
        {"10GB", 10 * GIB},
        {"10GiB", 10 * GIB},
        {"10g", 10 * GIB},
        {"10gib", 10 * GIB},
        {"10gB", 10 * GIB},
        {"512mb", 512 * KIB * KIB},
        {"1.5G", 1610612736},
        {"1.500000000000000000000000000000000000000000000000000000000000G", 1610612736},
        {"0.5K", 512},
        {"0.0009765625K", 1},
        {"1k", 1024},
        {"3T", 3 * KIB * GIB},
        {"1P", PIB},
        /* One byte in a P: 50 digits, where a double has 17. */
        {"1.00000000000000088817841970012523233890533447265625P", PIB + 1},
        {"8191.99999999999999911182158029987476766109466552734375P", (UINT64_C(1) << 63) - 1},
        {"9223372036854775807", (UINT64_C(1) << 63) - 1},
        {"8191P", 8191 * PIB},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        kvo_error error = {"unset"};
        uint64_t bytes = 99;
        if (kvo_parse_size(sizes[i].text, &bytes, &error) != KVO_OK)
            fail_msg("%s", error.text);
        assert_int_equal(bytes, sizes[i].bytes);
    }
}

static void what_is_not_a_size_is_refused_and_named(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "16 MB",
        "1e9",
        "-5",
        "-0",
        "+5",
        "",
        " ",
        "0x10",
        "10GX",
        "50%",
        "nan",
        "inf",
        "NaN",
        "1.",
        ".5G",
        ".",
        "1..5",
        "1.5",
        "1,5G",
        "G",
        "5B",
        "5KK",
        "5KiBs",
        "5Ki",
        "5 G",
        " 5G",
        "5G ",
        "5G\n",
        "1.5.1G",
        "0.0001K",
        "1.000000000000000000000000000000000000000000000000000000000001P",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "36893488147419103233",
        "99999999T",
        "8192P",
        "16384P",
        "99999999999999999999999999999999999999P",
        "5@",
        "5\xe2\x82\xac",
        "5kIb\x42",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        kvo_error error = {""};
        uint64_t bytes = 99;
        if (kvo_parse_size(texts[i], &bytes, &error) != KVO_E_RANGE)
            fail_msg("accepted \"%s\" as %llu", texts[i], (unsigned long long)bytes);
        assert_int_equal(bytes, 99);
        assert_null(strchr(error.text, '\n'));
        assert_non_null(strstr(error.text, "512M or 1.5G"));
        if (strpbrk(texts[i], "\n") == NULL && strlen(texts[i]) < 60)
            assert_non_null(strstr(error.text, texts[i]));
    }
}

static void a_long_or_hostile_size_gives_a_short_error(void **state)
{
    (void)state;
    char text[5000];
    kvo_error error;
    uint64_t bytes;

    memset(text, '9', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(kvo_parse_size(text, &bytes, &error), KVO_E_RANGE);
    assert_true(strlen(error.text) < 250);
    assert_non_null(strstr(error.text, "\"..."));
    assert_int_equal(kvo_parse_size("\x1b[31m\n", &bytes, &error), KVO_E_RANGE);
    assert_non_null(strstr(error.text, "\\x1b[31m\\x0a"));
    assert_int_equal(kvo_parse_size(text, &bytes, NULL), KVO_E_RANGE);
    assert_int_equal(kvo_parse_size(NULL, &bytes, &error), KVO_E_ARGUMENT);
    assert_int_equal(kvo_parse_size("1", NULL, &error), KVO_E_ARGUMENT);
}

/* ---- Tiers -------------------------------------------------------------- */

typedef struct parsed {
    kvo_tier_config tiers[KVO_TIERS_MAX];
    uint32_t count;
    char paths[256];
    kvo_error error;
} parsed;

static int parse(parsed *p, const char *text)
{
    memset(p, 0, sizeof *p);
    p->count = 99;
    return kvo_parse_tiers(text, p->tiers, &p->count, p->paths, strlen(text) + 1, &p->error);
}

static void assert_one_disk(const char *text, const char *path, uint64_t bytes, uint64_t blocks)
{
    parsed p;

    if (parse(&p, text) != KVO_OK)
        fail_msg("%s", p.error.text);
    assert_int_equal(p.count, 1);
    assert_int_equal(p.tiers[0].size, sizeof p.tiers[0]);
    assert_int_equal(p.tiers[0].kind, KVO_TIER_DISK);
    assert_string_equal(p.tiers[0].path, path);
    assert_int_equal(p.tiers[0].capacity_bytes, bytes);
    assert_int_equal(p.tiers[0].capacity_blocks, blocks);
    assert_int_equal(p.tiers[0].segment_bytes, 0);
}

static void a_list_is_read_in_order(void **state)
{
    (void)state;
    parsed p;

    assert_int_equal(parse(&p, "dram:2G,dram:2000blk,disk:/path:20G,disk:/b"), KVO_OK);
    assert_int_equal(p.count, 4);
    assert_int_equal(p.tiers[0].kind, KVO_TIER_DRAM);
    assert_int_equal(p.tiers[0].capacity_bytes, 2 * GIB);
    assert_int_equal(p.tiers[0].capacity_blocks, 0);
    assert_null(p.tiers[0].path);
    assert_int_equal(p.tiers[1].capacity_bytes, 0);
    assert_int_equal(p.tiers[1].capacity_blocks, 2000);
    assert_string_equal(p.tiers[2].path, "/path");
    assert_int_equal(p.tiers[2].capacity_bytes, 20 * GIB);
    assert_string_equal(p.tiers[3].path, "/b");
    assert_int_equal(p.tiers[3].capacity_bytes, 0);
    assert_int_equal(p.tiers[3].capacity_blocks, 0);
    assert_int_equal(parse(&p, "dram:inf"), KVO_OK);
    assert_true(p.tiers[0].capacity_blocks == KVO_INFINITE);
}

static void a_path_may_hold_colons(void **state)
{
    (void)state;
    assert_one_disk("disk:/a:1G", "/a", GIB, 0);
    assert_one_disk("disk:/a", "/a", 0, 0);
    assert_one_disk("disk:a/b", "a/b", 0, 0);
    assert_one_disk("disk:/a:b", "/a:b", 0, 0);
    assert_one_disk("disk:/a:b:5blk", "/a:b", 0, 5);
    assert_one_disk("disk:/a:1G:2G", "/a:1G", 2 * GIB, 0);
    assert_one_disk("disk:/a:inf", "/a", 0, KVO_INFINITE);
    assert_one_disk("disk:/a:info", "/a:info", 0, 0);
    assert_one_disk("disk:/a:5/b", "/a:5/b", 0, 0);
    assert_one_disk("disk:./data", "./data", 0, 0);
    assert_one_disk("disk:.", ".", 0, 0);
    assert_one_disk("disk:..", "..", 0, 0);
    assert_one_disk("disk:./20G", "./20G", 0, 0);
    assert_one_disk("disk:/sp ace:1K", "/sp ace", 1024, 0);
}

static void wrappers_stand_in_front_of_a_tier(void **state)
{
    (void)state;
    parsed p;
    assert_int_equal(parse(&p, "fault+dram:2G,"
                               "delay:read=5ms+fault:read=eio@0.1:seed=7+disk:/a+b:c:20G,"
                               "disk:/fault+d"),
                     KVO_OK);
    assert_int_equal(p.count, 3);
    assert_string_equal(p.tiers[0].wrappers, "fault");
    assert_int_equal(p.tiers[0].capacity_bytes, 2 * GIB);
    assert_string_equal(p.tiers[1].wrappers, "delay:read=5ms+fault:read=eio@0.1:seed=7");
    assert_string_equal(p.tiers[1].path, "/a+b:c");
    assert_int_equal(p.tiers[1].capacity_bytes, 20 * GIB);
    assert_null(p.tiers[2].wrappers);
    assert_string_equal(p.tiers[2].path, "/fault+d");
}

static void wrong_tiers_are_refused_and_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"", "tier 1, \"\": empty"},
        {",", "tier 1, \"\": empty"},
        {"dram:1G,", "tier 2, \"\": empty"},
        {"dram:1G,,disk:/a", "tier 2, \"\": empty"},
        {"dram", "tier 1, \"dram\": dram needs a capacity"},
        {"dram:", "dram needs a capacity"},
        {"dram:0", "capacity \"0\" is zero"},
        {"dram:0blk", "capacity \"0blk\" is zero"},
        {"dram:0.0G", "capacity \"0.0G\" is zero"},
        {"dram:blk", "capacity \"blk\""},
        {"dram:2.5blk", "capacity \"2.5blk\""},
        {"dram:-5blk", "capacity \"-5blk\""},
        {"dram:9223372036854775808blk", "is too large"},
        {"dram:18446744073709551615blk", "is too large"},
        {"dram:INF", "capacity \"INF\""},
        {"dram:/path:1G", "dram has no path"},
        {"dram:/path", "dram has no path"},
        {"dram:1G,disk:/a:5X", "tier 2, \"disk:/a:5X\": capacity \"5X\""},
        {"disk:/a:-5G", "capacity \"-5G\""},
        {"disk:/a:+5G", "capacity \"+5G\""},
        {"disk:/a:.5G", "capacity \".5G\""},
        {"disk:/a:NaN", "capacity \"NaN\""},
        {"disk:/a:0", "capacity \"0\" is zero"},
        {"disk:/a:", "nothing behind the last ':'"},
        {"disk", "a disk needs a path"},
        {"disk:", "a disk needs a path"},
        {"disk:20G", "a disk needs a path"},
        {"disk::20G", "a disk needs a path"},
        {"DRAM:1G", "not a kind of tier"},
        {" dram:1G", "not a kind of tier"},
        {"ram:1G", "tier 1, \"ram:1G\": not a kind of tier"},
        {"/path", "not a kind of tier"},
        {":1G", "not a kind of tier"},
        {"dram:1G,dram:1G,dram:1G,dram:1G,dram:1G", "tier 5, \"dram:1G\": one too many"},
        {"fault", "wraps no tier"},
        {"fault:read=eio", "wraps no tier"},
        {"fault+delay", "wraps no tier"},
        {"fault+", "tier 1, \"\": empty"},
        {"fault++disk:/a", "not a kind of tier"},
        {"faults+disk:/a", "not a kind of tier"},
        {"fault+disk:20G", "a disk needs a path"},
        {"dram:1G,delay+dram", "tier 2, \"dram\": dram needs a capacity"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        parsed p;
        if (parse(&p, wrong[i].text) != KVO_E_RANGE)
            fail_msg("accepted \"%s\"", wrong[i].text);
        if (strstr(p.error.text, wrong[i].says) == NULL)
            fail_msg("\"%s\" says: %s", wrong[i].text, p.error.text);
        assert_int_equal(p.count, 0);
    }
}

static void paths_stay_in_their_buffer(void **state)
{
    (void)state;
    kvo_tier_config tiers[KVO_TIERS_MAX];
    uint32_t count;
    kvo_error error;
    const char *text = "disk:/ab,disk:/cd:1K"; /* needs 8 bytes */

    for (size_t room = 0; room <= 8; room++) {
        char *paths = malloc(room + 1);
        const int expected = room < 8 ? KVO_E_ARGUMENT : KVO_OK;
        assert_int_equal(kvo_parse_tiers(text, tiers, &count, paths, room, &error), expected);
        free(paths);
    }
    assert_int_equal(kvo_parse_tiers("dram:1G", tiers, &count, NULL, 0, &error), KVO_OK);
    assert_int_equal(kvo_parse_tiers("disk:/a", tiers, &count, NULL, 0, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_parse_tiers("disk:/a", tiers, &count, NULL, 9, &error), KVO_E_ARGUMENT);
    assert_int_equal(kvo_parse_tiers(NULL, tiers, &count, NULL, 0, &error), KVO_E_ARGUMENT);
}

/* ---- Public fault reports ----------------------------------------------- */

/* One rule, wherever a size is given. 0: refused. */
static void B026_a_size_means_the_same_in_every_place(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } sizes[] = {
        {"10G", 10 * GIB}, {"10GB", 10 * GIB}, {"10GiB", 10 * GIB}, {"10g", 10 * GIB}, {"512mb", 512 * KIB * KIB},
        {"1.5G", 3 * GIB / 2}, {"16 MB", 0}, {"1.5", 0}, {"1e9", 0}, {"-5", 0}, {"-0", 0}, {"", 0}, {" ", 0},
        {"0x10", 0}, {"10GX", 0}, {"50%", 0}, {"18446744073709551615", 0}, {"18446744073709551616", 0},
        {"99999999T", 0}, {"nan", 0}, {"Infinity", 0}, {"1e400", 0}, {"+5", 0}, {"9223372036854775807", INT64_MAX},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char dram[64], disk[64];
        parsed p;
        uint64_t bytes = 0;
        int expected = sizes[i].bytes ? KVO_OK : KVO_E_RANGE;
        snprintf(dram, sizeof dram, "dram:%s", sizes[i].text);
        snprintf(disk, sizeof disk, "disk:/a:%s", sizes[i].text);
        assert_int_equal(kvo_parse_size(sizes[i].text, &bytes, NULL), expected);
        assert_int_equal(bytes, sizes[i].bytes);
        assert_int_equal(parse(&p, dram), expected);
        if (expected == KVO_OK)
            assert_int_equal(p.tiers[0].capacity_bytes, bytes);
        else
            assert_non_null(strstr(p.error.text, sizes[i].text));
        /* What cannot be meant as a number belongs to the path. */
        int status = parse(&p, disk);
        if (status == KVO_OK)
            assert_int_equal(p.tiers[0].capacity_bytes, bytes);
        assert_true(status == expected || (status == KVO_OK && strcmp(p.tiers[0].path, disk + 5) == 0));
    }
    uint64_t bytes = 1;
    parsed p;
    assert_int_equal(kvo_parse_size("0", &bytes, NULL), KVO_OK); /* a size, but no capacity */
    assert_int_equal(bytes, 0);
    assert_int_equal(parse(&p, "dram:0"), KVO_E_RANGE);
    assert_int_equal(parse(&p, "disk:/a:0"), KVO_E_RANGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_exact),
        cmocka_unit_test(what_is_not_a_size_is_refused_and_named),
        cmocka_unit_test(a_long_or_hostile_size_gives_a_short_error),
        cmocka_unit_test(a_list_is_read_in_order),
        cmocka_unit_test(a_path_may_hold_colons),
        cmocka_unit_test(wrappers_stand_in_front_of_a_tier),
        cmocka_unit_test(wrong_tiers_are_refused_and_named),
        cmocka_unit_test(paths_stay_in_their_buffer),
        cmocka_unit_test(B026_a_size_means_the_same_in_every_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
