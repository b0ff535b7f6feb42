#include "worker_daemon/engine/segments.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>

namespace stagewright {
namespace {

using torch::autograd::edge_list;

void SortUnique(std::vector<int32_t>& places) {
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
}

// What a value or node depends on.
enum class Origin { kConstant, kParameters, kActivations };

}  // namespace

SegmentPlan PlanSegments(const std::vector<SegmentNode>& nodes, int32_t places, int32_t received,
                         const std::vector<int32_t>& given) {
  SegmentPlan plan;
  plan.of_place.assign(places, -1);
  plan.crosses.assign(places, false);
  std::vector<Origin> origin(places, Origin::kActivations);
  std::vector<int32_t> level(places, 0);  // Parameter nodes on the longest path up to the value.
  for (const SegmentNode& node : nodes) {
    Origin of_node = node.takes_input ? Origin::kActivations : Origin::kConstant;
    bool reads_parameters = node.takes_parameter;
    int32_t deepest = 0;
    for (int32_t place : node.reads) {
      if (origin[place] == Origin::kActivations) of_node = Origin::kActivations;
      if (origin[place] == Origin::kParameters) reads_parameters = true;
      deepest = std::max(deepest, level[place]);
    }
    if (of_node == Origin::kConstant && reads_parameters) of_node = Origin::kParameters;
    int32_t segment = SegmentPlan::kParameterSide;
    if (of_node != Origin::kParameters) {
      if (reads_parameters) ++deepest;
      segment = 2 * deepest + (reads_parameters ? 0 : 1);
    }
    plan.of_node.push_back(segment);
    plan.segments = std::max(plan.segments, segment + 1);
    for (int32_t place : node.makes) {
      plan.of_place[place] = segment;
      origin[place] = of_node;
      level[place] = deepest;
    }
  }
  plan.reads.resize(plan.segments);
  for (size_t n = 0; n < nodes.size(); ++n) {
    for (int32_t place : nodes[n].reads) {
      if (plan.of_place[place] == plan.of_node[n]) continue;
      plan.reads[plan.of_node[n]].push_back(place);
      plan.crosses[place] = true;
    }
  }
  for (std::vector<int32_t>& reads : plan.reads) SortUnique(reads);
  for (int32_t place : given) plan.crosses[place] = true;
  plan.gives.resize(plan.segments);
  for (int32_t place = received; place < places; ++place) {
    if (plan.crosses[place]) plan.gives[plan.of_place[place]].push_back(place);
  }
  return plan;
}

namespace {

// Where the history of a value ends in another segment. It holds the value's gradient, not the
// value, so that the value lives only as long as a node's backward pass needs it.
class Cut : public torch::autograd::Node {
 public:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    Add(gradients[0]);
    return {};
  }
  std::string name() const override { return "stagewright::Cut"; }

  void Add(const at::Tensor& gradient) {
    if (!gradient.defined()) return;
    const at::NoGradGuard no_grad;
    gradient_ = gradient_.defined() ? gradient_ + gradient : gradient;
  }
  at::Tensor Take() { return std::move(gradient_); }

 private:
  at::Tensor gradient_;
};

// LibTorch counted references to nodes by std::shared_ptr, and does by c10::intrusive_ptr
// since 2.13.
template <typename T>
auto MakeNode() {
  using Pointer = decltype(torch::autograd::Edge::function);
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>) {
    return std::make_shared<T>();
  } else {
    return c10::make_intrusive<T>();
  }
}

// Where a backward pass starts.
struct Roots {
  edge_list edges;
  std::vector<at::Tensor> gradients;
};

void Run(const Roots& roots, const edge_list& ends, bool keep_graph) {
  if (roots.edges.empty() || ends.empty()) return;
  torch::autograd::Engine::get_default_engine().execute(roots.edges, roots.gradients, keep_graph,
                                                        /*create_graph=*/false,
                                                        /*accumulate_grad=*/true, ends);
}

}  // namespace

class SegmentedGraph::Impl {
 public:
  explicit Impl(const SegmentPlan& plan)
      : plan_(plan), cuts_(plan.of_place.size()), edges_(plan.of_place.size()) {}

  at::Tensor CutOff(int32_t place, const at::Tensor& value) {
    if (!plan_.crosses[place] || !value.requires_grad()) return {};
    edges_[place] = torch::autograd::impl::gradient_edge(value);
    return WithoutHistory(place, value);
  }

  at::Tensor WithoutHistory(int32_t place, const at::Tensor& value) {
    at::Tensor cut = value.detach();
    cuts_[place] = MakeNode<Cut>();
    torch::autograd::create_gradient_edge(cut, cuts_[place]);
    return cut;
  }

  bool Flows(int32_t place) const { return static_cast<bool>(cuts_[place]); }
  void AddGradient(int32_t place, const at::Tensor& gradient) { cuts_[place]->Add(gradient); }
  at::Tensor TakeGradient(int32_t place) {
    return Flows(place) ? cuts_[place]->Take() : at::Tensor();
  }

  void BackwardInput() {
    for (int32_t segment = plan_.segments - 1; segment > SegmentPlan::kParameterSide; --segment) {
      Roots roots = TakeRoots(segment);
      edge_list ends;
      for (int32_t place : plan_.reads[segment]) {
        if (plan_.of_place[place] != SegmentPlan::kParameterSide && Flows(place))
          ends.emplace_back(cuts_[place], 0);
      }
      const bool keep = plan_.HasParameters(segment);
      Run(roots, ends, keep);
      if (!keep) continue;
      for (size_t i = 0; i < roots.edges.size(); ++i) {
        weights_.edges.push_back(std::move(roots.edges[i]));
        weights_.gradients.push_back(std::move(roots.gradients[i]));
      }
    }
  }

  void BackwardWeight(const std::vector<at::Tensor>& parameters) {
    edge_list ends;
    for (const at::Tensor& parameter : parameters)
      ends.push_back(torch::autograd::impl::gradient_edge(parameter));
    edge_list ends_of_nodes = ends;
    for (int32_t place : plan_.gives[SegmentPlan::kParameterSide]) {
      if (Flows(place)) ends_of_nodes.emplace_back(cuts_[place], 0);
    }
    Run(std::exchange(weights_, {}), ends_of_nodes, /*keep_graph=*/false);
    Run(TakeRoots(SegmentPlan::kParameterSide), ends, /*keep_graph=*/false);
  }

 private:
  // Forgets the values that the segment gives.
  Roots TakeRoots(int32_t segment) {
    Roots roots;
    for (int32_t place : plan_.gives[segment]) {
      at::Tensor gradient = TakeGradient(place);
      cuts_[place] = {};
      torch::autograd::Edge edge = std::exchange(edges_[place], {});
      if (!gradient.defined()) continue;
      roots.edges.push_back(std::move(edge));
      roots.gradients.push_back(std::move(gradient));
    }
    return roots;
  }

  const SegmentPlan& plan_;
  std::vector<decltype(MakeNode<Cut>())> cuts_;  // By place.
  edge_list edges_;                              // By place: the history of a value that crosses.
  Roots weights_;  // Gradients of parameter nodes, between the halves.
};

SegmentedGraph::SegmentedGraph(const SegmentPlan& plan) : impl_(std::make_unique<Impl>(plan)) {}
SegmentedGraph::SegmentedGraph(SegmentedGraph&&) noexcept = default;
SegmentedGraph& SegmentedGraph::operator=(SegmentedGraph&&) noexcept = default;
SegmentedGraph::~SegmentedGraph() = default;

at::Tensor SegmentedGraph::CutOff(int32_t place, const at::Tensor& value) {
  return impl_->CutOff(place, value);
}
at::Tensor SegmentedGraph::CutOffReceived(int32_t place, const at::Tensor& value) {
  return impl_->WithoutHistory(place, value);
}
bool SegmentedGraph::Flows(int32_t place) const { return impl_->Flows(place); }
void SegmentedGraph::AddGradient(int32_t place, const at::Tensor& gradient) {
  impl_->AddGradient(place, gradient);
}
void SegmentedGraph::BackwardInput() { impl_->BackwardInput(); }
at::Tensor SegmentedGraph::TakeGradient(int32_t place) { return impl_->TakeGradient(place); }
void SegmentedGraph::BackwardWeight(const std::vector<at::Tensor>& parameters) {
  impl_->BackwardWeight(parameters);
}

}  // namespace stagewright
