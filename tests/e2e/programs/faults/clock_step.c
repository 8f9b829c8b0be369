/*
 * To be preloaded: adds to the wall clock as many seconds as the file that CLOCK_STEP
 * names says at the moment. The other clocks are left alone, as a step leaves them.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long step(void)
{
    char text[32] = "";
    const char *path = getenv("CLOCK_STEP");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0 || read(file, text, sizeof text - 1) < 0)
        text[0] = 0;
    if (file >= 0)
        close(file);
    return atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    long failed = syscall(SYS_clock_gettime, clock, time);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        time->tv_sec += step();
    return (int)failed;
}
