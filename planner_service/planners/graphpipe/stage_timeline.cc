#include "planner_service/planners/graphpipe/stage_timeline.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <queue>

#include "common/cost/collectives.h"
#include "common/cost/update.h"
#include "common/lowering/compute_order.h"

namespace stagewright {
namespace {

// Rounds of micro-batches after the pipeline is full from which its pace is taken.
constexpr int64_t kRounds = 8;

// Tasks, pieces or events between two looks at the deadline.
constexpr int64_t kStepsPerPoll = 1000;

constexpr double kNever = std::numeric_limits<double>::infinity();

// A part of a micro-batch that one task sends to another.
struct Piece {
  int32_t from = 0;  // Global index of the sender's task,
  int32_t task = 0;  // and of the receiver's.
  const Layout::Load* load = nullptr;
  double samples = 0;
  int32_t next_waiting = -1;  // Piece, for the same receiver, that was sent and not yet posted.
};

struct Task {
  int32_t stage = 0;
  bool backward = false;
  int32_t missing = 0;  // Pieces that have not arrived.
  int32_t posted = 0;   // Tasks of its stage that end before its receives are posted.
  int32_t waiting = -1;
  int32_t first_piece = 0;  // That it sends, up to the next task's.
};

struct StageState {
  double forward = 0;  // ns for one micro-batch,
  double backward = 0;
  double update = 0;  // and for the gradient sum and the optimizer.
  int32_t begin = 0;  // Tasks,
  int32_t end = 0;
  int32_t next = 0;  // the one to start,
  int32_t finished = 0;
  bool busy = false;
};

// How many tasks of a stage end before the receives of `task` are posted.
int32_t PostedAfter(const std::vector<MicroBatchTask>& order, int32_t task,
                    ReceivePosting posting) {
  const auto pass = [&](int32_t at) -> LanePass {
    return {order[at].backward ? LanePass::Kind::kGradients : LanePass::Kind::kForward,
            order[at].micro_batch};
  };
  const auto before = [&](int32_t back) { return pass(task - back); };
  return task + 1 - posting.PassesBack(pass(task), task, before);
}

class Timeline {
 public:
  Timeline(const StageOracle& oracle, const Partition& partition, const Layout& layout,
           int64_t samples, const SearchContext& context, ReceivePosting posting);
  double Run();

 private:
  struct Event {
    double time;
    int32_t task;  // That ends; or -1 - task: a piece for it arrives.
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : task > other.task;
    }
  };
  void AddTasks(const StageOracle& oracle, const Partition& partition, const Layout& layout);
  void Connect(const Partition& partition, const Layout::Edge& edge);
  void SortPieces();
  void TryStart(StageState& stage, double now);
  void Finish(int32_t task, double now);
  void Transfer(const Piece& piece, double now);

  // Whether the time is over; looks at the clock once in a thousand calls.
  bool Poll() {
    if (!expired_ && ++steps_ % kStepsPerPoll == 0) expired_ = context_.Expired();
    return expired_;
  }

  const Cluster& cluster_;
  const SearchContext& context_;
  const ReceivePosting posting_;
  int64_t steps_ = 0;
  bool expired_ = false;
  int64_t samples_;
  std::vector<StageState> stages_;
  std::vector<Task> tasks_;       // By stage and order.
  std::vector<Piece> pieces_;     // By sender.
  std::vector<int32_t> forward_;  // By stage and micro-batch, at StageState::begin / 2: task.
  std::vector<int32_t> backward_;
  std::vector<double> link_free_;
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events_;
};

Timeline::Timeline(const StageOracle& oracle, const Partition& partition, const Layout& layout,
                   int64_t samples, const SearchContext& context, ReceivePosting posting)
    : cluster_(*oracle.problem().cluster),
      context_(context),
      posting_(posting),
      samples_(samples),
      stages_(partition.stages.size()),
      link_free_(cluster_.links().size(), 0) {
  AddTasks(oracle, partition, layout);
  for (const Layout::Edge& edge : layout.edges) {
    if (expired_) return;
    Connect(partition, edge);
  }
  SortPieces();
}

void Timeline::AddTasks(const StageOracle& oracle, const Partition& partition,
                        const Layout& layout) {
  for (size_t s = 0; s < stages_.size(); ++s) {
    const StageChoice& choice = partition.stages[s];
    StageState& stage = stages_[s];
    const ShareCosts& share = oracle.Share(choice.config.micro_batch / choice.replicas);
    stage.forward = share.Forward(choice.begin, choice.end);
    stage.backward = share.Time(choice.begin, choice.end) - stage.forward;
    if (choice.recompute) stage.backward += stage.forward;
    const StageOracle::Extent& extent = oracle.At(choice.begin, choice.end);
    stage.update =
        static_cast<double>(AllReduceTime(cluster_, layout.devices[s], extent.gradients) +
                            OptimizerStepTime(oracle.kind(), extent.resident));
    const int64_t b = choice.config.micro_batch;
    const auto order =
        StageOrder(samples_ / b, b, {layout.in_flight[s], choice.config.k}, /*has_backward=*/true);
    stage.begin = static_cast<int32_t>(tasks_.size());
    stage.end = stage.begin + static_cast<int32_t>(order.size());
    stage.next = stage.begin;
    forward_.resize(stage.end / 2);
    backward_.resize(stage.end / 2);
    for (size_t t = 0; t < order.size(); ++t) {
      if (Poll()) return;
      (order[t].backward ? backward_ : forward_)[stage.begin / 2 + order[t].micro_batch] =
          static_cast<int32_t>(tasks_.size());
      Task& task = tasks_.emplace_back();
      task.stage = static_cast<int32_t>(s);
      task.backward = order[t].backward;
      task.posted = PostedAfter(order, static_cast<int32_t>(t), posting_);
    }
  }
}

void Timeline::Connect(const Partition& partition, const Layout::Edge& edge) {
  const int64_t from = partition.stages[edge.from].config.micro_batch;
  const int64_t to = partition.stages[edge.to].config.micro_batch;
  const int32_t sender = stages_[edge.from].begin / 2;
  const int32_t receiver = stages_[edge.to].begin / 2;
  const auto connect = [&](int32_t source, int32_t target, const Layout::Load& load, double size) {
    pieces_.push_back({source, target, &load, size});
    ++tasks_[target].missing;
  };
  for (int64_t begin = 0; begin < samples_;) {
    const int64_t end = std::min((begin / from + 1) * from, (begin / to + 1) * to);
    const auto size = static_cast<double>(end - begin);
    connect(forward_[sender + begin / from], forward_[receiver + begin / to], edge.there, size);
    if (Poll()) return;
    connect(backward_[receiver + begin / to], backward_[sender + begin / from], edge.back, size);
    begin = end;
  }
}

void Timeline::SortPieces() {
  std::vector<int32_t> first(tasks_.size() + 1, 0);
  for (const Piece& piece : pieces_) ++first[piece.from + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  for (size_t t = 0; t < tasks_.size(); ++t) tasks_[t].first_piece = first[t];
  std::vector<Piece> sorted(pieces_.size());
  for (const Piece& piece : pieces_) sorted[first[piece.from]++] = piece;
  pieces_ = std::move(sorted);
}

// Each link is a queue of its own: links in a row do not wait for each other.
void Timeline::Transfer(const Piece& piece, double now) {
  double end = now;
  for (const auto& [link, bytes] : piece.load->links) {
    double& free = link_free_[link];
    free =
        std::max(free, now) + bytes * piece.samples * 1e9 / cluster_.links()[link].bytes_per_second;
    end = std::max(end, free);
  }
  events_.push({end + static_cast<double>(piece.load->latency), -1 - piece.task});
}

void Timeline::TryStart(StageState& stage, double now) {
  if (stage.busy || stage.next == stage.end) return;
  const Task& task = tasks_[stage.next];
  if (task.missing > 0) return;
  stage.busy = true;
  events_.push({now + (task.backward ? stage.backward : stage.forward), stage.next});
  ++stage.next;
}

void Timeline::Finish(int32_t index, double now) {
  StageState& stage = stages_[tasks_[index].stage];
  stage.busy = false;
  ++stage.finished;
  const int32_t last = index + 1 < static_cast<int32_t>(tasks_.size())
                           ? tasks_[index + 1].first_piece
                           : static_cast<int32_t>(pieces_.size());
  for (int32_t p = tasks_[index].first_piece; p < last; ++p) {
    Task& target = tasks_[pieces_[p].task];
    if (target.posted <= stages_[target.stage].finished) {
      Transfer(pieces_[p], now);
    } else {
      pieces_[p].next_waiting = target.waiting;
      target.waiting = p;
    }
  }
  const int32_t next = stage.begin + stage.finished;
  for (int32_t t = next; t < std::min(stage.end, next + posting_.ahead); ++t) {
    if (tasks_[t].posted > stage.finished) continue;
    for (int32_t p = tasks_[t].waiting; p >= 0; p = pieces_[p].next_waiting) {
      Transfer(pieces_[p], now);
    }
    tasks_[t].waiting = -1;
  }
  TryStart(stage, now);
}

double Timeline::Run() {
  if (expired_) return kNever;
  for (StageState& stage : stages_) TryStart(stage, 0);
  double last = 0;
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    if (Poll()) return kNever;
    if (event.task < 0) {
      Task& task = tasks_[-1 - event.task];
      --task.missing;
      TryStart(stages_[task.stage], event.time);
      continue;
    }
    Finish(event.task, event.time);
    const StageState& stage = stages_[tasks_[event.task].stage];
    if (stage.begin + stage.finished == stage.end) {
      last = std::max(last, event.time + stage.update);
    }
  }
  for (const StageState& stage : stages_) {
    if (stage.begin + stage.finished < stage.end) return kNever;
  }
  return last;
}

// How much of the mini-batch is simulated: once, or of a long one, twice.
struct Lengths {
  int64_t full = 0;  // Samples until the pipeline runs at its pace; the mini-batch if it is short.
  int64_t longer = 0;
};

Lengths LengthsOf(const StageOracle& oracle, const Partition& partition, const Layout& layout) {
  const int64_t mini_batch = oracle.problem().mini_batch;
  int64_t round = 1;  // Samples after which the pattern of all stages repeats.
  int64_t deepest = 0;
  for (size_t s = 0; s < partition.stages.size(); ++s) {
    round = std::lcm(round, partition.stages[s].config.k * partition.stages[s].config.micro_batch);
    deepest = std::max(deepest, layout.in_flight[s]);
  }
  const int64_t full = (deepest + round - 1) / round * round + kRounds * round;
  if (full + kRounds * round >= mini_batch) return {mini_batch, mini_batch};
  return {full, full + kRounds * round};
}

}  // namespace

double StageTimeline(const StageOracle& oracle, const Partition& partition, const Layout& layout,
                     const SearchContext& context, ReceivePosting posting) {
  const Lengths lengths = LengthsOf(oracle, partition, layout);
  const double first = Timeline(oracle, partition, layout, lengths.full, context, posting).Run();
  if (lengths.full == lengths.longer || first == kNever) return first;
  const double second = Timeline(oracle, partition, layout, lengths.longer, context, posting).Run();
  if (second == kNever) return kNever;
  const int64_t rest = oracle.problem().mini_batch - lengths.longer;
  return second + (second - first) * static_cast<double>(rest) /
                      static_cast<double>(lengths.longer - lengths.full);
}

int64_t TimelineTasks(const StageOracle& oracle, const Partition& partition, const Layout& layout) {
  const Lengths lengths = LengthsOf(oracle, partition, layout);
  int64_t samples = lengths.longer;
  if (lengths.full < lengths.longer) samples += lengths.full;
  int64_t tasks = 0;
  for (const StageChoice& choice : partition.stages) {
    tasks += 2 * samples / choice.config.micro_batch;
  }
  return tasks;
}

}  // namespace stagewright
