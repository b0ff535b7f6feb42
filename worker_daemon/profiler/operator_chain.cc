#include "worker_daemon/profiler/operator_chain.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "common/cost/measured/operator_signature.h"
#include "worker_daemon/torch/autocast.h"
#include "worker_daemon/torch/autograd_node.h"
#include "worker_daemon/torch/keyed_dropout.h"
#include "worker_daemon/torch/operator_call.h"
#include "worker_daemon/torch/torch_guard.h"
#include "worker_daemon/torch/weight_casts.h"

namespace stagewright {
namespace {

using torch::autograd::edge_list;

// Takes the gradient of an operand and drops it.
class Sink : public torch::autograd::Node {
 public:
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override { return {}; }
  std::string name() const override { return "stagewright::Sink"; }
};

// Says that a link's backward pass begins, and hands the gradient on as often as it is read.
class Gate : public torch::autograd::Node {
 public:
  void Guard(const at::Tensor& result, int readers, const std::function<void()>& before) {
    before_ = &before;
    set_next_edges(
        edge_list(static_cast<size_t>(readers), torch::autograd::impl::gradient_edge(result)));
    add_input_metadata(result);
  }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    (*before_)();
    return torch::autograd::variable_list(next_edges().size(), gradients[0]);
  }
  std::string name() const override { return "stagewright::Gate"; }

 private:
  const std::function<void()>* before_ = nullptr;
};

class RunnableChain : public OperatorChain {
 public:
  RunnableChain(const Graph& graph, NodeId id, int64_t samples, Operands operands,
                at::Device device, Precision precision, Links links, Surroundings surroundings)
      : graph_(graph),
        id_(id),
        samples_(samples),
        device_(device),
        precision_(precision),
        in_a_row_(links == Links::kInARow),
        surroundings_(std::move(surroundings)),
        operands_(std::move(operands)),
        casts_(precision),
        received_(GradientsReceived(graph, id)),
        gradients_(received_.size()) {}

  absl::Status Init() {
    const Node& node = graph_.node(id_);
    const TensorSource source = [&](const Argument& argument) -> const at::Tensor& {
      return TensorOf(operands_, argument);
    };
    if (KeyedDropout::IsDropout(node)) {
      ASSIGN_OR_RETURN(KeyedDropout call, KeyedDropout::Create(node, id_, /*training=*/true));
      call_.emplace(call);
    } else {
      ASSIGN_OR_RETURN(OperatorCall call,
                       OperatorCall::Bind(node, device_, /*training=*/true, source));
      call_.emplace(std::move(call));
    }
    for (size_t i = 0; i < operands_.size(); ++i) {
      const auto& [argument, tensor] = operands_[i];
      if (!IsRead(argument) || !NeedsGradient(graph_, id_, argument)) continue;
      if (std::holds_alternative<ParameterId>(argument.value)) {
        tensor.mutable_grad() = at::zeros_like(tensor);
        if (casts_.Applies(node.target)) cast_.push_back(tensor);
        has_parameters_ = true;
      } else {
        has_operands_ = true;
      }
      if (cast_.empty() || !cast_.back().is_same(tensor)) differentiated_.push_back(i);
    }
    for (int copy = 0; copy < std::max(surroundings_.copies, 1); ++copy) AddCopy();
    return absl::OkStatus();
  }

  absl::Status Forward(int length) override {
    const at::AutoGradMode grad_mode(has_backward());
    return Checked([&]() -> absl::Status {
      MakeLinks(length);
      Drop();
      const AutocastScope autocast(device_.type(), precision_);
      std::vector<at::Tensor> outputs;
      for (int link = 0; link < length; ++link) {
        if (in_a_row_ && link > 0) before_ = std::move(outputs[0]);
        outputs.clear();
        if (surroundings_.before_link) surroundings_.before_link();
        RETURN_IF_ERROR(RunOnce(link, outputs));
        if (has_backward() && (!in_a_row_ || link + 1 == length)) KeepRoots(outputs);
      }
      before_ = at::Tensor();
      return absl::OkStatus();
    });
  }

  absl::Status Backward(Part part) override {
    return Checked([&]() -> absl::Status {
      if (roots_.empty()) return absl::OkStatus();
      const edge_list none;
      const edge_list& ends = part == Part::kWhole   ? none
                              : part == Part::kInput ? sinks_
                                                     : parameters_;
      if (part != Part::kWhole && ends.empty()) return absl::OkStatus();
      const bool keep = part == Part::kInput;
      torch::autograd::Engine::get_default_engine().execute(roots_, root_gradients_, keep,
                                                            /*create_graph=*/false,
                                                            /*accumulate_grad=*/true, ends);
      if (!keep) Drop();
      return absl::OkStatus();
    });
  }

  bool has_backward() const override { return graph_.needs_backward(id_); }
  bool trains_parameters() const override { return has_parameters_; }
  bool splits() const override { return has_parameters_ && has_operands_; }

 private:
  // Runs what may throw or fail.
  template <typename F>
  absl::Status Checked(F&& run) {
    absl::Status status;
    RETURN_IF_ERROR(Annotate(Guarded([&] { status = run(); }), NameOf(graph_.node(id_))));
    return status;
  }

  // The node reads it itself, and not only a view that one of its operands is.
  bool IsRead(const Argument& argument) const {
    bool read = false;
    ForEachLeaf(graph_.node(id_), [&](const Argument& leaf) { read |= leaf == argument; });
    return read;
  }

  // The operands that get a gradient once more; the first time, themselves.
  void AddCopy() {
    const bool first = copies_.empty();
    std::vector<at::Tensor>& copy = copies_.emplace_back();
    for (size_t i : differentiated_) {
      const auto& [argument, tensor] = operands_[i];
      copy.push_back(tensor);
      if (first || !std::holds_alternative<ParameterId>(argument.value)) continue;
      copy.back() = tensor.detach().clone().requires_grad_();
      copy.back().mutable_grad() = at::zeros_like(tensor);
    }
  }

  // One tensor per link and operand that gets a gradient. Those of a copy of a parameter add up in
  // one gradient, as those of micro-batches do.
  void MakeLinks(int length) {
    if (links_.size() == static_cast<size_t>(length)) return;
    links_.clear();
    sinks_.clear();
    parameters_.clear();
    for (const at::Tensor& parameter : cast_)
      parameters_.push_back(torch::autograd::impl::gradient_edge(parameter));
    for (size_t i = 0; i < static_cast<size_t>(length); ++i) {
      std::vector<at::Tensor>& link = links_.emplace_back();
      const std::vector<at::Tensor>& copy = copies_[i % copies_.size()];
      for (size_t d = 0; d < differentiated_.size(); ++d)
        link.push_back(MakeLeaf(operands_[differentiated_[d]].first, copy[d]));
    }
  }

  at::Tensor MakeLeaf(const Argument& argument, const at::Tensor& operand) {
    at::Tensor leaf = operand.detach();
    if (std::holds_alternative<ParameterId>(argument.value)) {
      leaf.requires_grad_();
      leaf.mutable_grad() = operand.grad();
      parameters_.push_back(torch::autograd::impl::gradient_edge(leaf));
    } else {
      torch::autograd::create_gradient_edge(leaf, MakeAutogradNode<Sink>());
      sinks_.push_back(torch::autograd::impl::gradient_edge(leaf));
    }
    return leaf;
  }

  absl::Status RunOnce(int link, std::vector<at::Tensor>& outputs) {
    const TensorSource source = [this, link](const Argument& argument) -> const at::Tensor& {
      return Resolve(argument, static_cast<size_t>(link));
    };
    if (const auto* call = std::get_if<OperatorCall>(&*call_))
      return call->Run(samples_, source, outputs, precision_ != Precision::kGraph);
    const KeyedDropout& dropout = std::get<KeyedDropout>(*call_);
    return dropout.Run(source(dropout.input()), samples_, RandomKey{}, outputs);
  }

  const at::Tensor& Resolve(const Argument& argument, size_t link) {
    size_t i = 0;
    while (!(operands_[i].first == argument)) ++i;
    if (in_a_row_ && link > 0 && i == differentiated_[0]) return before_;
    for (size_t d = 0; has_backward() && d < differentiated_.size(); ++d) {
      if (differentiated_[d] == i) return links_[link][d];
    }
    const auto* parameter = std::get_if<ParameterId>(&argument.value);
    const bool cast = parameter != nullptr && casts_.Applies(graph_.node(id_).target);
    return cast ? casts_.Get(*parameter, operands_[i].second) : operands_[i].second;
  }

  // Where the backward pass starts; the results themselves go.
  void KeepRoots(const std::vector<at::Tensor>& outputs) {
    bool gated = !surroundings_.before_link || in_a_row_;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (received_[i] == 0 || !outputs[i].requires_grad()) continue;
      if (!gradients_[i].defined()) {
        const at::NoGradGuard no_grad;
        gradients_[i] = at::full_like(outputs[i], 0.5);
      }
      if (!std::exchange(gated, true)) {
        const auto gate = MakeAutogradNode<Gate>();
        gate->Guard(outputs[i], received_[i], surroundings_.before_link);
        roots_.emplace_back(gate, 0);
        root_gradients_.push_back(gradients_[i]);
        continue;
      }
      // As often as gradients come: the engine adds them up before it goes on.
      for (int n = 0; n < received_[i]; ++n) {
        roots_.push_back(torch::autograd::impl::gradient_edge(outputs[i]));
        root_gradients_.push_back(gradients_[i]);
      }
    }
  }

  void Drop() {
    roots_.clear();
    root_gradients_.clear();
  }

  const Graph& graph_;
  const NodeId id_;
  const int64_t samples_;
  const at::Device device_;
  const Precision precision_;
  const bool in_a_row_;
  const Surroundings surroundings_;
  at::Tensor before_;  // What the link before gave, if they are in a row.
  const Operands operands_;
  std::optional<std::variant<OperatorCall, KeyedDropout>> call_;
  WeightCasts casts_;
  std::vector<size_t> differentiated_;           // Operands that get a gradient of their own.
  std::vector<at::Tensor> cast_;                 // Parameters that are cast, once for all links.
  bool has_parameters_ = false;                  // Some operand with a gradient is one.
  bool has_operands_ = false;                    // Some operand with a gradient is none.
  std::vector<std::vector<at::Tensor>> copies_;  // By copy: those operands.
  std::vector<std::vector<at::Tensor>> links_;   // By link: the same, with edges of its own.
  edge_list sinks_, parameters_;                 // Where the halves of a backward pass end.
  const std::vector<int> received_;              // Gradients by result.
  std::vector<at::Tensor> gradients_;            // By result.
  edge_list roots_;
  std::vector<at::Tensor> root_gradients_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<OperatorChain>> OperatorChain::Create(
    const Graph& graph, NodeId node, int64_t samples, Operands operands, at::Device device,
    Precision precision, Links links, Surroundings surroundings) {
  auto chain = std::make_unique<RunnableChain>(graph, node, samples, std::move(operands), device,
                                               precision, links, std::move(surroundings));
  RETURN_IF_ERROR(chain->Init());
  return std::unique_ptr<OperatorChain>(std::move(chain));
}

}  // namespace stagewright
