// A real etcd, of one member, on free ports of loopback.
#pragma once

#include <sys/types.h>

#include <string>

#include "tests/planner_service/store/temporary_folder.h"

namespace stagewright::testing {

// The program `etcd` is on PATH (Debian's etcd-server). Its data goes with the object.
class EtcdServer {
 public:
  EtcdServer() { Start(); }
  EtcdServer(const EtcdServer&) = delete;
  EtcdServer& operator=(const EtcdServer&) = delete;
  ~EtcdServer() { Stop(); }

  // "127.0.0.1:PORT"; stays the same over Stop and Start.
  const std::string& endpoint() const { return endpoint_; }
  // Until it answers.
  void Start();
  // As if its machine died.
  void Stop();
  // It stands still, until Stop: connections are taken, and nothing is answered.
  void Freeze();

 private:
  const TemporaryFolder folder_;
  std::string endpoint_;
  std::string peer_;
  pid_t process_ = -1;
};

}  // namespace stagewright::testing
