// The order of the first messages between devices, by which a mover connects those that talk to
// each other: connections are made when something first goes over them, which takes long, and each
// holds memory at both ends.
#pragma once

#include <optional>
#include <vector>

namespace stagewright {

// One device sends and receives at the same time.
struct FirstMessages {
  std::optional<int> to;
  std::optional<int> from;

  friend bool operator==(const FirstMessages&, const FirstMessages&) = default;
};

// What `self`, one of `devices`, does, in this order: it sends once to each of `partners` and
// receives once from each. Devices send to those that come equally far behind them in `devices`,
// which all have alike, at a time; so each waits only for what others do at that time, and nobody
// waits for ever. REQUIRES: a partner's partners include self. O(devices * partners).
std::vector<FirstMessages> OrderOfFirstMessages(int self, const std::vector<int>& devices,
                                                const std::vector<int>& partners);

}  // namespace stagewright
