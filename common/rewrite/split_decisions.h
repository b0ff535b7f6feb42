// How each node of a graph is computed once some operators are cut in parts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/graph/graph.h"
#include "common/rewrite/carried.h"

namespace stagewright {

enum class SplitForm {
  kProfile,  // A node of a profile.
  kColumns,  // A matrix by the features that come out, an embedding by the entries of a row.
  kRows,     // A matrix by the features that go in: its parts are added up.
  kWords,    // An embedding by the words: its parts are added up.
  kCarried,  // Part by part of what it reads.
  kTaken,    // Takes single parts of what it reads.
  kLoss,     // A cross-entropy of logits in parts.
};

struct Split {
  SplitForm form;
  InParts parts;  // How the result comes, unless whole; how what it reads comes, for kRows, kTaken.
};

// Decides for a graph whose nodes `asked` are cut, each in so many parts. A matrix that several of
// them read is cut along the features that come out, which for an embedding are the words if a
// linear layer reads it, too.
class SplitDecisions {
 public:
  // REQUIRES: CutOf accepts the nodes that are asked for. O(size of the graph).
  SplitDecisions(const Graph& graph, const std::map<NodeId, int32_t>& asked);

  const std::optional<Split>& of(NodeId id) const { return splits_[id.index()]; }

  // Nothing where the value is whole.
  std::optional<InParts> PartsOfValue(ValueRef value) const;
  std::optional<InParts> PartsOfArgument(const Argument& argument) const;

  // The node's result comes in parts, and something reads it joined.
  bool IsJoined(NodeId id) const { return joined_[id.index()]; }
  bool AnyJoined() const;
  bool AnyTaken() const;

  // Nothing but the split loss reads the prediction, and no accuracy can be told of it.
  bool drops_prediction() const { return drops_prediction_; }

 private:
  std::optional<Split> Decide(NodeId id, const std::map<NodeId, int32_t>& asked) const;
  Split DecideAsked(NodeId id, int32_t parts) const;
  bool ReadsInParts(NodeId id, ValueRef value) const;
  void FindJoined();

  const Graph& graph_;
  std::vector<std::optional<Split>> splits_;  // By node.
  std::vector<bool> joined_;                  // By node.
  std::vector<bool> shared_;    // By parameter: several nodes that are cut read it as their matrix.
  std::vector<bool> by_words_;  // By parameter: one of these is a linear layer.
  bool drops_prediction_ = false;
};

}  // namespace stagewright
