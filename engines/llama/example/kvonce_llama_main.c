/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvonce-llama: prompts answered by llama.cpp, whose KV survives the process. An example to read, and where to
 * begin is session.c: the three calls that a program of yours needs are there. Here are the commands.
 */
#include "report.h"
#include "session.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int run(const setup *settings)
{
    session self;
    answered result = {0};
    kvo_llama_stat zero = KVO_LLAMA_STAT_INIT;
    uint64_t begin = now_ns();
    int code = open_session(&self, settings);
    double load_s = seconds(begin, now_ns());
    char *prompt = code == 0 ? read_prompt(&self) : NULL;
    code = prompt == NULL ? 2 : answer(&self, prompt, &result);
    if (code == 0) {
        kvo_llama_stat stat = figures_since(&self, &zero);
        if (settings->json) {
            report_json(&self, &result, &stat, load_s);
        } else {
            putchar('\n');
            report_text(&self, &result, &stat);
        }
    }
    free(prompt);
    free_answer(&result);
    return close_session(&self, code);
}

static int count(const setup *settings)
{
    session self;
    int code = open_session(&self, settings);
    char *prompt = code == 0 ? read_prompt(&self) : NULL;
    size_t tokens_count = 0;
    int32_t *tokens = prompt == NULL ? NULL : engine_tokenize(self.engine, prompt, strlen(prompt), 1, &tokens_count);
    if (tokens != NULL) {
        printf("%zu\n", tokens_count);
    }
    code = tokens == NULL ? 2 : 0;
    free(tokens);
    free(prompt);
    return close_session(&self, code);
}

/* What was said so far. */
typedef struct conversation {
    const char **roles;
    const char **texts;
    size_t count, room;
} conversation;

static int say(conversation *talk, const char *role, const char *text)
{
    if (talk->count == talk->room) {
        size_t room = 2 * talk->room + 16;
        const char **roles = realloc(talk->roles, room * sizeof *roles);
        talk->roles = roles != NULL ? roles : talk->roles;
        const char **texts = realloc(talk->texts, room * sizeof *texts);
        talk->texts = texts != NULL ? texts : talk->texts;
        if (roles == NULL || texts == NULL) {
            return fail("out of memory");
        }
        talk->room = room;
    }
    char *copy = strdup(text);
    if (copy == NULL) {
        return fail("out of memory");
    }
    talk->roles[talk->count] = role;
    talk->texts[talk->count++] = copy;
    return 0;
}

/* A turn tokenises the whole talk anew and asks the store for it, as a server does that gets the whole talk with each
   request and has answered others since. */
static int chat_turn(session *self, conversation *talk)
{
    answered result = {0};
    kvo_llama_stat before = KVO_LLAMA_STAT_INIT;
    if (self->kv != NULL) {
        (void)kvo_llama_stat_get(self->kv, &before);
    }
    char *prompt = engine_chat(self->engine, talk->roles, talk->texts, talk->count, 1);
    int code = prompt == NULL ? fail("the model has no template for chats that llama.cpp knows")
                              : answer(self, prompt, &result);
    if (code == 0) {
        kvo_llama_stat stat = figures_since(self, &before);
        putchar('\n');
        report_text(self, &result, &stat);
        code = say(talk, "assistant", result.text);
    }
    free(prompt);
    free_answer(&result);
    return code;
}

static int chat(const setup *settings)
{
    session self;
    conversation talk = {0};
    char *line = NULL;
    size_t line_room = 0;
    int code = open_session(&self, settings);
    if (code == 0 && settings->prompt_file != NULL) {
        char *text = read_file(settings->prompt_file);
        code = text == NULL ? 2 : say(&talk, "system", text);
        free(text);
    }
    while (code == 0) {
        fputs("> ", stderr);
        ssize_t length = getline(&line, &line_room, stdin);
        if (length < 0) {
            break;
        }
        line[strcspn(line, "\n")] = 0;
        if (*line != 0) {
            code = say(&talk, "user", line);
            code = code == 0 ? chat_turn(&self, &talk) : code;
        }
    }
    free(line);
    for (size_t i = 0; i < talk.count; i++) {
        free((void *)(uintptr_t)talk.texts[i]);
    }
    free(talk.roles);
    free(talk.texts);
    return close_session(&self, code);
}

/* ---- Options ----------------------------------------------------------------------- */

static const char help[] =
    "usage: kvonce-llama run   --model FILE --store TIERS --prompt-file FILE [options]\n"
    "       kvonce-llama chat  --model FILE --store TIERS [--prompt-file FILE] [options]\n"
    "       kvonce-llama count --model FILE --prompt-file FILE [--raw]\n"
    "\n"
    "Answers prompts with llama.cpp, and keeps their KV in a kvonce store: the next run, or the next turn, computes\n"
    "only what is new. run answers one prompt, chat one line of standard input after the other, count counts.\n"
    "\n"
    "  --model FILE        a GGUF model\n"
    "  --store TIERS       as dram:512M,disk:/var/lib/kv:4G\n"
    "  --prompt-file FILE  the prompt; in chat the system's text; - is standard input\n"
    "  -n N                tokens of an answer at most (64)\n"
    "  --cold              restore nothing; what is computed is saved as always\n"
    "  --raw               the prompt as it is, without the model's template for chats\n"
    "  --threads N         (1)\n"
    "  --context N         tokens of the context (4096)\n"
    "  --batch N           tokens of a batch (512)\n"
    "  --block N           tokens of a block (64)\n"
    "  --library FILE      libllama.so (KVONCE_LLAMA_LIB, else where the loader looks)\n"
    "  --json              one JSON object instead of the text as it comes (run)\n";

/* A whole number from `least` to `most`, or the end. */
static uint32_t number(const char *option, const char *text, uint32_t least, uint32_t most)
{
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != 0 || errno != 0 || value < least || value > most) {
        exit(fail("%s: \"%s\" is not a whole number from %u to %u", option, text, least, most));
    }
    return (uint32_t)value;
}

static int read_options(int argc, char **argv, setup *settings)
{
    enum { MODEL = 256, STORE, PROMPT, THREADS, CONTEXT, BATCH, BLOCK, LIBRARY, COLD, RAW, JSON, HELP };
    static const struct option options[] = {
        {"model", required_argument, 0, MODEL},     {"store", required_argument, 0, STORE},
        {"threads", required_argument, 0, THREADS}, {"prompt-file", required_argument, 0, PROMPT},
        {"context", required_argument, 0, CONTEXT}, {"batch", required_argument, 0, BATCH},
        {"block", required_argument, 0, BLOCK},     {"library", required_argument, 0, LIBRARY},
        {"cold", no_argument, 0, COLD},             {"raw", no_argument, 0, RAW},
        {"json", no_argument, 0, JSON},             {"help", no_argument, 0, HELP},
        {0, 0, 0, 0}};
    for (int option; (option = getopt_long(argc, argv, "n:h", options, NULL)) != -1;) {
        switch (option) {
        case MODEL: settings->engine.model = optarg; break;
        case STORE: settings->store = optarg; break;
        case PROMPT: settings->prompt_file = optarg; break;
        case LIBRARY: settings->engine.library = optarg; break;
        case 'n': settings->answer_tokens = number("-n", optarg, 1, 1u << 20); break;
        case THREADS: settings->engine.threads = (int)number("--threads", optarg, 1, 512); break;
        case CONTEXT: settings->engine.context_tokens = number("--context", optarg, 1, 1u << 24); break;
        case BATCH: settings->engine.batch_tokens = number("--batch", optarg, 1, 1u << 16); break;
        case BLOCK: settings->block_tokens = number("--block", optarg, 1, 4096); break;
        case COLD: settings->cold = 1; break;
        case RAW: settings->raw = 1; break;
        case JSON: settings->json = 1; break;
        case 'h':
        case HELP: fputs(help, stdout); exit(0);
        default: return 2; /* getopt has said why */
        }
    }
    return optind == argc ? 0 : fail("one argument too many: %s", argv[optind]);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const setup *settings);
        int needs_store, needs_prompt;
    } commands[] = {{"run", run, 1, 1}, {"chat", chat, 1, 0}, {"count", count, 0, 1}};
    setup settings = {.answer_tokens = 64, .block_tokens = 64};
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        fputs(help, argc < 2 ? stderr : stdout);
        return argc < 2 ? 2 : 0;
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(argv[1], commands[i].name) != 0) {
            continue;
        }
        static char program[] = "kvonce-llama";
        argv[1] = program; /* for getopt's messages */
        if (read_options(argc - 1, argv + 1, &settings) != 0) {
            return 2;
        }
        if (settings.cold && commands[i].run == chat) {
            return fail("--cold is for run: a chat empties its context by restoring");
        }
        if (settings.engine.model == NULL || (commands[i].needs_store && settings.store == NULL) ||
            (commands[i].needs_prompt && settings.prompt_file == NULL)) {
            return fail("%s needs --model%s%s", commands[i].name, commands[i].needs_store ? ", --store" : "",
                        commands[i].needs_prompt ? ", --prompt-file" : "");
        }
        int code = commands[i].run(&settings);
        if (code != 2 && (fflush(stdout) != 0 || ferror(stdout) != 0)) {
            return fail("standard output: the answer could not be written");
        }
        return code;
    }
    return fail("no command %s (run, chat, count)", argv[1]);
}
