#include "tests/planner_service/store/etcd/etcd_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace stagewright::testing {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

int FreePort() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  CHECK(bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0);
  CHECK(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  close(listener);
  return ntohs(address.sin_port);
}

bool Answers(const std::string& endpoint) {
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = Loopback(std::stoi(endpoint.substr(endpoint.find(':') + 1)));
  const bool connected =
      connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  close(client);
  return connected;
}

}  // namespace

void EtcdServer::Start() {
  // A port that was free may be taken by the time it is used: another one then.
  for (int tries = 0; process_ < 0; ++tries) {
    CHECK(tries < 5);  // Is `etcd` on PATH?
    if (endpoint_.empty() || tries > 0) {
      endpoint_ = absl::StrCat("127.0.0.1:", FreePort());
      peer_ = absl::StrCat("http://127.0.0.1:", FreePort());
    }
    const std::string data = folder_.path() / absl::StrCat("data-", tries);
    const std::string log = folder_.path() / "log";
    const std::string client = absl::StrCat("http://", endpoint_);
    const std::string cluster = absl::StrCat("default=", peer_);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
      dup2(out, 1);
      dup2(out, 2);
      execlp("etcd", "etcd", "--data-dir", data.c_str(), "--listen-client-urls", client.c_str(),
             "--advertise-client-urls", client.c_str(), "--listen-peer-urls", peer_.c_str(),
             "--initial-advertise-peer-urls", peer_.c_str(), "--initial-cluster", cluster.c_str(),
             nullptr);
      _exit(127);
    }
    while (waitpid(child, nullptr, WNOHANG) == 0) {
      if (Answers(endpoint_)) {
        process_ = child;
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
}

void EtcdServer::Stop() {
  if (process_ < 0) return;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  process_ = -1;
}

void EtcdServer::Freeze() { kill(process_, SIGSTOP); }

}  // namespace stagewright::testing
