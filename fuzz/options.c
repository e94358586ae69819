/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is typed behind the command: options, numbers, sizes, names, filters, policies. A line is words, one a line of
 * the input. What is taken is in its range and, written out, is taken again.
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/cli/common.h"
#include "../src/cli/options.h"
#include "../src/cli/policy_set.h"
#include "../src/cli/select.h"

enum { WORDS_MAX = 16 };

static int run(int argc, char **argv) { return (void)argc, (void)argv, 0; }

static const char *const words[] = {"text", "json", "csv", NULL};

/* Values as the commands declare them. */
typedef struct said {
    cli_select select;
    const char *number, *size, *word, *set;
} said;

static int parse(said *s, int argc, char **argv, const char **operand)
{
    static const cli_command command = {"fuzz", "DIR", "", "", run};
    memset(s, 0, sizeof *s);
    const cli_option options[] = {
        {"--name", "HEX", "", &s->select.name},   {"--tenant", "N", "", &s->select.tenant},
        {"--space", "LABEL", "", &s->select.space}, {"--all", NULL, "", &s->select.all},
        {"--number", "N", "", &s->number},        {"--size", "SIZE", "", &s->size},
        {"--word", "WORD", "", &s->word},         {"--set", "POLICY", "", &s->set},
        {NULL, NULL, NULL, NULL},
    };
    return cli_parse(&command, options, argc, argv, operand);
}

static void check_number(const char *text)
{
    uint64_t value = 0, again = 0;
    char out[32];
    if (cli_number("--number", text, 5, UINT64_MAX - 1, 7, &value) != 0)
        return;
    MUST(value >= 5 && value != UINT64_MAX, "%llu is out of its range", (unsigned long long)value);
    snprintf(out, sizeof out, "%llu", (unsigned long long)value);
    if (text == NULL)
        MUST(value == 7, "not the default");
    else {
        MUST(strspn(text, "0123456789") == strlen(text) && *text, "\"%s\" is no number", text);
        MUST(strcmp(text + strspn(text, "0"), out) == 0, "\"%s\" became %s", text, out);
    }
    MUST(cli_number("--number", out, 5, UINT64_MAX - 1, 7, &again) == 0 && again == value, "%s reads otherwise", out);
}

static void check_values(const said *s)
{
    uint64_t size = 0, parsed;
    int index = -1;
    check_number(s->number);
    if (cli_size("--size", s->size, 4096, 1 << 20, 8192, &size) == 0) {
        MUST(size >= 4096 && size <= 1 << 20, "a size of %llu", (unsigned long long)size);
        MUST(s->size == NULL ? size == 8192 : kvo_parse_size(s->size, &parsed, NULL) == KVO_OK && parsed == size,
             "two sizes of one text");
    }
    if (cli_word("--word", s->word, words, &index) == 0)
        MUST(s->word == NULL ? index == 0 : index >= 0 && index < 3 && strcmp(words[index], s->word) == 0, "a word");
}

static void check_select(said *s)
{
    char hex[2 * KVO_NAME_BYTES_MAX + 1];
    if (cli_select_parse(&s->select, 1) != 0)
        return;
    MUST(s->select.tenant_value <= UINT16_MAX, "a tenant of %llu", (unsigned long long)s->select.tenant_value);
    MUST(!s->select.name == (s->select.by != KVO_BY_HANDLES), "a name and not by name");
    if (s->select.name == NULL)
        return;
    MUST(s->select.name_bytes >= KVO_NAME_BYTES_MIN && s->select.name_bytes <= KVO_NAME_BYTES_MAX, "a name's length");
    cli_hex_text(s->select.name_value, s->select.name_bytes, hex);
    MUST(strlen(hex) == strlen(s->select.name), "a name of another length");
    for (size_t i = 0; hex[i]; i++)
        MUST(hex[i] == (s->select.name[i] | (s->select.name[i] > '9' ? 32 : 0)), "%s became %s", s->select.name, hex);
}

static void check_policy(const char *set)
{
    static const char *const intents[] = {"none", "keep", "prefetch", "demote", "drop"};
    static const char *const fields[] = {"tenant", "qos", "priority", "reuse", "intent"};
    cli_policy_change change, again;
    if (set == NULL || cli_policy_parse(&change, set) != 0)
        return;
    const kvo_policy *p = &change.policy;
    MUST(change.mask && (change.mask & ~(uint32_t)KVO_POLICY_ALL) == 0, "mask %x of %s", change.mask, set);
    MUST(p->qos <= 3 && p->priority <= 100 && p->reuse <= 100 && p->intent <= KVO_INTENT_DROP, "out of range: %s", set);
    char text[256] = "";
    size_t used = 0;
    const unsigned values[] = {p->tenant, p->qos, p->priority, p->reuse};
    for (unsigned i = 0; i < 5; i++)
        if (change.mask >> i & 1) {
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s=", used ? "," : "", fields[i]);
            used += i < 4 ? (size_t)snprintf(text + used, sizeof text - used, "%u", values[i])
                          : (size_t)snprintf(text + used, sizeof text - used, "%s", intents[p->intent]);
        }
    if (change.seconds_said)
        snprintf(text + used, sizeof text - used, ",intent_seconds=%llu",
                 (unsigned long long)p->intent_ns / 1000000000u);
    MUST(cli_policy_parse(&again, text) == 0 && again.mask == change.mask && again.seconds_said == change.seconds_said,
         "%s is not %s", text, set);
    const kvo_policy *q = &again.policy;
    MUST(p->tenant == q->tenant && p->qos == q->qos && p->priority == q->priority && p->reuse == q->reuse &&
             p->intent == q->intent && p->intent_ns == q->intent_ns,
         "%s means something else than %s", text, set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static bool quiet;
    char *text = fuzz_text(data, bytes), *argv[WORDS_MAX], *rest = text;
    int argc = 0;
    const char *operand = NULL;
    said s;
    if (!quiet) /* a message a mistake, of which there are many */
        MUST(freopen("/dev/null", "w", stdout) != NULL, "no /dev/null");
    quiet = true;
    for (char *word; argc < WORDS_MAX && (word = strsep(&rest, "\n")) != NULL;)
        argv[argc++] = word;
    int code = parse(&s, argc, argv, &operand);
    MUST(code == -1 || code == CLI_OK || code == CLI_FAIL, "code %d", code);
    if (code == -1) {
        MUST(operand && *operand, "no operand");
        check_values(&s);
        check_select(&s);
        check_policy(s.set);
    }
    free(text);
    return 0;
}
