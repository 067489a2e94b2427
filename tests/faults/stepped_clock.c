/* A wall clock that a test sets while a program runs by it, to be preloaded. Other clocks, and all sleeps, stay as they are.

   The file named by STEPPED_CLOCK holds three numbers: so many microseconds are added to the machine's time, and so many for
   each second (less one) since an instant. It is mapped, so that a change is seen by the next look. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *setting;

__attribute__((constructor)) static void open_setting(void) {
    const char *path = getenv("STEPPED_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *found = mmap(NULL, 3 * sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    if (found != MAP_FAILED)
        setting = found;
    close(fd);
}

int clock_gettime(clockid_t id, struct timespec *at) {
    if (syscall(SYS_clock_gettime, id, at) != 0)
        return -1;
    if (setting && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        int64_t us = at->tv_sec * 1000000LL + at->tv_nsec / 1000;
        us += setting[0] + (us - setting[2]) * setting[1];
        at->tv_sec = us / 1000000;
        at->tv_nsec = us % 1000000 * 1000 + at->tv_nsec % 1000;
    }
    return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        return -1;
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}
