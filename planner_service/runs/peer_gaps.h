// Workers of a run that did not reach each other when they connected, as on a network that is
// split between them while the planner reaches both.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace stagewright {

class PeerGaps {
 public:
  // `worker` gave the run up and had not reached `peers`. What it says of workers that had given up
  // before it is no gap: they may have left for another reason.
  void NoteGivenUp(const std::string& worker, const std::set<std::string>& peers);

  // Workers without which all others reached each other, apart from those that were `lost`: the one
  // with most gaps, then the one with most of those that are left, and so on; of equals the one
  // whose devices, in `workers`, come last. O(gaps * workers).
  std::vector<std::string> Outsiders(const std::map<std::string, std::vector<int32_t>>& workers,
                                     const std::set<std::string>& lost) const;

 private:
  std::set<std::pair<std::string, std::string>> gaps_;  // The lesser name first.
  std::set<std::string> gave_up_;
};

}  // namespace stagewright
