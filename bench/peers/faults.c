/* SPDX-License-Identifier: Apache-2.0 */
/* What a system makes of a byte turned over, a file cut short, a file of zeros, a kill -9 right after its put. */
#include "peer.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FAULT_BLOCKS = 8, VICTIM = 3, FAULT_SIZE = 1 << 20 };

/* Where the middle of a block's payload lies, if anywhere as it is. */
typedef struct search {
    const uint8_t *wanted; /* 64 bytes */
    char file[4600];
    off_t at;
    int found; /* so often: to harm one of two copies would prove nothing */
} search;

static void look_into(const char *path, void *context)
{
    search *s = context;
    struct stat st;
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &st) != 0 || st.st_size < 64) {
        (void)(file >= 0 && close(file));
        return;
    }
    uint8_t *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, file, 0);
    const uint8_t *from = bytes, *found;
    while (bytes != MAP_FAILED &&
           (found = memmem(from, (size_t)(bytes + st.st_size - from), s->wanted, 64)) != NULL) {
        (void)snprintf(s->file, sizeof s->file, "%s", path);
        s->at = found - bytes;
        s->found++;
        from = found + 1;
    }
    if (bytes != MAP_FAILED) {
        (void)munmap(bytes, (size_t)st.st_size);
    }
    (void)close(file);
}

/* Turns one byte over, or cuts the file off in the middle of the block, or fills all of it with zeros. */
static int harm(const char *fault_name, const search *where)
{
    uint8_t byte = 0;
    struct stat st;
    int file = open(where->file, O_RDWR);
    int r = file < 0 || fstat(file, &st) != 0 ? -1 : 0;
    if (r == 0 && strcmp(fault_name, "flipped_byte") == 0) {
        r = pread(file, &byte, 1, where->at) == 1 ? 0 : -1;
        byte ^= 0x10;
        r = r == 0 && pwrite(file, &byte, 1, where->at) == 1 ? 0 : -1;
    } else if (r == 0 && strcmp(fault_name, "truncated_file") == 0) {
        r = ftruncate(file, where->at);
    } else if (r == 0) {
        r = ftruncate(file, 0) == 0 ? ftruncate(file, st.st_size) : -1;
    }
    if (file >= 0) {
        (void)fsync(file);
        (void)close(file);
    }
    return r;
}

/* In a process of its own, since it may die: puts the blocks; then closes, or is killed. */
static void write_and_end(peer_session *s, int killed)
{
    run_open(s);
    run_put(s, 0);
    if (killed) {
        if (s->ops->writer != NULL) {
            (void)kill(s->ops->writer(s->peer), SIGKILL);
        }
        (void)kill(getpid(), SIGKILL);
    }
    (void)run_sync(s);
    s->ops->close(s->peer);
    _exit(0);
}

typedef struct outcome {
    int opened, right, wrong, miss, error;
} outcome;

/* Likewise: opens and gets all, one by one. */
static void read_all(peer_session *s, outcome *o)
{
    char error[256] = "";
    s->peer = s->ops->open(&s->place, error);
    o->opened = s->peer != NULL;
    for (size_t i = 0; o->opened && i < FAULT_BLOCKS; i++) {
        uint8_t key[PEER_KEY];
        void *block = run.back;
        int result = PEER_ERROR;
        run_key(i, key);
        memset(run.back, 0x11, s->size);
        s->ops->get(s->peer, key, &block, 1, s->size, &result);
        int same = memcmp(run.back, run.blocks + i * s->size, s->size) == 0;
        o->right += result == PEER_FOUND && same;
        o->wrong += result == PEER_FOUND && !same;
        o->miss += result == PEER_MISS;
        o->error += result == PEER_ERROR;
    }
    if (o->opened) {
        s->ops->close(s->peer);
    }
    _exit(0);
}

static pid_t forked(void)
{
    pid_t child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    return child;
}

void fault(const peer_ops *ops, const char *name)
{
    peer_session s = {.ops = ops, .size = FAULT_SIZE, .count = FAULT_BLOCKS};
    search where = {.wanted = run.blocks + VICTIM * FAULT_SIZE + FAULT_SIZE / 2};
    outcome *o = mmap(NULL, sizeof *o, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int killed = strcmp(name, "kill_after_put") == 0, status = 0;
    run.back = run_memory(FAULT_SIZE);
    run.answer[0] = 0;
    s.place = (peer_place){run_place(), s.size, s.count};
    pid_t child = forked();
    if (child == 0) {
        write_and_end(&s, killed);
    }
    (void)waitpid(child, &status, 0);
    if (run.answer[0] != 0) {
        return; /* it gave up, and said why */
    }
    int signal_number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (signal_number != (killed ? SIGKILL : 0)) {
        char why[64];
        (void)snprintf(why, sizeof why, "the process that puts ended by signal %d", signal_number);
        run_give_up(why);
    }
    if (!killed) {
        run_each_file(s.place.directory, look_into, &where);
        if (where.found != 1) {
            run_give_up(where.found == 0 ? "the payload lies in no file as it is"
                                         : "the payload lies there twice");
        }
        if (harm(name, &where) != 0) {
            run_give_up("its file could not be damaged");
        }
        run_make_cold(s.place.directory);
    }
    child = forked();
    if (child == 0) {
        read_all(&s, o);
    }
    (void)waitpid(child, &status, 0);
    (void)snprintf(run.answer, PEER_ANSWER,
                   "{\"blocks\": %d, \"opened\": %s, \"right\": %d, \"wrong\": %d, \"miss\": %d, \"error\": "
                   "%d, \"signal\": %d}",
                   FAULT_BLOCKS, o->opened ? "true" : "false", o->right, o->wrong, o->miss, o->error,
                   WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}
