#include "worker_daemon/transport/tag.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace stagewright {

std::string ToString(const Tag& tag) {
  constexpr absl::string_view kNames[] = {"activation", "gradient", "reduction", "state",
                                          "arrangement"};
  const size_t traffic = static_cast<size_t>(tag.traffic);
  return absl::StrCat("channel ", tag.channel, " ", traffic < 5 ? kNames[traffic] : "traffic", " ",
                      tag.sequence);
}

}  // namespace stagewright
