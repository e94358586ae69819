/* SPDX-License-Identifier: Apache-2.0 */
#include "nth.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "move/move.h"

nth_sums nth;
uint64_t nth_segment_bytes;
bool nth_threads;

static base_env machine;
static _Atomic long from, until; /* calls that fail, by their number */
static _Atomic int how;
static _Atomic uint64_t draws;

#define REAL base_env_posix()

void nth_arm(long first, long count, nth_how h)
{
    nth_disarm();
    atomic_store(&nth.calls, 0);
    atomic_store(&nth.failed, 0);
    atomic_store(&nth.reads_failed, 0);
    atomic_store(&how, (int)h);
    atomic_store(&from, first);
    atomic_store(&until, first + count);
}

void nth_disarm(void)
{
    atomic_store(&until, 0);
    atomic_store(&from, 0);
}

static bool falls(void)
{
    long n = atomic_fetch_add(&nth.calls, 1) + 1;
    if (n < atomic_load(&from) || n >= atomic_load(&until))
        return false;
    atomic_fetch_add(&nth.failed, 1);
    atomic_fetch_add(&nth.total_failed, 1);
    return true;
}

static int error_of(void) { return atomic_load(&how) == NTH_IN_PART ? -ENOSPC : -EIO; }
static bool although(void) { return atomic_load(&how) == NTH_ALTHOUGH; }

/* ---- memory ---- */

static void taken(size_t bytes)
{
    atomic_fetch_add(&nth.pieces, 1);
    atomic_fetch_add(&nth.memory_bytes, bytes);
}

static void given(size_t bytes)
{
    atomic_fetch_sub(&nth.pieces, 1);
    atomic_fetch_sub(&nth.memory_bytes, bytes);
}

/* Small pieces from the heap: quicker than a mapping each, and address sanitizer sees their ends. */
enum { PIECE = 64 * 1024, PAGE = 4096 };

static void *piece(size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, bytes < PAGE ? 64 : PAGE, bytes) != 0)
        return NULL;
    return memset(memory, 0, bytes);
}

/* Without huge pages, of which a short life would clear each whole. */
static void *mapping(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void *nth_alloc(base_env *env, size_t bytes)
{
    (void)env;
    if (falls())
        return NULL;
    void *memory = bytes <= PIECE ? piece(bytes) : mapping(bytes);
    if (memory)
        taken(bytes);
    return memory;
}

static void nth_free(base_env *env, void *memory, size_t bytes)
{
    (void)env;
    if (memory)
        given(bytes);
    if (bytes <= PIECE)
        free(memory);
    else
        REAL->free(REAL, memory, bytes);
}

static int nth_map_arena(base_env *env, size_t bytes, void **writable, const void **readable)
{
    (void)env;
    *writable = NULL;
    *readable = NULL;
    int r = falls() ? -ENOMEM : REAL->map_arena(REAL, bytes, writable, readable);
    if (r == 0)
        taken(bytes);
    return r;
}

static void nth_unmap_arena(base_env *env, size_t bytes, void *writable, const void *readable)
{
    (void)env;
    given(bytes);
    REAL->unmap_arena(REAL, bytes, writable, readable);
}

/* Draws of the simulated engine, eight bytes each, are no calls: it does without. */
static int nth_random(base_env *env, void *out, size_t bytes)
{
    (void)env;
    uint64_t x = atomic_fetch_add(&draws, 0x9e3779b97f4a7c15u);
    if (bytes != 8)
        return falls() ? -EIO : REAL->random(REAL, out, bytes);
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    memcpy(out, &x, 8);
    return 0;
}

/* ---- one bad sector ---- */

static const char *bad_name;
static uint64_t bad_page;
static char names[1024][16]; /* of open files */

void nth_bad_page(const char *name, uint64_t page)
{
    bad_name = name;
    bad_page = page;
}

static void note_name(int file, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (file < 1024)
        snprintf(names[file], sizeof names[file], "%s", slash ? slash + 1 : path);
}

static bool touches_bad(int file, size_t bytes, uint64_t offset)
{
    return bad_name && file < 1024 && strcmp(names[file], bad_name) == 0 && offset < (bad_page + 1) * PAGE &&
           offset + bytes > bad_page * PAGE;
}

/* ---- files ---- */

static int nth_open(base_env *env, const char *path, int flags, int *file, int *direct)
{
    (void)env;
    if (falls())
        return atomic_load(&how) == NTH_IN_PART ? -EMFILE : -EIO;
    /* Through the page cache, which is what makes ten thousand runs quick. */
    int r = REAL->open(REAL, path, flags & ~BASE_OPEN_DIRECT, file, direct);
    if (direct)
        *direct = (flags & BASE_OPEN_DIRECT) != 0;
    if (r == 0) {
        atomic_fetch_add(&nth.files, 1);
        note_name(*file, path);
    }
    return r;
}

static int nth_close(base_env *env, int file)
{
    (void)env;
    bool fails = falls(); /* it is closed in any case */
    atomic_fetch_sub(&nth.files, 1);
    int r = REAL->close(REAL, file);
    return fails ? -EIO : r;
}

/* The first half, in whole pieces and a part of one. */
static ssize_t half(const struct iovec *iov, int count,
                    ssize_t (*call)(base_env *, int, const struct iovec *, int, uint64_t), int file, uint64_t offset)
{
    struct iovec part[64];
    size_t left = iov_bytes(iov, count) / 2;
    int n = 0;
    for (; n < count && n < 64 && left; n++) {
        part[n] = iov[n];
        part[n].iov_len = iov[n].iov_len < left ? iov[n].iov_len : left;
        left -= part[n].iov_len;
    }
    return n ? call(REAL, file, part, n, offset) : 0;
}

static ssize_t nth_read(base_env *env, int file, const struct iovec *iov, int count, uint64_t offset)
{
    (void)env;
    atomic_fetch_add(&nth.read_bytes, iov_bytes(iov, count));
    if (touches_bad(file, iov_bytes(iov, count), offset))
        return -EIO;
    if (!falls())
        return REAL->read(REAL, file, iov, count, offset);
    atomic_fetch_add(&nth.reads_failed, 1);
    return atomic_load(&how) == NTH_IN_PART ? half(iov, count, REAL->read, file, offset) : -EIO;
}

static ssize_t nth_write(base_env *env, int file, const struct iovec *iov, int count, uint64_t offset)
{
    (void)env;
    atomic_fetch_add(&nth.written_bytes, iov_bytes(iov, count));
    if (touches_bad(file, iov_bytes(iov, count), offset))
        bad_name = NULL; /* a device gives it another sector when it is written */
    if (!falls())
        return REAL->write(REAL, file, iov, count, offset);
    if (atomic_load(&how) == NTH_IN_PART)
        half(iov, count, REAL->write, file, offset);
    else if (although())
        REAL->write(REAL, file, iov, count, offset);
    return error_of();
}

static _Atomic int flush_error;

void nth_flushes_say(int error) { atomic_store(&flush_error, error); }

static int nth_flush(base_env *env, int file)
{
    (void)env, (void)file;
    return falls() ? error_of() : atomic_load(&flush_error);
}

static int nth_allocate(base_env *env, int file, uint64_t bytes)
{
    (void)env;
    if (!falls())
        return REAL->allocate(REAL, file, bytes);
    if (although())
        (void)REAL->allocate(REAL, file, bytes);
    return error_of();
}

static int nth_truncate(base_env *env, int file, uint64_t bytes)
{
    (void)env;
    if (!falls())
        return REAL->truncate(REAL, file, bytes);
    if (although())
        (void)REAL->truncate(REAL, file, bytes);
    return error_of();
}

static int nth_file_bytes(base_env *env, int file, uint64_t *bytes)
{
    (void)env;
    return falls() ? -EIO : REAL->file_bytes(REAL, file, bytes);
}

static int nth_file_changed_ns(base_env *env, int file, uint64_t *ns)
{
    (void)env;
    return falls() ? -EIO : REAL->file_changed_ns(REAL, file, ns);
}

static int nth_make_directory(base_env *env, const char *path)
{
    (void)env;
    if (!falls())
        return REAL->make_directory(REAL, path);
    if (although())
        (void)REAL->make_directory(REAL, path);
    return error_of();
}

static int nth_flush_directory(base_env *env, const char *path)
{
    (void)env, (void)path;
    return falls() ? error_of() : 0;
}

static int nth_rename(base_env *env, const char *a, const char *b)
{
    (void)env;
    if (!falls())
        return REAL->rename(REAL, a, b);
    if (although())
        (void)REAL->rename(REAL, a, b);
    return error_of();
}

static int nth_remove_file(base_env *env, const char *path)
{
    (void)env;
    if (!falls())
        return REAL->remove_file(REAL, path);
    if (although())
        (void)REAL->remove_file(REAL, path);
    return error_of();
}

static int nth_list(base_env *env, const char *path, int (*each)(void *context, const char *name), void *context)
{
    (void)env;
    return falls() ? -EIO : REAL->list(REAL, path, each, context);
}

static int nth_directory_id(base_env *env, const char *path, uint64_t id[2])
{
    (void)env;
    return falls() ? -EIO : REAL->directory_id(REAL, path, id);
}

static int nth_lock(base_env *env, int file, int64_t *owner)
{
    (void)env;
    *owner = 0;
    if (falls())
        return atomic_load(&how) == NTH_IN_PART ? -ENOLCK : -EAGAIN;
    return REAL->lock(REAL, file, owner);
}

static int nth_boot_id(base_env *env, uint8_t out[16])
{
    (void)env;
    return falls() ? -EIO : REAL->boot_id(REAL, out);
}

/* ---- the whole ---- */

static void machine_make(void)
{
    machine = *REAL;
    machine.random = nth_random;
    machine.boot_id = nth_boot_id;
    machine.alloc = nth_alloc;
    machine.free = nth_free;
    machine.map_arena = nth_map_arena;
    machine.unmap_arena = nth_unmap_arena;
    machine.open = nth_open;
    machine.close = nth_close;
    machine.read = nth_read;
    machine.write = nth_write;
    machine.flush = nth_flush;
    machine.allocate = nth_allocate;
    machine.truncate = nth_truncate;
    machine.file_bytes = nth_file_bytes;
    machine.file_changed_ns = nth_file_changed_ns;
    machine.make_directory = nth_make_directory;
    machine.flush_directory = nth_flush_directory;
    machine.rename = nth_rename;
    machine.remove_file = nth_remove_file;
    machine.list = nth_list;
    machine.directory_id = nth_directory_id;
    machine.lock = nth_lock;
}

int nth_try_open(const char *tiers, kvo_error *error)
{
    char text[1024], paths[4096];
    kvo_tier_config configs[KVO_TIERS_MAX];
    uint32_t count;
    fixture_text(tiers, text, sizeof text);
    machine_make();
    atomic_store(&draws, 1);
    int r = kvo_parse_tiers(text, configs, &count, paths, sizeof paths, error);
    for (uint32_t i = 0; r == KVO_OK && i < count; i++)
        configs[i].segment_bytes = nth_segment_bytes;
    kvo_options o = options;
    o.flags |= fixture_stepped();
    o.io_engine = nth_threads ? KVO_IO_THREADS : (int)MOVE_SIMULATED;
    return r == KVO_OK ? store_open(&machine, configs, count, &o, &store, error) : r;
}

void nth_open_store(const char *tiers)
{
    kvo_error error = {{0}};
    int r = nth_try_open(tiers, &error);
    if (r != KVO_OK)
        fail_msg("open: %s: %s", kvo_status_name(r), error.text);
    space = open_space("a", options.block_bytes);
}

int nth_setup(void **state)
{
    if (getenv("TMPDIR") == NULL && access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 1);
    nth_segment_bytes = 0;
    bad_name = NULL;
    atomic_store(&flush_error, 0);
    nth_threads = false;
    return fixture_setup(state);
}

/* ---- a directory from outside ---- */

static void path_of(char path[160], int which, const char *name)
{
    snprintf(path, 160, "%s/%s", fixture_path(which), name);
}

void nth_flip(int which, const char *name, uint64_t bit)
{
    char path[160];
    uint8_t byte;
    path_of(path, which, name);
    int file = open(path, O_RDWR);
    assert_true(file >= 0);
    assert_int_equal(pread(file, &byte, 1, (off_t)(bit / 8)), 1);
    byte ^= (uint8_t)(1u << bit % 8);
    assert_int_equal(pwrite(file, &byte, 1, (off_t)(bit / 8)), 1);
    close(file);
}

uint64_t nth_file_length(int which, const char *name)
{
    char path[160];
    struct stat about;
    path_of(path, which, name);
    assert_int_equal(stat(path, &about), 0);
    return (uint64_t)about.st_size;
}

/* ---- images ---- */

typedef struct image_file {
    char name[32];
    uint8_t *bytes;
    size_t count;
    struct timespec changed;
} image_file;

struct nth_image {
    image_file files[16];
    unsigned count;
};

static void take_file(image_file *f, int which, const char *name)
{
    char path[160];
    struct stat about;
    path_of(path, which, name);
    int file = open(path, O_RDONLY);
    assert_true(file >= 0);
    assert_int_equal(fstat(file, &about), 0);
    snprintf(f->name, sizeof f->name, "%s", name);
    f->count = (size_t)about.st_size;
    f->changed = about.st_mtim;
    f->bytes = malloc(f->count + 1);
    assert_int_equal(pread(file, f->bytes, f->count, 0), f->count);
    close(file);
}

nth_image *nth_image_take(int which)
{
    nth_image *image = calloc(1, sizeof *image);
    DIR *directory = opendir(fixture_path(which));
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        if (entry->d_name[0] != '.') {
            assert_true(image->count < 16);
            take_file(&image->files[image->count++], which, entry->d_name);
        }
    closedir(directory);
    return image;
}

void nth_image_restore(const nth_image *image, int which)
{
    char path[160];
    fixture_remove(which);
    if (image == NULL)
        return;
    assert_int_equal(mkdir(fixture_path(which), 0700), 0);
    for (unsigned i = 0; i < image->count; i++) {
        const image_file *f = &image->files[i];
        const struct timespec times[2] = {f->changed, f->changed};
        path_of(path, which, f->name);
        int file = open(path, O_RDWR | O_CREAT, 0600);
        assert_true(file >= 0);
        assert_int_equal(pwrite(file, f->bytes, f->count, 0), f->count);
        assert_int_equal(futimens(file, times), 0); /* or the checkpoint were not believed */
        close(file);
    }
}

void nth_image_free(nth_image *image)
{
    for (unsigned i = 0; image && i < image->count; i++)
        free(image->files[i].bytes);
    free(image);
}
