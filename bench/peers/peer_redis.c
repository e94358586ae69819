/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Redis over a unix socket, with an append-only file that the kernel writes when it likes. Its protocol (RESP) is
 * spoken here, out of and into the caller's blocks, and a batch's requests go out before the first answer is awaited:
 * hiredis 0.14 moves what is left of a request after each write, and copies each answer twice.
 */
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct redis {
    pid_t server;
    int folder, socket;
    size_t have, used; /* of the buffer */
    char buffer[4096];
} redis;

/* ---- Its protocol ---- */

static int send_all(redis *r, struct iovec *parts, int count)
{
    while (count > 0) {
        ssize_t n = writev(r->socket, parts, count);
        if (n <= 0) {
            return -1;
        }
        for (; count > 0 && (size_t)n >= parts->iov_len; parts++, count--) {
            n -= (ssize_t)parts->iov_len;
        }
        if (count > 0) {
            parts->iov_base = (char *)parts->iov_base + n;
            parts->iov_len -= (size_t)n;
        }
    }
    return 0;
}

/* So many bytes of the answer: what the buffer has, and the rest straight to where it belongs. */
static int take(redis *r, void *to, size_t bytes)
{
    size_t n = r->have - r->used < bytes ? r->have - r->used : bytes;
    memcpy(to, r->buffer + r->used, n);
    r->used += n;
    for (char *at = (char *)to + n; n < bytes;) {
        ssize_t got = read(r->socket, at, bytes - n);
        if (got <= 0) {
            return -1;
        }
        at += got;
        n += (size_t)got;
    }
    return 0;
}

/* One line, without its end; -1: the server is gone, or says something longer. */
static int take_line(redis *r, char line[128])
{
    for (size_t n = 0; n < 128; n++) {
        if (r->used == r->have) {
            ssize_t got = read(r->socket, r->buffer, sizeof r->buffer);
            if (got <= 0) {
                return -1;
            }
            r->used = 0;
            r->have = (size_t)got;
        }
        line[n] = r->buffer[r->used++];
        if (line[n] == '\n') {
            line[n > 0 ? n - 1 : 0] = 0;
            return 0;
        }
    }
    return -1;
}

static int send_text(redis *r, const char *text)
{
    struct iovec part = {(void *)(uintptr_t)text, strlen(text)};
    return send_all(r, &part, 1);
}

/* ---- The server ---- */

static void nap(long ms)
{
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&pause, NULL);
}

/* Its socket is named from inside the directory: a whole path may be longer than a socket's name. */
static pid_t start_server(const char *directory)
{
    pid_t child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        int log = chdir(directory) == 0 ? open("log", O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;
        (void)dup2(log, 1);
        (void)dup2(log, 2);
        (void)execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", "s", "--save", "",
                     "--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0",
                     (char *)NULL);
        (void)dprintf(2, "redis-server: %s\n", strerror(errno));
        _exit(127);
    }
    return child;
}

static int try_connect(redis *r)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    (void)snprintf(name.sun_path, sizeof name.sun_path, "/proc/self/fd/%d/s", r->folder);
    r->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (r->socket >= 0 && connect(r->socket, (struct sockaddr *)&name, sizeof name) != 0) {
        (void)close(r->socket);
        r->socket = -1;
    }
    return r->socket >= 0;
}

/* Up, and done with loading what was there. */
static int is_ready(redis *r)
{
    char line[128];
    if (r->socket < 0 && !try_connect(r)) {
        return 0;
    }
    if (send_text(r, "PING\r\n") != 0 || take_line(r, line) != 0) {
        (void)close(r->socket);
        r->socket = -1;
        return 0;
    }
    return strcmp(line, "+PONG") == 0;
}

static void last_line_of_log(int folder, char error[256])
{
    char text[512] = "";
    int log = openat(folder, "log", O_RDONLY | O_CLOEXEC);
    off_t size = log >= 0 ? lseek(log, 0, SEEK_END) : 0;
    off_t from = size < (off_t)sizeof text - 1 ? 0 : size - (off_t)(sizeof text - 1);
    ssize_t n = log >= 0 ? pread(log, text, sizeof text - 1, from) : 0;
    (void)(log >= 0 && close(log));
    while (n > 0 && text[n - 1] == '\n') {
        text[--n] = 0;
    }
    const char *line = strrchr(text, '\n');
    (void)snprintf(error, 256, "redis-server does not come up: %.200s", line != NULL ? line + 1 : text);
}

static void redis_stop(void *peer)
{
    redis *r = peer;
    if (r->socket >= 0) {
        (void)send_text(r, "SHUTDOWN NOSAVE\r\n");
        (void)close(r->socket);
    }
    if (r->server > 0) {
        (void)kill(r->server, SIGTERM);
        (void)waitpid(r->server, NULL, 0);
    }
    (void)close(r->folder);
    free(r);
}

static void *redis_open(const peer_place *place, char error[256])
{
    redis *r = calloc(1, sizeof *r);
    r->socket = -1;
    r->folder = open(place->directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    (void)unlinkat(r->folder, "s", 0);
    r->server = start_server(place->directory);
    for (int i = 0; i < 20000; i++) {
        if (is_ready(r)) {
            return r;
        }
        if (waitpid(r->server, NULL, WNOHANG) == r->server) {
            r->server = 0;
            break;
        }
        nap(1);
    }
    last_line_of_log(r->folder, error);
    redis_stop(r);
    return NULL;
}

/* ---- Blocks ---- */

static int send_set(redis *r, const uint8_t *key, const void *block, size_t bytes)
{
    char head[64], middle[32];
    int head_bytes = snprintf(head, sizeof head, "*3\r\n$3\r\nSET\r\n$%d\r\n", PEER_KEY);
    int middle_bytes = snprintf(middle, sizeof middle, "\r\n$%zu\r\n", bytes);
    struct iovec parts[] = {{head, (size_t)head_bytes},
                            {(void *)(uintptr_t)key, PEER_KEY},
                            {middle, (size_t)middle_bytes},
                            {(void *)(uintptr_t)block, bytes},
                            {"\r\n", 2}};
    return send_all(r, parts, 5);
}

static int send_get(redis *r, const uint8_t *key)
{
    char head[64];
    int head_bytes = snprintf(head, sizeof head, "*2\r\n$3\r\nGET\r\n$%d\r\n", PEER_KEY);
    struct iovec parts[] = {{head, (size_t)head_bytes}, {(void *)(uintptr_t)key, PEER_KEY}, {"\r\n", 2}};
    return send_all(r, parts, 3);
}

static int redis_put(void *peer, const uint8_t *keys, const void *const *blocks, size_t count, size_t bytes)
{
    redis *r = peer;
    char line[128];
    int failed = 0;
    for (size_t i = 0; i < count && !failed; i++) {
        failed = send_set(r, keys + i * PEER_KEY, blocks[i], bytes) != 0;
    }
    for (size_t i = 0; i < count && !failed; i++) {
        failed = take_line(r, line) != 0 || strcmp(line, "+OK") != 0;
    }
    return failed ? -1 : 0;
}

static int take_block(redis *r, void *block, size_t bytes)
{
    char line[128], end[2];
    if (take_line(r, line) != 0) {
        return PEER_ERROR;
    }
    if (strcmp(line, "$-1") == 0) {
        return PEER_MISS;
    }
    if (line[0] != '$' || strtoull(line + 1, NULL, 10) != bytes || take(r, block, bytes) != 0 ||
        take(r, end, 2) != 0) {
        return PEER_ERROR;
    }
    return PEER_FOUND;
}

static void redis_get(void *peer, const uint8_t *keys, void *const *blocks, size_t count, size_t bytes,
                      int *results)
{
    redis *r = peer;
    int sent = 1;
    for (size_t i = 0; i < count && sent; i++) {
        sent = send_get(r, keys + i * PEER_KEY) == 0;
    }
    for (size_t i = 0; i < count; i++) {
        results[i] = sent ? take_block(r, blocks[i], bytes) : PEER_ERROR;
    }
}

static int redis_writer(void *peer)
{
    return ((redis *)peer)->server;
}

const peer_ops peer_redis = {.name = "Redis, unix socket",
                             .durability =
                                 "the server's memory and, by the append-only file, the page cache; no "
                                 "call waits for the disk (7.0); sync: the benchmark's syncfs",
                             .checks = "nothing",
                             .persistent = 1,
                             .loads_all = 1,
                             .open = redis_open,
                             .close = redis_stop,
                             .put = redis_put,
                             .get = redis_get,
                             .writer = redis_writer};
