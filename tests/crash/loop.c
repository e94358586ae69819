/* SPDX-License-Identifier: Apache-2.0 */
#include "loop.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <time.h>
#include <unistd.h>

#define SHUTDOWN _IOR('X', 125, uint32_t) /* of ext4 and XFS; no public header has it */
#define WITHOUT_LOG 2u                    /* the journal is not written first */
#define BOOT_ID "/proc/sys/kernel/random/boot_id"

static bool say(const char *what, const char *of)
{
    fprintf(stderr, "%s %s: %s\n", what, of, strerror(errno));
    return false;
}

const char *loop_ready(void)
{
    if (geteuid() != 0)
        return "not root";
    if (access("/dev/loop-control", R_OK | W_OK) != 0)
        return "no loop devices";
    if (system("PATH=$PATH:/usr/sbin:/sbin; command -v mkfs.ext4 >/dev/null") != 0)
        return "no mkfs.ext4";
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return "no mount namespace";
    return NULL;
}

bool loop_make(const char *image, unsigned mib, const char *options)
{
    char command[512];
    int file = open(image, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, (off_t)mib << 20) != 0)
        return say("image", image);
    close(file);
    snprintf(command, sizeof command, "PATH=$PATH:/usr/sbin:/sbin; mkfs.ext4 -q -F %s '%s'", options, image);
    return system(command) == 0 || say("mkfs.ext4", image);
}

/* A device that is free now may be another's a moment later. */
static int attach(const char *image, char device[32])
{
    int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), loop = -1;
    int file = open(image, O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 100 && control >= 0 && file >= 0 && loop < 0; i++) {
        struct loop_config config = {.fd = (uint32_t)file, .info = {.lo_flags = LO_FLAGS_AUTOCLEAR}};
        int number = ioctl(control, LOOP_CTL_GET_FREE);
        snprintf(device, 32, "/dev/loop%d", number);
        loop = open(device, O_RDWR | O_CLOEXEC);
        if (loop >= 0 && ioctl(loop, LOOP_CONFIGURE, &config) != 0) {
            close(loop);
            loop = -1;
        }
    }
    if (file >= 0)
        close(file);
    if (control >= 0)
        close(control);
    return loop;
}

bool loop_mount(const char *image, const char *directory)
{
    char device[32];
    int loop = attach(image, device);
    if (loop < 0)
        return say("loop device of", image);
    int r = mount(device, directory, "ext4", 0, NULL);
    bool right = r == 0 || say("mount", directory);
    close(loop);
    return right;
}

bool loop_unmount(const char *directory)
{
    /* A killed process's requests may still be in the kernel. */
    for (int i = 0; i < 1000; i++) {
        if (umount(directory) == 0)
            return true;
        if (errno != EBUSY)
            break;
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    return say("umount", directory);
}

bool loop_cut(const char *directory)
{
    uint32_t how = WITHOUT_LOG;
    int file = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0)
        return say("open", directory);
    bool right = ioctl(file, SHUTDOWN, &how) == 0 || say("shut down", directory);
    close(file);
    return right;
}

bool loop_new_boot(const char *file, unsigned number)
{
    FILE *out = fopen(file, "w");
    if (out == NULL)
        return say("write", file);
    fprintf(out, "%08x-0000-4000-8000-000000000000\n", number);
    fclose(out);
    umount(BOOT_ID);
    return mount(file, BOOT_ID, NULL, MS_BIND, NULL) == 0 || say("mount", BOOT_ID);
}
