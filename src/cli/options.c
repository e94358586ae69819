/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include "common.h"
#include "kvonce.h"

#include <string.h>

static int print_help(const cli_command *command, const cli_option *options)
{
    printf("usage: kvonce %s%s%s%s\n\n%s\n\noptions:\n", command->name, command->operand != NULL ? " " : "",
           command->operand != NULL ? command->operand : "", " [options]", command->about);
    for (; options->name != NULL; options++) {
        char left[64];
        (void)snprintf(left, sizeof left, "%s%s%s", options->name, options->value != NULL ? " " : "",
                       options->value != NULL ? options->value : "");
        printf("  %-28s %s\n", left, options->help);
    }
    printf("  %-28s %s\n\n%s", "--help", "this text", command->more);
    return cli_finish(CLI_OK);
}

static const cli_option *find_option(const cli_option *options, const char *argument, size_t length)
{
    for (; options->name != NULL; options++) {
        if (strlen(options->name) == length && memcmp(options->name, argument, length) == 0) {
            return options;
        }
    }
    return NULL;
}

/* Takes one option; *used counts the arguments. 0 or CLI_FAIL. */
static int take_option(const cli_command *command, const cli_option *options, int argc, char **argv, int *used)
{
    const char *equals = strchr(argv[0], '=');
    size_t length = equals != NULL ? (size_t)(equals - argv[0]) : strlen(argv[0]);
    const cli_option *option = find_option(options, argv[0], length);
    *used = 1;
    if (option == NULL) {
        return cli_fail("%s: no option %.*s (kvonce %s --help)", command->name, (int)length, argv[0],
                        command->name);
    }
    if (*option->text != NULL) {
        return cli_fail("%s is given twice", option->name);
    }
    if (option->value == NULL) {
        *option->text = option->name;
        return equals != NULL ? cli_fail("%s takes no value", option->name) : 0;
    }
    if (equals == NULL && argc < 2) {
        return cli_fail("%s needs a value: %s", option->name, option->value);
    }
    *option->text = equals != NULL ? equals + 1 : argv[1];
    *used = equals != NULL ? 1 : 2;
    return 0;
}

int cli_parse(const cli_command *command, const cli_option *options, int argc, char **argv,
              const char **operand)
{
    int only_operands = 0;
    int used;
    *operand = NULL;
    for (int i = 0; i < argc; i += used) {
        used = 1;
        if (!only_operands && strcmp(argv[i], "--") == 0) {
            only_operands = 1;
        } else if (!only_operands && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
            return print_help(command, options);
        } else if (!only_operands && argv[i][0] == '-' && argv[i][1] != 0) {
            if (take_option(command, options, argc - i, argv + i, &used) != 0) {
                return CLI_FAIL;
            }
        } else if (command->operand == NULL || *operand != NULL) {
            return cli_fail("%s: one argument too many: %s", command->name, argv[i]);
        } else {
            *operand = argv[i];
        }
    }
    if (command->operand != NULL && (*operand == NULL || **operand == 0)) {
        return cli_fail("%s: %s is missing (kvonce %s --help)", command->name, command->operand, command->name);
    }
    return -1;
}

int cli_number(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t fallback,
               uint64_t *value)
{
    if (text == NULL) {
        *value = fallback;
        return 0;
    }
    int good = *text != 0;
    *value = 0;
    for (const char *at = text; good && *at != 0; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        good = *at >= '0' && *at <= '9' && *value <= (UINT64_MAX - digit) / 10;
        *value = *value * 10 + digit;
    }
    if (!good || *value < min || *value > max) {
        (void)cli_fail("%s: \"%s\" is not a whole number from %llu to %llu", option, text,
                       (unsigned long long)min, (unsigned long long)max);
        return -1;
    }
    return 0;
}

int cli_size(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t fallback,
             uint64_t *value)
{
    kvo_error error;
    if (text == NULL) {
        *value = fallback;
        return 0;
    }
    if (kvo_parse_size(text, value, &error) != KVO_OK) {
        (void)cli_fail("%s: %s", option, error.text);
        return -1;
    }
    if (*value < min || *value > max) {
        char low[CLI_COUNT_TEXT], high[CLI_COUNT_TEXT];
        (void)cli_fail("%s: %s is not from %s to %s", option, text, cli_bytes_text(min, low),
                       cli_bytes_text(max, high));
        return -1;
    }
    return 0;
}

int cli_word(const char *option, const char *text, const char *const *words, int *index)
{
    *index = 0;
    if (text == NULL) {
        return 0;
    }
    for (; words[*index] != NULL; (*index)++) {
        if (strcmp(words[*index], text) == 0) {
            return 0;
        }
    }
    char list[512] = "";
    for (size_t i = 0, length = 0; words[i] != NULL && length < sizeof list; i++) {
        int n = snprintf(list + length, sizeof list - length, "%s%s",
                         i == 0                 ? ""
                         : words[i + 1] != NULL ? ", "
                                                : " or ",
                         words[i]);
        length += n > 0 ? (size_t)n : 0;
    }
    (void)cli_fail("%s: \"%s\" is not %s", option, text, list);
    return -1;
}
