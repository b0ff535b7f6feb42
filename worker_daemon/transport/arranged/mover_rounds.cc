#include "worker_daemon/transport/arranged/mover_rounds.h"

#include "common/base/status.h"

namespace stagewright {

void MoverRounds::Add(uint64_t id, MoverPart part) { round_.emplace_back(id, std::move(part)); }

std::vector<uint64_t> MoverRounds::TakeEmpty() {
  std::vector<uint64_t> empty;
  std::erase_if(round_, [&](const auto& entry) {
    const bool moves_nothing = entry.second.bytes == 0;
    if (moves_nothing) empty.push_back(entry.first);
    return moves_nothing;
  });
  return empty;
}

absl::Status MoverRounds::Start() {
  std::vector<uint64_t> ids;
  std::vector<MoverPart> parts;
  for (auto& [id, part] : round_) {
    ids.push_back(id);
    parts.push_back(std::move(part));
  }
  round_.clear();
  if (parts.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const uint64_t number, mover_->Start(parts));
  in_flight_[number] = std::move(ids);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint64_t>> MoverRounds::TakeEnded() {
  std::vector<uint64_t> ended;
  if (idle()) return ended;
  ASSIGN_OR_RETURN(const std::vector<uint64_t> numbers, mover_->Ended());
  for (const uint64_t number : numbers) {
    const std::vector<uint64_t> ids = in_flight_.extract(number).mapped();
    ended.insert(ended.end(), ids.begin(), ids.end());
  }
  return ended;
}

void MoverRounds::Clear() {
  round_.clear();
  in_flight_.clear();
}

}  // namespace stagewright
