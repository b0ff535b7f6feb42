"""A machine's clock that somebody sets: a library is loaded before the program, to which all clocks but the steady ones show
another time. Waits that the kernel would end when that clock shows a certain time, as Abseil's, are ended by it, too, also
where it is set meanwhile."""

import os
import pathlib

from preloaded import PreloadedLibrary

SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long offset(void) {
  char text[32] = {0};
  int file = open(getenv("CLOCK_IS_OFF_BY"), O_RDONLY | O_CLOEXEC);
  if (file >= 0 && read(file, text, sizeof(text) - 1) < 0) text[0] = 0;
  if (file >= 0) close(file);
  return atol(text);
}
int clock_gettime(clockid_t clock, struct timespec *time) {
  static int (*real)(clockid_t, struct timespec *);
  if (real == 0) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(clock, time);
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) time->tv_sec += offset();
  return result;
}
int gettimeofday(struct timeval *time, void *zone) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}
static long nanos(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return time.tv_sec * 1000000000L + time.tv_nsec;
}
long syscall(long number, ...) {
  static long (*real)(long, ...);
  if (real == 0) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  long of[6];
  va_list list;
  va_start(list, number);
  for (int i = 0; i < 6; ++i) of[i] = va_arg(list, long);
  va_end(list);
  const struct timespec *end = (const struct timespec *)of[3];
  if (number != SYS_futex || (of[1] & FUTEX_CLOCK_REALTIME) == 0 || end == 0)
    return real(number, of[0], of[1], of[2], of[3], of[4], of[5]);
  while (1) {  // A little at a time, by the steady clock, to see whether the other was set.
    long left = end->tv_sec * 1000000000L + end->tv_nsec - nanos(CLOCK_REALTIME);
    if (left <= 0) {
      errno = ETIMEDOUT;
      return -1;
    }
    long until = nanos(CLOCK_MONOTONIC) + (left < 20000000 ? left : 20000000);
    struct timespec look = {until / 1000000000L, until % 1000000000L};
    long result = real(number, of[0], of[1] & ~FUTEX_CLOCK_REALTIME, of[2], &look, of[4], of[5]);
    if (result != -1 || errno != ETIMEDOUT) return result;
  }
}
"""


class WrongClock:
    def __init__(self, folder: pathlib.Path):
        folder.mkdir(exist_ok=True)
        self.file = folder / "clock_is_off_by"
        self.library = PreloadedLibrary(folder, "wrong_clock", SOURCE)
        self.set(0)

    def prefix(self) -> list[str]:
        """What a program is started with."""
        return self.library.prefix(CLOCK_IS_OFF_BY=self.file)

    def set(self, seconds: int) -> None:
        """Whole or not at all: an empty file would be another time."""
        new = self.file.with_suffix(".new")
        new.write_text(str(seconds))
        os.replace(new, self.file)
