#include "worker_daemon/stage/segmented_graph.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include <utility>

#include "worker_daemon/torch/autograd_node.h"

namespace stagewright {
namespace {

using torch::autograd::edge_list;

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
    cuts_[place] = MakeAutogradNode<Cut>();
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
      const bool keep = SegmentPlan::HasParameters(segment);
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
  std::vector<decltype(MakeAutogradNode<Cut>())> cuts_;  // By place.
  edge_list edges_;  // By place: the history of a value that crosses.
  Roots weights_;    // Gradients of parameter nodes, between the halves.
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
