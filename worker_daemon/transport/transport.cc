#include "worker_daemon/transport/transport.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace stagewright {

std::string ToString(const Tag& tag) {
  constexpr absl::string_view kNames[] = {"activation", "gradient", "reduction", "state",
                                          "arrangement"};
  const size_t traffic = static_cast<size_t>(tag.traffic);
  return absl::StrCat("channel ", tag.channel, " ", traffic < 5 ? kNames[traffic] : "traffic", " ",
                      tag.sequence);
}

absl::Status SizeMismatch(int sender, int receiver, const Tag& tag, size_t sent, size_t expected) {
  return absl::InvalidArgumentError(absl::StrCat(ToString(tag), ": device ", sender, " sent ", sent,
                                                 " bytes, device ", receiver, " expected ",
                                                 expected));
}

void Transport::RunCollective(Collective, const std::vector<int>&, Tag, void*, size_t, Element,
                              Done) {
  CHECK(reduces());
}

}  // namespace stagewright
