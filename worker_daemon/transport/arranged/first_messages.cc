#include "worker_daemon/transport/arranged/first_messages.h"

#include <algorithm>

namespace stagewright {

std::vector<FirstMessages> OrderOfFirstMessages(int self, const std::vector<int>& devices,
                                                const std::vector<int>& partners) {
  const size_t size = devices.size();
  const auto place =
      static_cast<size_t>(std::find(devices.begin(), devices.end(), self) - devices.begin());
  const auto partner_at = [&](size_t at) -> std::optional<int> {
    const int device = devices[at % size];
    const bool known = std::find(partners.begin(), partners.end(), device) != partners.end();
    return known ? std::optional(device) : std::nullopt;
  };
  std::vector<FirstMessages> order;
  for (size_t distance = 1; distance < size; ++distance) {
    const FirstMessages messages = {partner_at(place + distance),
                                    partner_at(place + size - distance)};
    if (messages.to.has_value() || messages.from.has_value()) order.push_back(messages);
  }
  return order;
}

}  // namespace stagewright
