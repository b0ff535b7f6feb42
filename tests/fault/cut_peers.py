"""Workers that reach the planner and do not hear each other any more: a library is loaded before a worker that receives nothing
over TCP but from the planner while a file is there, as on a network that lost a route. What it sends the system takes, as it
does on such a network, and delivers to those that are not cut off themselves."""

import pathlib

from preloaded import PreloadedLibrary

SOURCE = """
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
static int is_cut(int fd) {
  struct sockaddr_storage peer;
  socklen_t size = sizeof peer;
  const char *mark = getenv("CUT_OFF_WHILE");
  if (access(mark, F_OK) != 0 || getpeername(fd, (struct sockaddr *)&peer, &size) != 0) return 0;
  if (peer.ss_family != AF_INET && peer.ss_family != AF_INET6) return 0;
  int port = ntohs(peer.ss_family == AF_INET ? ((struct sockaddr_in *)&peer)->sin_port
                                             : ((struct sockaddr_in6 *)&peer)->sin6_port);
  return port != atoi(getenv("PLANNER_PORT"));
}
#define CUTS(name, parameters, arguments)                                               \\
  ssize_t name parameters {                                                             \\
    if (is_cut(fd)) {                                                                   \\
      usleep(1000);                                                                     \\
      errno = EAGAIN;                                                                   \\
      return -1;                                                                        \\
    }                                                                                   \\
    return ((ssize_t(*) parameters)dlsym(RTLD_NEXT, #name)) arguments;                  \\
  }
CUTS(recv, (int fd, void *data, size_t size, int flags), (fd, data, size, flags))
CUTS(recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))
CUTS(readv, (int fd, const struct iovec *parts, int count), (fd, parts, count))
"""


class PeerNetwork:
    """Between workers that are started with its prefix, over TCP also on one machine."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.library = PreloadedLibrary(folder, "cut_peers", SOURCE)

    def mark(self, worker: str) -> pathlib.Path:
        return self.folder / f"{worker}.cut"

    def prefix(self, worker: str, planner_port: int) -> list[str]:
        return self.library.prefix(
            CUT_OFF_WHILE=self.mark(worker), PLANNER_PORT=planner_port, UCX_TLS="tcp,self", UCX_NET_DEVICES="lo"
        )

    def cut(self, worker: str, pid: int) -> None:
        self.library.assert_loaded(pid)
        self.mark(worker).touch()

    def heal(self, worker: str) -> None:
        self.mark(worker).unlink()
