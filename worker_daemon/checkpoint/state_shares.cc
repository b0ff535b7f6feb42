#include "worker_daemon/checkpoint/state_shares.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace stagewright {

std::string ShareName(const StateShare& share) {
  return absl::StrCat(share.state, "@", share.begin, "-", share.end);
}

std::optional<StateShare> ParseShareName(std::string_view name) {
  const size_t at = name.rfind('@');
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view range = name.substr(at + 1);
  const size_t dash = range.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  StateShare share{std::string(name.substr(0, at))};
  const auto number = [](std::string_view text, int64_t& value) {
    return absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &value) && value >= 0;
  };
  if (!number(range.substr(0, dash), share.begin) || !number(range.substr(dash + 1), share.end) ||
      share.end < share.begin)
    return std::nullopt;
  return share;
}

absl::StatusOr<OwnedTensor> JoinShares(const std::string& state, const std::vector<int64_t>& shape,
                                       std::vector<StoredShare> shares) {
  std::sort(shares.begin(), shares.end(), [](const StoredShare& a, const StoredShare& b) {
    return a.share.begin < b.share.begin;
  });
  int64_t elements = 1;
  for (int64_t size : shape) elements *= size;
  int64_t end = 0;
  std::vector<TensorView> parts;
  for (const auto& [share, tensor] : shares) {
    const std::vector<int64_t> row = {share.end - share.begin};
    if (share.begin != end || tensor.shape != row)
      return absl::DataLossError(absl::StrCat("not all of \"", state, "\" is there once"));
    end = share.end;
    parts.push_back(tensor);
  }
  if (end != elements)
    return absl::DataLossError(absl::StrCat("not all of \"", state, "\" is there once"));
  auto joined = JoinSlices(state, parts, 0);
  if (!joined.ok()) return absl::DataLossError(joined.status().message());
  joined->shape = shape;
  return joined;
}

}  // namespace stagewright
