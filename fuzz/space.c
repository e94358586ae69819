/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The canonical encoding of a space's description: bytes that are taken are the only bytes that say this. So no two
 * encodings mean the same, and no two descriptions share one.
 */
#include "fuzz.h"

#include <string.h>

#include "base/names.h"

static void must_be_shown_in_one_line(const base_space_record *record)
{
    char line[BASE_SPACE_ENCODED_MAX * 4 + 1024], part[64], difference[64];
    int length = base_space_record_describe(record, line, sizeof line);
    MUST(length > 0 && (size_t)length == strlen(line), "%d characters, not %zu", length, strlen(line));
    fuzz_must_be_line(line);
    MUST(base_space_record_describe(record, part, sizeof part) == length, "cut to fit, it has another length");
    MUST(strlen(part) < sizeof part && strncmp(part, line, strlen(part)) == 0, "cut to fit, it says something else");
    MUST(base_space_difference(record, record, difference, sizeof difference) == 0, "it differs from itself");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    base_space_record record, empty = {.block_bytes_max = 1};
    uint8_t again[BASE_SPACE_ENCODED_MAX];
    char text[512];
    int status = base_space_decode(data, bytes, &record);
    MUST(status == KVO_OK || status == KVO_E_DAMAGED || status == KVO_E_VERSION, "status %d", status);
    if (status != KVO_OK)
        return 0;
    size_t n = base_space_record_encode(&record, again, sizeof again);
    MUST(n == bytes && memcmp(again, data, n) == 0, "%zu bytes were taken and encode as %zu others", bytes, n);
    MUST(base_space_record_encode(&record, again, n - 1) == 0, "it fits where it cannot");
    must_be_shown_in_one_line(&record);
    bool same = n == base_space_record_encode(&empty, again, sizeof again) && memcmp(again, data, n) == 0;
    MUST(same == (base_space_difference(&record, &empty, text, sizeof text) == 0), "other bytes, no difference");
    return 0;
}
