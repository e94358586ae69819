/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the targets share. A target is one function that takes any bytes, as libFuzzer calls it, and ends the process
 * when a property does not hold. The same object is linked with libFuzzer (make fuzz), and with replay.c, whose main
 * runs the corpus in ordinary tests.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

_Noreturn void fuzz_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
#define MUST(condition, ...)                              \
    do {                                                  \
        if (!(condition))                                 \
            fuzz_fail(__FILE__, __LINE__, __VA_ARGS__);   \
    } while (0)

/* What a message for people may be: not empty, one line, nothing that moves a terminal. */
void fuzz_must_be_line(const char *text);

/* The input, taken piece by piece; zeros behind its end. */
typedef struct fuzz_input {
    const uint8_t *at;
    size_t left;
} fuzz_input;
uint8_t fuzz_u8(fuzz_input *input);
uint16_t fuzz_u16(fuzz_input *input);

/* A copy that ends in 0, of exactly as many bytes, so that a sanitizer sees who reads on. The caller frees it. */
char *fuzz_text(const uint8_t *data, size_t bytes);

#endif
