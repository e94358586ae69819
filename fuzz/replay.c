/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a target on each file of the directories given, and on mutants of it: KVO_TEST_STEPS of them, FUZZ_STEPS unless
 * given. Same seed, same mutants; the seed is printed before each directory: a target that fails ends the process.
 *
 *     TARGET_replay DIRECTORY|FILE ...
 */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { INPUT_BYTES_MAX = 1 << 16 };

static uint64_t random_state, files, mutants;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % below);
}

static uint64_t number_from(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

/* One change: a bit, a byte, bytes that go, come, or come again. */
static size_t mutate(uint8_t *input, size_t bytes)
{
    size_t at = bytes ? draw((uint32_t)bytes) : 0, n = 1 + draw(8);
    n = n < bytes - at ? n : bytes - at;
    switch (draw(5)) {
    case 0:
        if (bytes)
            input[at] ^= (uint8_t)(1u << draw(8));
        return bytes;
    case 1:
        if (bytes)
            input[at] = (uint8_t)draw(256);
        return bytes;
    case 2:
        memmove(input + at, input + at + n, bytes - at - n);
        return bytes - n;
    case 3:
        if (bytes + 1 > INPUT_BYTES_MAX)
            return bytes;
        memmove(input + at + 1, input + at, bytes - at);
        input[at] = (uint8_t)draw(256);
        return bytes + 1;
    default:
        if (bytes + n > INPUT_BYTES_MAX)
            return bytes;
        memmove(input + at + n, input + at, bytes - at);
        return bytes + n;
    }
}

static void run(const uint8_t *input, size_t bytes)
{
    uint8_t *exact = malloc(bytes ? bytes : 1); /* so that a sanitizer sees its end */
    MUST(exact != NULL, "no memory");
    if (bytes)
        memcpy(exact, input, bytes);
    LLVMFuzzerTestOneInput(exact, bytes);
    free(exact);
}

static void run_file(const char *path)
{
    static uint8_t original[INPUT_BYTES_MAX], mutant[INPUT_BYTES_MAX];
    FILE *file = fopen(path, "rb");
    MUST(file != NULL, "%s: cannot open", path);
    size_t bytes = fread(original, 1, sizeof original, file);
    fclose(file);
    run(original, bytes);
    files++;
    for (uint64_t i = number_from("KVO_TEST_STEPS", FUZZ_STEPS); i > 0; i--, mutants++) {
        size_t now = bytes;
        memcpy(mutant, original, bytes);
        for (uint32_t k = 1 + draw(4); k > 0; k--)
            now = mutate(mutant, now);
        run(mutant, now);
    }
}

static void run_directory(const char *path)
{
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, alphasort);
    MUST(count >= 0, "%s: cannot read", path);
    for (int i = 0; i < count; i++) {
        char file[4096];
        snprintf(file, sizeof file, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.')
            run_file(file);
        free(entries[i]);
    }
    free(entries);
}

int main(int argc, char **argv)
{
    FILE *out = fdopen(dup(STDOUT_FILENO), "w"); /* a target may send its own elsewhere */
    MUST(out != NULL, "no standard output");
    random_state = number_from("KVO_TEST_SEED", 1);
    for (int i = 1; i < argc; i++) {
        struct stat what;
        MUST(stat(argv[i], &what) == 0, "%s: not there", argv[i]);
        fprintf(out, "%s: KVO_TEST_SEED=%llu\n", argv[i], (unsigned long long)number_from("KVO_TEST_SEED", 1));
        fflush(out);
        if (S_ISDIR(what.st_mode))
            run_directory(argv[i]);
        else
            run_file(argv[i]);
    }
    MUST(files > 0, "no input");
    fprintf(out, "%llu inputs, %llu mutants, 0 wrong\n", (unsigned long long)files, (unsigned long long)mutants);
    return fclose(out) == 0 ? 0 : 1;
}
