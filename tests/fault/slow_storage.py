"""A file system that does not answer for a while, as one does whose server is away: a library is loaded before the worker
that waits in open(2) of what the worker writes for its jobs."""

import pathlib

from preloaded import PreloadedLibrary

SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void wait_for(const char *path) {
  const char *mark = getenv("HANGS_WHILE");
  while (path != 0 && strstr(path, "/checkpoints/") != 0 && access(mark, F_OK) == 0) usleep(10000);
}
#define OPENS(name)                                                                   \\
  int name(const char *path, int flags, ...) {                                        \\
    va_list list;                                                                     \\
    va_start(list, flags);                                                            \\
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;           \\
    va_end(list);                                                                     \\
    wait_for(path);                                                                   \\
    return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name))(path, flags, mode); \\
  }
OPENS(open)
OPENS(open64)
"""


class SlowStorage:
    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.library = PreloadedLibrary(folder, "slow_storage", SOURCE)

    def mark(self, worker: str) -> pathlib.Path:
        return self.folder / f"{worker}.hangs"

    def prefix(self, worker: str) -> list[str]:
        """What a worker is started with."""
        return self.library.prefix(HANGS_WHILE=self.mark(worker))

    def hang(self, worker: str) -> None:
        self.mark(worker).touch()

    def go_on(self, worker: str) -> None:
        self.mark(worker).unlink()
