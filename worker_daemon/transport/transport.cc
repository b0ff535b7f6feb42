#include "worker_daemon/transport/transport.h"

#include "absl/strings/str_cat.h"

namespace stagewright {

std::string ToString(const Tag& tag) {
  constexpr absl::string_view kNames[] = {"activation", "gradient", "reduction", "state"};
  const size_t traffic = static_cast<size_t>(tag.traffic);
  return absl::StrCat("channel ", tag.channel, " ", traffic < 4 ? kNames[traffic] : "traffic", " ",
                      tag.sequence);
}

absl::Status SizeMismatch(int sender, int receiver, const Tag& tag, size_t sent, size_t expected) {
  return absl::InvalidArgumentError(absl::StrCat(ToString(tag), ": device ", sender, " sent ", sent,
                                                 " bytes, device ", receiver, " expected ",
                                                 expected));
}

}  // namespace stagewright
