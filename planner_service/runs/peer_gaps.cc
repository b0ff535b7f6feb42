#include "planner_service/runs/peer_gaps.h"

#include <algorithm>

namespace stagewright {

void PeerGaps::NoteGivenUp(const std::string& worker, const std::set<std::string>& peers) {
  for (const std::string& peer : peers) {
    if (peer != worker && !gave_up_.contains(peer)) gaps_.insert(std::minmax(worker, peer));
  }
  gave_up_.insert(worker);
}

std::vector<std::string> PeerGaps::Outsiders(
    const std::map<std::string, std::vector<int32_t>>& workers,
    const std::set<std::string>& lost) const {
  auto left = gaps_;
  const auto leave_out = [&left](const std::string& worker) {
    std::erase_if(left,
                  [&](const auto& gap) { return gap.first == worker || gap.second == worker; });
  };
  for (const std::string& worker : lost) leave_out(worker);
  std::vector<std::string> outsiders;
  while (!left.empty()) {
    std::map<std::string, int> missed;
    for (const auto& [one, other] : left) {
      ++missed[one];
      ++missed[other];
    }
    const auto worst =
        std::max_element(missed.begin(), missed.end(), [&](const auto& one, const auto& other) {
          return std::pair(one.second, workers.at(one.first)) <
                 std::pair(other.second, workers.at(other.first));
        });
    outsiders.push_back(worst->first);
    leave_out(outsiders.back());
  }
  return outsiders;
}

}  // namespace stagewright
