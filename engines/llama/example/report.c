/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <inttypes.h>
#include <stdio.h>

double seconds(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / 1e9 : 0;
}

static double rate(uint64_t bytes, uint64_t ns)
{
    return ns != 0 ? (double)bytes * 1e3 / (double)ns : 0; /* MB/s */
}

/* Bytes of a text as a JSON string; what is no UTF-8, or is cut in its midst, as '?'. */
static void print_json_text(const char *text)
{
    putchar('"');
    for (const unsigned char *at = (const unsigned char *)text; *at != 0;) {
        int length = *at < 0x80 ? 1 : *at < 0xe0 ? 2 : *at < 0xf0 ? 3 : 4;
        int good = *at < 0x80 || (*at >= 0xc2 && *at < 0xf5);
        for (int i = 1; good && i < length; i++) {
            good = (at[i] & 0xc0) == 0x80;
        }
        if (!good) {
            putchar('?');
            at++;
        } else if (*at < 0x20 || *at == '"' || *at == '\\' || *at == 0x7f) {
            printf("\\u%04x", *at++);
        } else {
            at += fwrite(at, 1, (size_t)length, stdout);
        }
    }
    putchar('"');
}

void report_json(const session *self, const answered *result, const kvo_llama_stat *stat, double load_s)
{
    printf("{\"prompt_tokens\":%zu,\"restored_tokens\":%zu,\"why\":", result->prompt_count, result->restored);
    print_json_text(self->kv == NULL || self->settings->cold ? "not asked for" : kvo_llama_why_text(result->why));
    printf(",\"answer_tokens\":%zu,\"load_s\":%.6f,\"ttft_s\":%.6f,\"prefill_s\":%.6f,\"total_s\":%.6f",
           result->count - result->prompt_count, load_s, seconds(result->begin_ns, result->first_ns),
           seconds(result->prefill_ns, result->first_ns), seconds(result->begin_ns, result->end_ns));
    printf(",\"restored_bytes\":%" PRIu64 ",\"restore_s\":%.6f,\"get_s\":%.6f,\"import_s\":%.6f,\"check_s\":%.6f",
           stat->restored_bytes, (double)stat->restore_ns / 1e9, (double)stat->get_ns / 1e9,
           (double)stat->import_ns / 1e9, (double)stat->check_ns / 1e9);
    printf(",\"saved_blocks\":%" PRIu64 ",\"saved_bytes\":%" PRIu64 ",\"existing_blocks\":%" PRIu64
           ",\"save_s\":%.6f,\"form\":%d,\"layout\":",
           stat->saved_blocks, stat->saved_bytes, stat->existing_blocks, (double)stat->save_ns / 1e9, stat->form);
    print_json_text(stat->layout);
    printf(",\"tokens\":[");
    for (size_t i = result->prompt_count; i < result->count; i++) {
        printf("%s%" PRId32, i == result->prompt_count ? "" : ",", result->tokens[i]);
    }
    printf("],\"text\":");
    print_json_text(result->text);
    printf("}\n");
    (void)fflush(stdout);
}

void report_text(const session *self, const answered *result, const kvo_llama_stat *stat)
{
    (void)fflush(stdout);
    fprintf(stderr, "restored %zu of %zu tokens", result->restored, result->prompt_count);
    if (self->kv != NULL && !self->settings->cold && result->why != KVO_LLAMA_COMPLETE) {
        fprintf(stderr, " (%s)", kvo_llama_why_text(result->why));
    }
    fprintf(stderr, "; first token after %.3f s, %zu tokens in %.3f s\n", seconds(result->begin_ns, result->first_ns),
            result->count - result->prompt_count, seconds(result->begin_ns, result->end_ns));
    if (self->kv != NULL) {
        fprintf(stderr, "restore: %.1f MB in %.1f ms, %.0f MB/s; save: %.1f MB in %.1f ms, %.0f MB/s\n",
                (double)stat->restored_bytes / 1e6, (double)stat->restore_ns / 1e6,
                rate(stat->restored_bytes, stat->restore_ns), (double)stat->saved_bytes / 1e6,
                (double)stat->save_ns / 1e6, rate(stat->saved_bytes, stat->save_ns));
    }
}

kvo_llama_stat figures_since(const session *self, const kvo_llama_stat *before)
{
    kvo_llama_stat stat = KVO_LLAMA_STAT_INIT;
    if (self->kv != NULL) {
        (void)kvo_llama_stat_get(self->kv, &stat);
    }
    stat.restored_bytes -= before->restored_bytes;
    stat.restore_ns -= before->restore_ns;
    stat.saved_bytes -= before->saved_bytes;
    stat.save_ns -= before->save_ns;
    return stat;
}
