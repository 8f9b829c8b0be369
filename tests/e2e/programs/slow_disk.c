/*
 * To be preloaded: a disk that takes its time. While the file that SLOW_DISK names is
 * a FIFO that nobody has opened for writing, nothing gets on the disk.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static void wait_for_the_disk(void)
{
    const char *path = getenv("SLOW_DISK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0)
        close(file);
}

int fsync(int file)
{
    wait_for_the_disk();
    return (int)syscall(SYS_fsync, file);
}

int fdatasync(int file)
{
    wait_for_the_disk();
    return (int)syscall(SYS_fdatasync, file);
}
