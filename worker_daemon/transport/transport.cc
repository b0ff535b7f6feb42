#include "worker_daemon/transport/transport.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/clock/steady_now.h"

namespace stagewright {
namespace {

// Waking a thread that sleeps takes longer than most transfers within a process.
constexpr absl::Duration kPatience = absl::Microseconds(20);

}  // namespace

absl::Status SizeMismatch(int sender, int receiver, const Tag& tag, size_t sent, size_t expected) {
  return absl::InvalidArgumentError(absl::StrCat(ToString(tag), ": device ", sender, " sent ", sent,
                                                 " bytes, device ", receiver, " expected ",
                                                 expected));
}

void Transport::Help(absl::FunctionRef<bool()> ready) {
  const absl::Time end = SteadyNow() + kPatience;
  while (!ready() && SteadyNow() < end) std::this_thread::yield();
}

void Transport::RunCollective(Collective, const std::vector<int>&, Tag, void*, size_t, Element,
                              Done) {
  CHECK(reduces());
}

}  // namespace stagewright
