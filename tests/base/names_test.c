/* SPDX-License-Identifier: Apache-2.0 */
#include "base/names.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* docs/names.md; names_reference.py computes the same with another SHA-256. */
static const char *const vectors[][2] = {
    {"S1", "681f84cf66b43293b51b77cded1bce4d2c6b580364d7bf8d602299057da538bc"},
    {"S2", "581116c1bd41ab414fc8b5a84d467d7327cd3f3d2dc2bf2526e39c7954076df8"},
    {"S3", "37459144bc1b1c177a357e1508b342e3bb3bf0edd5884b354db04ead31dfd0cd"},
    {"S4", "22b4c6f1077f8f437d5c3cb16856978883322f6cd44d3ac950f46e3aeadb36b1"},
    {"S5", "3a9080d8c839880c81f5733a6f9bed0a0def649085b810d1aa8e20233e3c6359"},
    {"S6", "27f67b773e386411c9fea5ab8f4604baa5a163e4b559a98c046054dffc918703"},
    {"C1", "9b5941154e1a7b7fd26d7c0db388e057e49c19799e8dc8c86a6f7eb8f7fc9706"},
    {"C2", "a9d2f88ad3a95d7f120a2e923ceec2c861c7676e94383d8b4d07dd74f7fb6ec4"},
    {"C3", "dd1d8258378602e84136ef01a13eb7cba753f493b496a7a3696b53d995d4567f"},
    {"C4", "bf40611fc66cb0df702e469eb61be499f68f94d93766ab31bdceee553b182cff"},
    {"C5", "bb2c9d9bb765f13cc354176703c8d3fc54ed42a0f128e08e42a17b03085630d3"},
    {"C6", "f1aba7a199e96495235990bca02cc9bb80beae11c645102ebff94ee00a0523ea"},
    {"C7", "7686c1c68212351cfc4bd03556deb1a1291dce63db7da2f3d5ae479755693e16"},
    {"C8", "4fc511a4a119d69596d6c581df1773e46985604a4c4cb7d50ae2b2a9f34b35ee"},
};

static void assert_vector(const char *name, const uint8_t digest[32])
{
    char hex[65];

    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++)
        if (strcmp(vectors[i][0], name) == 0) {
            assert_string_equal(hex, vectors[i][1]);
            return;
        }
    fail_msg("no vector %s", name);
}

static kvo_space_config plain(uint64_t block_bytes_max)
{
    kvo_space_config config = KVO_SPACE_CONFIG_INIT;
    config.label = "a";
    config.block_bytes_max = block_bytes_max;
    return config;
}

static kvo_space_config llama(void)
{
    kvo_space_config config = plain(5242880);
    config.label = "llama";
    config.model = "meta-llama/Llama-3.1-70B";
    config.revision = "1d54af3";
    config.dtype = "bf16";
    config.layout = "LBHNC";
    config.position_encoding = "rope:500000";
    config.engine = "vllm";
    config.engine_version = "0.9.1";
    config.block_positions = 16;
    config.layers = 80;
    config.kv_heads = 8;
    config.head_size = 128;
    return config;
}

static void assert_space(const char *vector, const kvo_space_config *config)
{
    uint8_t digest[32];

    assert_int_equal(kvo_space_digest(config, digest), KVO_OK);
    assert_vector(vector, digest);
}

static void space_digests_are_the_documented_ones(void **state)
{
    (void)state;
    kvo_space_config config = plain(1);
    assert_space("S1", &config);
    config = llama();
    assert_space("S2", &config);
    config.label = "another.label";
    assert_space("S2", &config);
    config.dtype = "fp8_e4m3";
    config.quantisation = "awq";
    assert_space("S3", &config);
    config = plain(65536);
    config.model = "ab";
    assert_space("S4", &config);
    config.model = "a";
    config.revision = "b";
    assert_space("S5", &config);
    config = plain(1 << 27);
    config.model = "\xe3\x83\xa2\xe3\x83\x87\xe3\x83\xab";
    config.extra = "\0\1\2\3";
    config.extra_bytes = 4;
    assert_space("S6", &config);
}

static void every_field_changes_the_digest(void **state)
{
    (void)state;
    uint8_t digests[15][32];
    for (int i = 0; i < 15; i++) {
        kvo_space_config config = plain(7);
        const char **const strings[] = {&config.model,  &config.revision,      &config.dtype,
                                        &config.layout, &config.quantisation,  &config.position_encoding,
                                        &config.engine, &config.engine_version};
        uint32_t *const numbers[] = {&config.block_positions, &config.layers, &config.kv_heads,
                                     &config.head_size};
        if (i < 8)
            *strings[i] = "x";
        else if (i < 12)
            *numbers[i - 8] = 7;
        else if (i == 12)
            config.block_bytes_max = 8;
        else if (i == 13) {
            config.extra = "x";
            config.extra_bytes = 1;
        }
        assert_int_equal(kvo_space_digest(&config, digests[i]), KVO_OK);
        for (int k = 0; k < i; k++)
            assert_memory_not_equal(digests[i], digests[k], 32);
    }
}

static void invalid_descriptions_are_refused(void **state)
{
    (void)state;
    char long_text[257];
    uint8_t digest[32];
    memset(long_text, 'x', 256);
    long_text[256] = '\0';

    const char *const bad_labels[] = {NULL, "", "with space", "a/b", "\xc3\xa4", long_text};
    for (size_t i = 0; i < 6; i++) {
        kvo_space_config config = plain(1);
        config.label = bad_labels[i];
        assert_int_equal(kvo_space_digest(&config, digest), KVO_E_RANGE);
    }
    const char *const bad_texts[] = {long_text,          "\x80",    "\xc0\xaf", "\xed\xa0\x80",
                                     "\xf4\x90\x80\x80", "\xe2\x82"};
    for (size_t i = 0; i < 6; i++) {
        kvo_space_config config = plain(1);
        config.engine = bad_texts[i];
        assert_int_equal(kvo_space_digest(&config, digest), KVO_E_RANGE);
    }
    kvo_space_config config = plain(0);
    assert_int_equal(kvo_space_digest(&config, digest), KVO_E_RANGE);
    config.block_bytes_max = KVO_PAYLOAD_BYTES_MAX + 1;
    assert_int_equal(kvo_space_digest(&config, digest), KVO_E_RANGE);
    config = plain(1);
    config.extra_bytes = 1;
    assert_int_equal(kvo_space_digest(&config, digest), KVO_E_ARGUMENT);
    config.extra = long_text;
    config.extra_bytes = 1025;
    assert_int_equal(kvo_space_digest(&config, digest), KVO_E_RANGE);
    assert_int_equal(kvo_space_digest(NULL, digest), KVO_E_ARGUMENT);
    config = plain(1);
    assert_int_equal(kvo_space_digest(&config, NULL), KVO_E_ARGUMENT);
    config.size = 0;
    assert_int_equal(kvo_space_digest(&config, digest), KVO_E_ARGUMENT);
}

static void structs_of_older_and_newer_programs_are_taken(void **state)
{
    (void)state;
    uint8_t digest[32];
    struct {
        kvo_space_config config;
        uint64_t unknown;
    } newer = {llama(), 0};

    newer.config.size = sizeof newer;
    assert_space("S2", &newer.config);
    newer.unknown = 1;
    assert_int_equal(kvo_space_digest(&newer.config, digest), KVO_E_UNSUPPORTED);

    kvo_space_config older = llama();
    older.size = offsetof(kvo_space_config, extra);
    older.extra_bytes = 99;
    assert_space("S2", &older);
}

static void the_longest_description_fits(void **state)
{
    (void)state;
    char text[256];
    uint8_t extra[1024] = {1};
    uint8_t encoded[BASE_SPACE_ENCODED_MAX];
    memset(text, 'y', 255);
    text[255] = '\0';
    kvo_space_config config = plain(KVO_PAYLOAD_BYTES_MAX);
    config.model = config.revision = config.dtype = config.layout = config.quantisation = text;
    config.position_encoding = config.engine = config.engine_version = text;
    config.block_positions = config.layers = config.kv_heads = config.head_size = UINT32_MAX;
    config.extra = extra;
    config.extra_bytes = sizeof extra;

    const size_t bytes = base_space_encode(&config, encoded, sizeof encoded);
    assert_int_equal(bytes, BASE_SPACE_ENCODED_MAX);
    for (size_t room = 0; room < bytes; room += 13)
        assert_int_equal(base_space_encode(&config, encoded, room), 0);
}

/* Decoding accepts nothing but what encoding gives: each accepted change re-encodes to itself. */
static void decoding_is_the_inverse_of_encoding(void **state)
{
    (void)state;
    kvo_space_config config = llama();
    config.extra = "more";
    config.extra_bytes = 4;
    uint8_t encoded[BASE_SPACE_ENCODED_MAX], again[BASE_SPACE_ENCODED_MAX];
    base_space_record record, direct;

    const size_t bytes = base_space_encode(&config, encoded, sizeof encoded);
    assert_int_equal(base_space_decode(encoded, bytes, &record), KVO_OK);
    assert_int_equal(base_space_take(&config, &direct, NULL, NULL), KVO_OK);
    assert_memory_equal(&record, &direct, sizeof record);

    for (size_t i = 0; i < bytes; i++) {
        for (unsigned flip = 1; flip < 256; flip++) {
            encoded[i] ^= (uint8_t)flip;
            const int status = base_space_decode(encoded, bytes, &record);
            if (status == KVO_OK) {
                assert_int_equal(base_space_record_encode(&record, again, sizeof again), bytes);
                assert_memory_equal(again, encoded, bytes);
            } else {
                assert_int_equal(status, i == 3 ? KVO_E_VERSION : KVO_E_DAMAGED);
            }
            encoded[i] ^= (uint8_t)flip;
        }
        /* A heap copy of exactly i bytes, so that a sanitizer sees a read behind it. */
        uint8_t *cut = malloc(i + 1);
        memcpy(cut, encoded, i);
        assert_int_not_equal(base_space_decode(cut, i, &record), KVO_OK);
        free(cut);
    }
}

static void descriptions_are_one_printable_line(void **state)
{
    (void)state;
    char line[1024], short_line[20];
    kvo_space_config config = llama();

    config.quantisation = "a\"b\\c\n\xc2\x85";
    config.extra = "\xff\1";
    config.extra_bytes = 2;
    const int length = base_space_describe(&config, line, sizeof line);
    assert_int_equal(length, strlen(line));
    assert_string_equal(line, "model=\"meta-llama/Llama-3.1-70B\" revision=\"1d54af3\" dtype=\"bf16\" "
                              "layout=\"LBHNC\" quantisation=\"a\\\"b\\\\c\\x0a\\xc2\\x85\" "
                              "position_encoding=\"rope:500000\" engine=\"vllm\" engine_version=\"0.9.1\" "
                              "block_positions=16 layers=80 kv_heads=8 head_size=128 block_bytes_max=5242880 "
                              "extra=ff01");
    assert_int_equal(base_space_describe(&config, short_line, sizeof short_line), length);
    assert_memory_equal(short_line, line, strlen(short_line));
    config.label = "";
    assert_int_equal(base_space_describe(&config, line, sizeof line), -1);
}

static void a_difference_shows_the_fields_that_differ(void **state)
{
    (void)state;
    char line[512];
    base_space_record a, b;
    kvo_space_config config = llama();

    assert_int_equal(base_space_take(&config, &a, NULL, NULL), KVO_OK);
    config.dtype = "fp8";
    config.layers = 0;
    assert_int_equal(base_space_take(&config, &b, NULL, NULL), KVO_OK);
    assert_int_equal(base_space_difference(&a, &b, line, sizeof line), 2);
    assert_string_equal(line, "dtype=\"bf16\" (not \"fp8\") layers=80 (not 0)");
    assert_int_equal(base_space_difference(&a, &a, line, sizeof line), 0);
    assert_string_equal(line, "");
}

/* ---- Chains ------------------------------------------------------------- */

typedef struct chain_fixture {
    kvo_chain chain;
    uint8_t space[32];
    uint32_t tokens[300];
    uint8_t names[4][32];
    size_t count;
} chain_fixture;

static void set_up(chain_fixture *f)
{
    kvo_space_config config = llama();

    *f = (chain_fixture){.chain = KVO_CHAIN_INIT, .count = 99};
    assert_int_equal(kvo_space_digest(&config, f->space), KVO_OK);
    f->chain.space_digest = f->space;
    f->chain.block_tokens = 16;
    for (uint32_t i = 0; i < 300; i++)
        f->tokens[i] = i;
}

static int name(chain_fixture *f, size_t first, size_t tokens)
{
    return kvo_chain_names(&f->chain, f->tokens + first, tokens, f->names[0], 4, &f->count);
}

static void chain_names_are_the_documented_ones(void **state)
{
    (void)state;
    chain_fixture f;
    uint8_t ff[255];
    uint8_t parent[32];

    set_up(&f);
    assert_int_equal(name(&f, 0, 40), KVO_OK);
    assert_int_equal(f.count, 2);
    assert_vector("C1", f.names[0]);
    assert_vector("C2", f.names[1]);
    memcpy(parent, f.names[1], 32);

    f.chain.salt = "tenant-1";
    f.chain.salt_bytes = 8;
    assert_int_equal(name(&f, 0, 16), KVO_OK);
    assert_vector("C3", f.names[0]);
    f.chain.salt = "";
    f.chain.salt_bytes = 1;
    assert_int_equal(name(&f, 0, 16), KVO_OK);
    assert_vector("C7", f.names[0]);
    f.chain.salt_bytes = 0;
    f.chain.seed = 1;
    assert_int_equal(name(&f, 0, 16), KVO_OK);
    assert_vector("C4", f.names[0]);
    f.chain.parent = parent;
    assert_int_equal(name(&f, 32, 16), KVO_OK);
    assert_vector("C5", f.names[0]);

    set_up(&f);
    f.chain.block_tokens = 1;
    f.tokens[0] = UINT32_MAX;
    assert_int_equal(name(&f, 0, 1), KVO_OK);
    assert_vector("C6", f.names[0]);

    set_up(&f);
    memset(ff, 0xff, sizeof ff);
    f.chain.block_tokens = 300;
    f.chain.seed = UINT64_MAX;
    f.chain.salt = ff;
    f.chain.salt_bytes = 255;
    assert_int_equal(name(&f, 0, 300), KVO_OK);
    assert_vector("C8", f.names[0]);
}

static void a_chain_can_be_named_in_pieces(void **state)
{
    (void)state;
    chain_fixture f;
    uint8_t whole[4][32];

    set_up(&f);
    assert_int_equal(name(&f, 0, 64), KVO_OK);
    memcpy(whole, f.names, sizeof whole);
    f.chain.parent = whole[1];
    f.chain.space_digest = NULL;
    assert_int_equal(name(&f, 32, 32), KVO_OK);
    assert_int_equal(f.count, 2);
    assert_memory_equal(f.names, whole[2], 64);
}

static void capacity_limits_the_names(void **state)
{
    (void)state;
    chain_fixture f;

    set_up(&f);
    assert_int_equal(kvo_chain_names(&f.chain, f.tokens, 300, f.names[0], 1, &f.count), KVO_OK);
    assert_int_equal(f.count, 1);
    assert_vector("C1", f.names[0]);
    assert_int_equal(f.names[1][0], 0);
    assert_int_equal(kvo_chain_names(&f.chain, NULL, 0, NULL, 0, &f.count), KVO_OK);
    assert_int_equal(f.count, 0);
    assert_int_equal(name(&f, 0, 15), KVO_OK);
    assert_int_equal(f.count, 0);
}

static void invalid_chains_are_refused(void **state)
{
    (void)state;
    chain_fixture f;

    set_up(&f);
    f.chain.block_tokens = 0;
    assert_int_equal(name(&f, 0, 16), KVO_E_RANGE);
    assert_int_equal(f.count, 0);
    f.chain.block_tokens = 65536;
    assert_int_equal(name(&f, 0, 16), KVO_E_RANGE);
    set_up(&f);
    f.chain.salt_bytes = 1;
    assert_int_equal(name(&f, 0, 16), KVO_E_ARGUMENT);
    f.chain.salt = "";
    f.chain.salt_bytes = 256;
    assert_int_equal(name(&f, 0, 16), KVO_E_RANGE);
    set_up(&f);
    f.chain.space_digest = NULL;
    assert_int_equal(name(&f, 0, 16), KVO_E_ARGUMENT);
    set_up(&f);
    assert_int_equal(kvo_chain_names(&f.chain, NULL, 16, f.names[0], 4, &f.count), KVO_E_ARGUMENT);
    assert_int_equal(kvo_chain_names(&f.chain, f.tokens, 16, NULL, 4, &f.count), KVO_E_ARGUMENT);
    assert_int_equal(kvo_chain_names(&f.chain, f.tokens, 16, f.names[0], 4, NULL), KVO_E_ARGUMENT);
    assert_int_equal(kvo_chain_names(NULL, f.tokens, 16, f.names[0], 4, &f.count), KVO_E_ARGUMENT);
    f.chain.size = 7;
    assert_int_equal(name(&f, 0, 16), KVO_E_ARGUMENT);
}

/* ---- Public fault reports ---- */

/* Each description and each salt against all others: fields that run into each other would meet. */
static void B043_no_two_inputs_share_a_name(void **state)
{
    (void)state;
    static const char *const words[][3] = {{"ab", "c", ""},   {"a", "bc", ""},  {"", "abc", ""},  {"abc", "", ""},
                                           {"a", "b", "c"},   {"", "ab", "c"},  {"a", "", "bc"},  {"x@y", "", ""},
                                           {"x", "@y", ""},   {"x|y", "", ""},  {"x", "|y", ""},  {"x\ny", "", ""},
                                           {"x", "\ny", ""},  {"x/y", "z", ""}, {"x", "y/z", ""}, {"x:", "y", ""}};
    static const struct {
        const char *bytes;
        size_t count;
    } salts[] = {{"", 0}, {"a", 1}, {"ab", 2}, {"a\0", 2}, {"\0a", 2}, {"\0", 1}, {"\0\0", 2},
                 {"x@y", 3}, {"x|y", 3}, {"x\n", 2}};
    enum { WORDS = sizeof words / sizeof words[0], SALTS = sizeof salts / sizeof salts[0] };
    uint8_t spaces[WORDS][32], names[WORDS * SALTS][32];
    uint32_t token = 1;
    size_t count, used = 0;

    for (size_t i = 0; i < WORDS; i++) {
        kvo_space_config config = plain(65536);
        config.model = words[i][0];
        config.revision = words[i][1];
        config.dtype = words[i][2];
        assert_int_equal(kvo_space_digest(&config, spaces[i]), KVO_OK);
        for (size_t k = 0; k < SALTS; k++, used++) {
            kvo_chain chain = KVO_CHAIN_INIT;
            chain.space_digest = spaces[i];
            chain.block_tokens = 1;
            chain.salt = salts[k].bytes;
            chain.salt_bytes = salts[k].count;
            assert_int_equal(kvo_chain_names(&chain, &token, 1, names[used], 1, &count), KVO_OK);
            for (size_t before = 0; before < used; before++)
                assert_memory_not_equal(names[before], names[used], 32);
        }
        for (size_t before = 0; before < i; before++)
            assert_memory_not_equal(spaces[before], spaces[i], 32);
    }
}

enum { GOLDEN_LISTS = 50, GOLDEN_TOKENS = 400 };

/* List i: none, one token, the ends of 32 bits (a negative id is one of them), then longer and longer ones. */
static size_t golden_list(unsigned i, uint32_t tokens[GOLDEN_TOKENS], uint32_t *block_tokens)
{
    static const uint32_t ends[] = {0, 1, 0x7fffffffu, 0x80000000u, 0xffffffffu};
    size_t count = i == 0 ? 0 : i <= 5 ? 1 : 8u * (i - 1);
    uint32_t x = i;
    for (size_t k = 0; k < count; k++) {
        x = x * 1664525u + 1013904223u;
        tokens[k] = i <= 5 ? ends[i - 1] : x;
    }
    *block_tokens = i <= 5 ? 1 : i % 3 == 0 ? 16 : i % 3 == 1 ? 7 : 1;
    return count;
}

/* One line a list: how many names, and the digest of all of them. */
static void golden_write(FILE *out)
{
    kvo_space_config config = llama();
    uint8_t space[32], digest[32];
    assert_int_equal(kvo_space_digest(&config, space), KVO_OK);
    for (unsigned i = 0; i < GOLDEN_LISTS; i++) {
        static uint32_t tokens[GOLDEN_TOKENS];
        static uint8_t names[GOLDEN_TOKENS][32];
        kvo_chain chain = KVO_CHAIN_INIT;
        size_t count;
        size_t token_count = golden_list(i, tokens, &chain.block_tokens);
        chain.space_digest = space;
        chain.seed = i;
        assert_int_equal(kvo_chain_names(&chain, tokens, token_count, names[0], GOLDEN_TOKENS, &count), KVO_OK);
        assert_int_equal(base_sha256(names, count * 32, digest), KVO_OK);
        fprintf(out, "%u %zu ", i, count);
        for (int k = 0; k < 32; k++)
            fprintf(out, "%02x", digest[k]);
        fputc('\n', out);
    }
}

static size_t read_all(FILE *file, char *text, size_t room)
{
    assert_non_null(file);
    size_t bytes = fread(text, 1, room - 1, file);
    text[bytes] = 0;
    return bytes;
}

/* names_golden.txt is from names_reference.py; this process, another one and every build must say the same. */
static void B097_names_are_the_same_in_every_process(void **state)
{
    (void)state;
    static char here[8192], golden[8192], there[8192];
    FILE *out = fmemopen(here, sizeof here, "w");
    golden_write(out);
    fclose(out);
    FILE *file = fopen(NAMES_GOLDEN, "r");
    assert_true(read_all(file, golden, sizeof golden) > 50 * 64);
    fclose(file);
    assert_string_equal(here, golden);
    char self[4096] = "", command[4200];
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(command, sizeof command, "'%s' --golden", self);
    file = popen(command, "r");
    read_all(file, there, sizeof there);
    assert_int_equal(pclose(file), 0);
    assert_string_equal(there, golden);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--golden") == 0) {
        golden_write(stdout);
        return fflush(stdout) != 0;
    }

    const struct CMUnitTest tests[] = {
        cmocka_unit_test(space_digests_are_the_documented_ones),
        cmocka_unit_test(every_field_changes_the_digest),
        cmocka_unit_test(invalid_descriptions_are_refused),
        cmocka_unit_test(structs_of_older_and_newer_programs_are_taken),
        cmocka_unit_test(the_longest_description_fits),
        cmocka_unit_test(decoding_is_the_inverse_of_encoding),
        cmocka_unit_test(descriptions_are_one_printable_line),
        cmocka_unit_test(a_difference_shows_the_fields_that_differ),
        cmocka_unit_test(chain_names_are_the_documented_ones),
        cmocka_unit_test(a_chain_can_be_named_in_pieces),
        cmocka_unit_test(capacity_limits_the_names),
        cmocka_unit_test(invalid_chains_are_refused),
        cmocka_unit_test(B043_no_two_inputs_share_a_name),
        cmocka_unit_test(B097_names_are_the_same_in_every_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
