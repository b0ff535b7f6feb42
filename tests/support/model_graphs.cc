#include "tests/support/model_graphs.h"

#include <cmath>
#include <utility>

#include "tests/support/profiled_graphs.h"

namespace stagewright::testing {
namespace {

constexpr double kFlopsPerSecond = 11.8e12;
constexpr double kBytesPerSecond = 0.8e12;
constexpr double kFloat = 4;

Nanos ToTime(double seconds) { return static_cast<Nanos>(std::llround(seconds * 1e9)); }
Bytes ToBytes(double floats) { return static_cast<Bytes>(floats * kFloat); }

Work Product(double flops, double out_floats, double parameters) {
  const Nanos forward = ToTime(flops / kFlopsPerSecond);
  return {forward, 2 * forward, ToBytes(out_floats), ToBytes(parameters), {}};
}

// A dense layer for `rows` rows of a sample.
Work Linear(double rows, double in, double out) {
  return Product(2 * rows * in * out, rows * out, in * out);
}

// Reads and writes memory and computes next to nothing.
Work Move(double out_floats, double parameters) {
  const Nanos forward = ToTime(2 * kFloat * out_floats / kBytesPerSecond);
  return {forward, 2 * forward, ToBytes(out_floats), ToBytes(parameters), {}};
}

class Builder {
 public:
  // Adds a node after `after` (which may be -1: none) and returns its index.
  int32_t Add(Work work, int32_t after) {
    if (after >= 0) work.after.push_back(after);
    nodes_.push_back(std::move(work));
    return static_cast<int32_t>(nodes_.size()) - 1;
  }
  int32_t Join(Work work, std::vector<int32_t> ends) {
    work.after = std::move(ends);
    nodes_.push_back(std::move(work));
    return static_cast<int32_t>(nodes_.size()) - 1;
  }
  Graph Build() const { return ProfiledGraph(nodes_); }

 private:
  std::vector<Work> nodes_;
};

}  // namespace

Graph MmtGraph(int32_t branches, int32_t layers) {
  constexpr double kSequence = 256, kHidden = 1024, kInner = 4096;
  Work attention =
      Product(4 * 2 * kSequence * kHidden * kHidden + 2 * 2 * kSequence * kSequence * kHidden,
              kSequence * kHidden, 4 * kHidden * kHidden);
  Builder builder;
  std::vector<int32_t> ends;
  for (int32_t b = 0; b < branches; ++b) {
    int32_t last = builder.Add(Move(kSequence * kHidden, kHidden * kHidden), -1);
    for (int32_t l = 0; l < layers; ++l) {
      last = builder.Add(attention, last);
      last = builder.Add(Linear(kSequence, kHidden, kInner), last);
      last = builder.Add(Linear(kSequence, kInner, kHidden), last);
    }
    ends.push_back(last);
  }
  const double joined = branches * kHidden;
  const int32_t concat = builder.Join(Move(kSequence * joined, 0), std::move(ends));
  builder.Add(Linear(kSequence, joined, kHidden), concat);
  return builder.Build();
}

Graph DlrmGraph(int32_t dense, int32_t sparse) {
  constexpr double kWidth = 4096, kTable = 64, kRows = 1e6;
  constexpr int32_t kLayers = 4;
  Builder builder;
  std::vector<int32_t> ends;
  for (int32_t b = 0; b < dense; ++b) {
    int32_t last = -1;
    for (int32_t l = 0; l < kLayers; ++l) last = builder.Add(Linear(1, kWidth, kWidth), last);
    ends.push_back(last);
  }
  for (int32_t b = 0; b < sparse; ++b)
    ends.push_back(builder.Add(Move(kTable, kTable * kRows), -1));
  const double joined = dense * kWidth + sparse * kTable;
  int32_t last = builder.Join(Move(joined, 0), std::move(ends));
  for (int32_t l = 0; l < kLayers; ++l) {
    last = builder.Add(Linear(1, l == 0 ? joined : kWidth, kWidth), last);
  }
  return builder.Build();
}

Graph CandleGraph(int32_t branches, int32_t layers) {
  constexpr double kWidth = 4096;
  Builder builder;
  std::vector<int32_t> ends;
  for (int32_t b = 0; b < branches; ++b) {
    int32_t last = -1;
    for (int32_t l = 0; l < layers; ++l) last = builder.Add(Linear(1, kWidth, kWidth), last);
    ends.push_back(last);
  }
  int32_t last = builder.Join(Move(branches * kWidth, 0), std::move(ends));
  for (int32_t l = 0; l < layers; ++l) {
    last = builder.Add(Linear(1, l == 0 ? branches * kWidth : kWidth, kWidth), last);
  }
  return builder.Build();
}

Graph UnevenChain(int32_t length) {
  std::vector<Work> nodes;
  for (int32_t i = 0; i < length; ++i) {
    // Cheap and dear operators alternate; late ones have fewer activations and more parameters.
    const int64_t step = 1 + (static_cast<int64_t>(i) * 7919) % 13;
    const double depth = static_cast<double>(i) / (i + 500.0);
    Work work;
    work.forward = step * step * 4 * kMicrosecond;
    work.backward = 2 * work.forward;
    work.activation_bytes = static_cast<Bytes>((1.25 - depth) * static_cast<double>(2 * kMiB));
    work.parameter_bytes = static_cast<Bytes>(depth * static_cast<double>(step * kMiB));
    if (i > 0) work.after = {i - 1};
    nodes.push_back(std::move(work));
  }
  return ProfiledGraph(nodes);
}

}  // namespace stagewright::testing
