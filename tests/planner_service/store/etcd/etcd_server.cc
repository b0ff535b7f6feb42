#include "tests/planner_service/store/etcd/etcd_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <random>
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

// Below those that the system gives to connections: a client that tries in vain may be given the
// very port that it asks for, is then connected to itself, and whom the port is for cannot have it.
int FreePort() {
  constexpr int kFirst = 10'000;
  int given = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> given;
  std::random_device random;
  std::uniform_int_distribution<int> ports(kFirst, std::max(given, 2 * kFirst) - 1);
  while (true) {
    const int port = ports(random);
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = Loopback(port);
    const bool is_free =
        bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    close(listener);
    if (is_free) return port;
  }
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
