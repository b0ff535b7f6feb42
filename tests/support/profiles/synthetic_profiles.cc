#include "tests/support/profiles/synthetic_profiles.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace stagewright {
namespace {

constexpr double kFlopsPerSecond = 12e12;
constexpr double kBytesPerSecond = 700e9;
constexpr double kLaunch = 10e-6;
constexpr double kFloat = 4;
constexpr double kBackward = 2;  // Times the forward pass.
// Piper's memory of an operator that does not depend on micro-batches: parameters, gradients and
// two moments.
constexpr double kStates = 4;

struct Layer {
  std::string name;
  double forward = 0;  // Seconds.
  double output = 0;   // Bytes.
  double parameters = 0;
  double saved = 0;       // Bytes for the backward pass, unless it recomputes.
  double recomputed = 0;  // What is saved when it recomputes; 0: it may not.
  std::vector<size_t> after = {};
};

double Seconds(double flops, double bytes) {
  return kLaunch + std::max(flops / kFlopsPerSecond, bytes / kBytesPerSecond);
}

Layer Linear(std::string name, double rows, double in, double out) {
  const double parameters = in * out * kFloat;
  const double output = rows * out * kFloat;
  const double input = rows * in * kFloat;
  return {std::move(name), Seconds(2 * rows * in * out, parameters + input + output), output,
          parameters, output};
}

// Reads as much as it writes.
Layer Copy(std::string name, double output, double parameters) {
  return {std::move(name), Seconds(0, 2 * output), output, parameters, output};
}

class Network {
 public:
  explicit Network(double samples) : layers_{{"Source", 0, samples * kFloat, 0, 0}}, last_(0) {}

  void Branch() { last_ = 0; }
  void Add(Layer layer) {
    layer.after = {last_};
    last_ = layers_.size();
    layers_.push_back(std::move(layer));
  }
  void EndBranch() { ends_.push_back(last_); }
  void Join(std::string name) {
    double bytes = 0;
    for (size_t end : ends_) bytes += layers_[end].output;
    Layer layer = Copy(std::move(name), bytes, 0);
    layer.after = ends_;
    last_ = layers_.size();
    layers_.push_back(std::move(layer));
  }
  const std::vector<Layer>& layers() const { return layers_; }

 private:
  std::vector<Layer> layers_;
  std::vector<size_t> ends_;
  size_t last_;
};

constexpr double kWidth = 4096;

// `layers` products of this width on top of what is joined.
void AddTop(Network& network, double samples, double joined) {
  for (int l = 0; l < 4; ++l) {
    network.Add(Linear(absl::StrCat("top", l), samples, l == 0 ? joined : kWidth, kWidth));
  }
}

Network Candle() {
  constexpr double kSamples = 256;
  constexpr int kBranches = 7;
  Network network(kSamples);
  for (int b = 0; b < kBranches; ++b) {
    network.Branch();
    for (int l = 0; l < 4; ++l) {
      network.Add(Linear(absl::StrCat("b", b, "_ff", l), kSamples, kWidth, kWidth));
    }
    network.EndBranch();
  }
  network.Join("concat");
  AddTop(network, kSamples, kBranches * kWidth);
  return network;
}

Network Dlrm() {
  constexpr double kSamples = 16, kRows = 1e6, kEmbedding = 64;
  constexpr int kBranches = 7;
  Network network(kSamples);
  for (int b = 0; b < kBranches; ++b) {
    network.Branch();
    for (int l = 0; l < 4; ++l) {
      network.Add(Linear(absl::StrCat("d", b, "_ff", l), kSamples, kWidth, kWidth));
    }
    network.EndBranch();
  }
  for (int b = 0; b < kBranches; ++b) {
    network.Branch();
    network.Add(Copy(absl::StrCat("s", b, "_emb"), kSamples * kEmbedding * kFloat,
                     kRows * kEmbedding * kFloat));
    network.EndBranch();
  }
  network.Join("interact");
  AddTop(network, kSamples, kBranches * (kWidth + kEmbedding));
  return network;
}

Network Mmt(int branches, bool by_operator) {
  constexpr double kSamples = 4, kSequence = 256, kHidden = 1024, kInner = 4096;
  constexpr double kRows = kSamples * kSequence;
  constexpr double kTensor = kRows * kHidden * kFloat;
  constexpr double kAttentionFlops =
      2 * kRows * 4 * kHidden * kHidden + 2 * 2 * kRows * kSequence * kHidden;
  constexpr double kProductFlops = 2 * kRows * kHidden * kInner;
  constexpr double kAttentionWeights = 4 * kHidden * kHidden * kFloat;
  constexpr double kProductWeights = kHidden * kInner * kFloat;
  // Tensors that attention and the two products save, in those of kTensor.
  constexpr double kAttentionSaves = 15.5, kFirstSaves = 7.5, kSecondSaves = 4;
  Network network(kRows);
  for (int b = 0; b < branches; ++b) {
    network.Branch();
    network.Add(Linear(absl::StrCat("b", b, "_embed"), kRows, kHidden, kHidden));
    for (int l = 0; l < 8; ++l) {
      if (!by_operator) {
        network.Add({absl::StrCat("b", b, "_layer", l),
                     Seconds(kAttentionFlops + 2 * kProductFlops, 0), kTensor,
                     kAttentionWeights + 2 * kProductWeights,
                     (kAttentionSaves + kFirstSaves + kSecondSaves) * kTensor, kTensor});
        continue;
      }
      network.Add({absl::StrCat("b", b, "_mha", l), Seconds(kAttentionFlops, 0), kTensor,
                   kAttentionWeights, kAttentionSaves * kTensor, kTensor});
      network.Add({absl::StrCat("b", b, "_ff1_", l), Seconds(kProductFlops, 0), 4 * kTensor,
                   kProductWeights, kFirstSaves * kTensor, kTensor});
      network.Add({absl::StrCat("b", b, "_ff2_", l), Seconds(kProductFlops, 0), kTensor,
                   kProductWeights, kSecondSaves * kTensor});
    }
    network.EndBranch();
  }
  network.Join("concat");
  network.Add(Linear("head", kRows, branches * kHidden, kHidden));
  return network;
}

// Convolutions of 3 x 3 in five groups, the last three of `late` each, with a pooling operator
// behind each group, and three products. Images of 224 x 224.
Network Vgg(double samples, int late) {
  Network network(samples);
  network.Branch();
  double channels = 3;
  double side = 224;
  for (int group = 0; group < 5; ++group) {
    const double out = std::min(512.0, 64.0 * (1 << group));
    for (int l = 0; l < (group < 2 ? 2 : late); ++l) {
      const double pixels = samples * side * side;
      const double output = pixels * out * kFloat;
      const double parameters = 9 * channels * out * kFloat;
      network.Add({absl::StrCat("conv", group + 1, "_", l + 1),
                   Seconds(2 * 9 * pixels * channels * out,
                           parameters + pixels * channels * kFloat + output),
                   output, parameters, output});
      channels = out;
    }
    side /= 2;
    network.Add(Copy(absl::StrCat("pool", group + 1), samples * side * side * out * kFloat, 0));
  }
  network.Add(Linear("fc6", samples, channels * side * side, 4096));
  network.Add(Linear("fc7", samples, 4096, 4096));
  network.Add(Linear("fc8", samples, 4096, 1000));
  return network;
}

std::string PipeDreamText(const std::vector<Layer>& layers) {
  std::string text;
  for (size_t v = 0; v < layers.size(); ++v) {
    const Layer& layer = layers[v];
    absl::StrAppendFormat(&text,
                          "node%d -- %s -- forward_compute_time=%.6f, backward_compute_time=%.6f, "
                          "activation_size=%.3f, parameter_size=%.3f\n",
                          v + 1, layer.name, layer.forward * 1e3, layer.forward * kBackward * 1e3,
                          layer.output, layer.parameters);
  }
  for (size_t v = 0; v < layers.size(); ++v) {
    for (size_t before : layers[v].after) {
      absl::StrAppendFormat(&text, "\tnode%d -- node%d\n", before + 1, v + 1);
    }
  }
  return text;
}

std::string PiperConfiguration(const char* id, double seconds, double parameters, double a,
                               double b) {
  return absl::StrFormat(
      R"({"id": "%s", "timePerSample": %.17g, "parameterSize": %.17g, "memoryUsageA": %.17g, )"
      R"("memoryUsageB": %.17g, "syncTimeFw": {}, "syncTimeBw": {}})",
      id, seconds, parameters, a, b);
}

std::string PiperText(const std::vector<Layer>& layers) {
  std::vector<std::string> nodes;
  std::vector<std::string> edges;
  for (size_t v = 0; v < layers.size(); ++v) {
    const Layer& layer = layers[v];
    const double step = layer.forward * (1 + kBackward);
    const double states = kStates * layer.parameters;
    std::string ways = PiperConfiguration("vanilla", step, layer.parameters, layer.saved, states);
    if (layer.recomputed > 0) {
      absl::StrAppend(&ways, ", ",
                      PiperConfiguration("activation recomp", step + layer.forward,
                                         layer.parameters, layer.recomputed, states + layer.saved));
    }
    nodes.push_back(
        absl::StrFormat(R"({"id": %d, "name": "%s", "TMPCs": {"1": [%s]}})", v, layer.name, ways));
    for (size_t before : layer.after) {
      edges.push_back(
          absl::StrFormat(R"({"sourceId": %d, "destId": %d, "communicationCost": %.17g})", before,
                          v, layers[before].output));
    }
  }
  return absl::StrFormat(
      R"({"maxDevices": 8, "maxMemoryPerDevice": 17179869184.0, "bandwidth": 12500000000.0, )"
      R"("mbsInBatch": 16, "nodes": [%s], "edges": [%s]})",
      absl::StrJoin(nodes, ", "), absl::StrJoin(edges, ", "));
}

struct Profile {
  Network (*make)();
  std::string (*text)(const std::vector<Layer>& layers);
};

const std::map<std::string, Profile>& Profiles() {
  static const std::map<std::string, Profile> profiles = [] {
    std::map<std::string, Profile> all;
    const auto add = [&](const std::string& name, Network (*make)()) {
      all[absl::StrCat("synthetic/", name, ".graph.txt")] = {make, PipeDreamText};
      all[absl::StrCat("synthetic/", name, ".json")] = {make, PiperText};
    };
    add("candle7", Candle);
    add("dlrm7x7", Dlrm);
    add("mmt2_layer", [] { return Mmt(2, false); });
    add("mmt4_layer", [] { return Mmt(4, false); });
    add("mmt4_op", [] { return Mmt(4, true); });
    all["synthetic/vgg16.graph.txt"] = {[] { return Vgg(64, 3); }, PipeDreamText};
    all["synthetic/vgg19.graph.txt"] = {[] { return Vgg(32, 4); }, PipeDreamText};
    return all;
  }();
  return profiles;
}

}  // namespace

std::vector<std::string> SyntheticProfiles() {
  std::vector<std::string> names;
  for (const auto& [name, profile] : Profiles()) names.push_back(name);
  return names;
}

std::optional<std::string> SyntheticProfile(const std::string& name) {
  const auto found = Profiles().find(name);
  if (found == Profiles().end()) return std::nullopt;
  return found->second.text(found->second.make().layers());
}

}  // namespace stagewright
