/* SPDX-License-Identifier: Apache-2.0 */
/* The digest of a model's files, remembered by what the file system says of them. */
#include "adapter.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CACHE_TITLE "kvonce model identities 1\n"
#define CACHE_LINES_MAX 256
#define READ_BYTES (1u << 20)
#define PARTS_MAX 99999
#define SETTLED_S 2 /* a younger file may change again without another time stamp */

static int fail(kvo_error *error, int status, const char *format, ...)
{
    va_list more;

    va_start(more, format);
    if (error != NULL)
        vsnprintf(error->text, sizeof error->text, format, more);
    va_end(more);
    return status;
}

static int errno_status(int number)
{
    switch (number) {
    case ENOENT:
    case ENOTDIR:
        return KVO_E_NOT_FOUND;
    case EACCES:
    case EPERM:
        return KVO_E_PERMISSION;
    case ENOMEM:
        return KVO_E_MEMORY;
    default:
        return KVO_E_IO;
    }
}

/* ---- One file -------------------------------------------------------------- */

/* What changes when the file does; also when only its name does, which costs one more reading. */
typedef struct file_stamp {
    char text[160];
} file_stamp;

static file_stamp stamp_of(const struct stat *file)
{
    file_stamp out;

    snprintf(out.text, sizeof out.text, "%llu %llu %lld %lld.%09ld %lld.%09ld", (unsigned long long)file->st_dev,
             (unsigned long long)file->st_ino, (long long)file->st_size, (long long)file->st_mtim.tv_sec,
             file->st_mtim.tv_nsec, (long long)file->st_ctim.tv_sec, file->st_ctim.tv_nsec);
    return out;
}

static bool settled(const struct stat *file)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return file->st_mtim.tv_sec + SETTLED_S < now.tv_sec && file->st_ctim.tv_sec + SETTLED_S < now.tv_sec;
}

static int read_all(int descriptor, EVP_MD_CTX *hash)
{
    uint8_t *chunk = malloc(READ_BYTES);
    ssize_t got = 1;

    if (chunk == NULL)
        return ENOMEM;
    while (got > 0) {
        got = read(descriptor, chunk, READ_BYTES);
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got > 0 && EVP_DigestUpdate(hash, chunk, (size_t)got) != 1)
            got = -2;
    }
    const int failure = got == 0 ? 0 : got == -2 ? ENOMEM : errno;

    free(chunk);
    return failure;
}

static int hash_open(int descriptor, const char *path, uint8_t digest[32], kvo_error *error)
{
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    int failure = hash != NULL && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) == 1 ? 0 : ENOMEM;

    if (failure == 0)
        failure = read_all(descriptor, hash);
    if (failure == 0 && EVP_DigestFinal_ex(hash, digest, NULL) != 1)
        failure = ENOMEM;
    EVP_MD_CTX_free(hash);
    return failure == 0 ? KVO_OK : fail(error, errno_status(failure), "%s: %s", path, strerror(failure));
}

/* Digest and stamp of a file, which must be the same after the reading as before. *keep: it may be remembered. */
static int digest_file(const char *path, uint8_t digest[32], file_stamp *stamp, bool *keep, kvo_error *error)
{
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is refused, not waited for */
    struct stat before, after;
    int status;

    if (descriptor < 0)
        return fail(error, errno_status(errno), "%s: %s", path, strerror(errno));
    if (fstat(descriptor, &before) != 0 || !S_ISREG(before.st_mode)) {
        close(descriptor);
        return fail(error, KVO_E_IO, "%s: not a file", path);
    }
    status = hash_open(descriptor, path, digest, error);
    if (status == KVO_OK && (fstat(descriptor, &after) != 0 ||
                             strcmp(stamp_of(&before).text, stamp_of(&after).text) != 0))
        status = fail(error, KVO_BUSY, "%s: it changed while it was read", path);
    close(descriptor);
    *stamp = stamp_of(&before);
    *keep = settled(&before);
    return status;
}

int llama_file_digest(const char *path, uint8_t digest[32], kvo_error *error)
{
    file_stamp stamp;
    bool keep;

    return digest_file(path, digest, &stamp, &keep, error);
}

/* ---- What is remembered ------------------------------------------------------ */

static bool unhex(const char *text, uint8_t digest[32])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < 64; i++) {
        const char *digit = text[i] == 0 ? NULL : strchr(digits, text[i]);
        if (digit == NULL)
            return false;
        digest[i / 2] = (uint8_t)(i % 2 == 0 ? (digit - digits) << 4 : digest[i / 2] | (digit - digits));
    }
    return text[64] == '\n';
}

/* A line is a digest's stamp, a blank, the digest. */
static bool line_is(const char *line, const file_stamp *stamp, uint8_t digest[32])
{
    const size_t length = strlen(stamp->text);

    return strncmp(line, stamp->text, length) == 0 && line[length] == ' ' && unhex(line + length + 1, digest);
}

static bool recall(const char *cache, const char *path, uint8_t digest[32])
{
    char line[256] = "";
    struct stat file;
    bool found = false;
    FILE *in = cache == NULL || stat(path, &file) != 0 ? NULL : fopen(cache, "re");

    if (in == NULL)
        return false;
    const file_stamp stamp = stamp_of(&file);

    if (fgets(line, sizeof line, in) != NULL && strcmp(line, CACHE_TITLE) == 0)
        while (!found && fgets(line, sizeof line, in) != NULL)
            found = line_is(line, &stamp, digest);
    fclose(in);
    return found;
}

/* The new line first, then the newest of the old ones. */
static bool write_cache(FILE *out, const char *cache, const file_stamp *stamp, const uint8_t digest[32])
{
    char line[256] = "", hex[65];
    FILE *old = fopen(cache, "re");
    int lines = 1;

    llama_hex(digest, 32, hex);
    fprintf(out, "%s%s %s\n", CACHE_TITLE, stamp->text, hex);
    if (old != NULL && fgets(line, sizeof line, old) != NULL && strcmp(line, CACHE_TITLE) == 0)
        while (lines++ < CACHE_LINES_MAX && fgets(line, sizeof line, old) != NULL)
            fputs(line, out);
    if (old != NULL)
        fclose(old);
    return ferror(out) == 0;
}

/* A cache that cannot be written costs time, no more. */
static void remember(const char *cache, const file_stamp *stamp, const uint8_t digest[32])
{
    char *name = NULL;
    int descriptor = -1;
    FILE *out = NULL;

    if (asprintf(&name, "%s.XXXXXX", cache) < 0)
        return;
    descriptor = mkostemp(name, O_CLOEXEC);
    if (descriptor >= 0)
        out = fdopen(descriptor, "w");
    if (out != NULL) {
        const bool whole = write_cache(out, cache, stamp, digest);

        if (fclose(out) != 0 || !whole || rename(name, cache) != 0)
            unlink(name);
    } else if (descriptor >= 0) {
        close(descriptor);
        unlink(name);
    }
    free(name);
}

static int identity_of(const char *path, const char *cache, uint8_t digest[32], kvo_error *error)
{
    file_stamp stamp;
    bool keep;
    int status;

    if (recall(cache, path, digest))
        return KVO_OK;
    status = digest_file(path, digest, &stamp, &keep, error);
    if (status == KVO_OK && cache != NULL && keep)
        remember(cache, &stamp, digest);
    return status;
}

/* ---- A model in parts --------------------------------------------------------- */

/* "name-00001-of-00003.gguf": 3, and where the first number lies; else 0. */
static int part_count(const char *path, size_t *number_at)
{
    const size_t length = strlen(path), tail = strlen("-00001-of-00003.gguf");
    int number, count, used = 0;

    if (length < tail)
        return 0;
    *number_at = length - tail + 1;
    if (sscanf(path + length - tail, "-%5d-of-%5d.gguf%n", &number, &count, &used) != 2 || used != (int)tail)
        return 0;
    return number >= 1 && count >= number && count <= PARTS_MAX ? count : 0;
}

static int identity_of_parts(char *path, size_t number_at, int count, const char *cache, uint8_t digest[32],
                             kvo_error *error)
{
    uint8_t *all = calloc((size_t)count, 32);
    int status = all == NULL ? KVO_E_MEMORY : KVO_OK;

    for (int i = 0; status == KVO_OK && i < count; i++) {
        char number[16];

        snprintf(number, sizeof number, "%05d", i + 1);
        memcpy(path + number_at, number, 5);
        status = identity_of(path, cache, all + 32 * (size_t)i, error);
    }
    const kv_piece pieces = {all, 32 * (size_t)count};

    if (status == KVO_OK && !llama_digest(&pieces, 1, digest))
        status = KVO_E_MEMORY;
    free(all);
    return status;
}

int kvo_llama_model_identity(const char *path, const char *cache, uint8_t model[KVO_LLAMA_MODEL_BYTES],
                             kvo_error *error)
{
    size_t number_at = 0;
    int count, status;
    char *copy;

    if (path == NULL || model == NULL)
        return KVO_E_ARGUMENT;
    count = part_count(path, &number_at);
    if (count <= 1)
        return identity_of(path, cache, model, error);
    copy = strdup(path);
    if (copy == NULL)
        return KVO_E_MEMORY;
    status = identity_of_parts(copy, number_at, count, cache, model, error);
    free(copy);
    return status;
}
