#include "common/channel/metrics_server.h"

#include "absl/strings/str_cat.h"

namespace stagewright {

std::vector<std::string> MetricsServerOptions(const std::string& listen) {
  return {"listening_ports", listen, "num_threads", "4", "request_timeout_ms", "5000"};
}

std::string MetricsAddress(const std::string& listen, int took) {
  return absl::StrCat(listen.substr(0, listen.rfind(':')), ":", took);
}

}  // namespace stagewright
