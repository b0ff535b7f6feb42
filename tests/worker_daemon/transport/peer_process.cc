#include "tests/worker_daemon/transport/peer_process.h"

#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "tests/worker_daemon/transport/worlds.h"
#include "worker_daemon/transport/completion.h"

extern char** environ;

namespace stagewright::testing {
namespace {

constexpr int kSocketInPeer = 100;

void WriteString(int socket, const std::string& value) {
  const uint64_t size = value.size();
  CHECK(send(socket, &size, sizeof(size), MSG_NOSIGNAL) == sizeof(size));
  CHECK(send(socket, value.data(), size, MSG_NOSIGNAL) == static_cast<ssize_t>(size));
}

std::string ReadString(int socket) {
  uint64_t size = 0;
  CHECK(recv(socket, &size, sizeof(size), MSG_WAITALL) == sizeof(size));
  std::string value(size, '\0');
  CHECK(recv(socket, value.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size));
  return value;
}

absl::Status Echo(Transport& transport) {
  std::vector<char> memory;
  for (uint32_t i = 0;; ++i) {
    uint64_t size = 0;
    absl::Status status = ReceiveAndWait(transport, 0, {0, Traffic::kState, i}, &size, sizeof(size),
                                         absl::InfiniteFuture());
    memory.resize(size);
    const Tag tag{1, Traffic::kState, i};
    if (status.ok()) status = ReceiveAndWait(transport, 0, tag, memory.data(), size, Soon());
    if (status.ok()) status = SendAndWait(transport, 0, tag, memory.data(), size, Soon());
    if (!status.ok()) return status;
  }
}

absl::Status Source(Transport& transport) {
  const std::vector<char> content = Pattern(kSourceBytes, 1);
  for (uint32_t i = 0;; ++i) {
    const absl::Status status = SendAndWait(transport, 0, {2, Traffic::kState, i}, content.data(),
                                            content.size(), absl::InfiniteFuture());
    if (!status.ok()) return status;
  }
}

absl::Status Play(Transport& transport, PeerRole role) {
  char byte = 0;
  switch (role) {
    case PeerRole::kEcho:
      return Echo(transport);
    case PeerRole::kSource:
      return Source(transport);
    case PeerRole::kIdle:
    case PeerRole::kLosing:
      return ReceiveAndWait(transport, 0, {3, Traffic::kState, 0}, &byte, 1,
                            absl::InfiniteFuture());
  }
  return absl::OkStatus();
}

}  // namespace

PeerProcess::PeerProcess(const std::string& implementation, int device, PeerRole role) {
  int sockets[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, sockets[1], kSocketInPeer);
  const std::string device_text = std::to_string(device);
  const std::string role_text = std::to_string(static_cast<int>(role));
  const char* arguments[] = {
      "peer", "--peer", implementation.c_str(), device_text.c_str(), role_text.c_str(), nullptr};
  CHECK(posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, const_cast<char* const*>(arguments),
                    environ) == 0);
  posix_spawn_file_actions_destroy(&actions);
  close(sockets[1]);
  socket_ = sockets[0];
}

PeerProcess::~PeerProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    Wait();
  }
  close(socket_);
}

void PeerProcess::Exchange(const Transport& transport) {
  WriteString(socket_, transport.Address());
  address_ = ReadString(socket_);
}

void PeerProcess::Signal(int signal) const { CHECK(kill(pid_, signal) == 0); }

int PeerProcess::Wait() {
  int status = 0;
  CHECK(waitpid(pid_, &status, 0) == pid_);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int RunPeer(const std::string& name, int device, PeerRole role) {
  const int socket = kSocketInPeer;
  for (const Implementation& implementation : AllImplementations()) {
    if (implementation.name != name) continue;
    auto transport = implementation.create({"test", 1, device});
    CHECK(transport.ok());
    WriteString(socket, (*transport)->Address());
    absl::Status status = (*transport)->Connect({{0, ReadString(socket)}}, Soon());
    if (status.ok()) status = Play(**transport, role);
    const bool lost = status.code() == absl::StatusCode::kUnavailable &&
                      absl::StrContains(status.message(), "device 0");
    if (!lost) std::fprintf(stderr, "peer %d: %s\n", device, status.ToString().c_str());
    return lost ? 0 : 1;
  }
  return 2;
}

}  // namespace stagewright::testing
