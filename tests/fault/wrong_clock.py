"""A machine's clock that somebody sets: a library is loaded before the program, to which all clocks but the steady ones show
another time."""

import os
import pathlib

from preloaded import PreloadedLibrary

SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
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
"""


class WrongClock:
    def __init__(self, folder: pathlib.Path):
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
