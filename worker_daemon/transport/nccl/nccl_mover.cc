#include "worker_daemon/transport/nccl/nccl_mover.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <list>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status.h"
#include "common/clock/steady_now.h"
#include "worker_daemon/cuda/current_gpu.h"
#include "worker_daemon/cuda/event_query.h"
#include "worker_daemon/transport/arranged/first_messages.h"
#include "worker_daemon/transport/shared_memory.h"

namespace stagewright {
namespace {

static_assert(sizeof(ncclUniqueId) <= DeviceMover::kMaxNote);

// How a thread waits for what mostly takes less than a sleep does.
class Waiting {
 public:
  void Pause() {
    if (SteadyNow() < spin_until_) {
      std::this_thread::yield();
    } else {
      absl::SleepFor(absl::Microseconds(20));
    }
  }

 private:
  const absl::Time spin_until_ = SteadyNow() + absl::Microseconds(100);
};

// Blocks that NCCL takes of a GPU for messages: they need few, and passes compute beside them.
constexpr int kMostMessageBlocks = 8;

// About what NCCL takes of shared memory for a peer of another process, where it takes any.
constexpr Bytes kSegment = 16 << 20;

absl::Status Cuda(absl::string_view what, cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, ": ", cudaGetErrorString(error)));
}

// A peer that is gone shows as a system or remote error.
absl::Status Nccl(absl::string_view what, ncclResult_t result, ncclComm_t comm) {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  const char* detail = ncclGetLastError(comm);
  std::string text = absl::StrCat(what, ": ", ncclGetErrorString(result));
  if (detail != nullptr && *detail != '\0') absl::StrAppend(&text, " (", detail, ")");
  const bool remote = result == ncclRemoteError || result == ncclSystemError;
  const absl::Status error = remote ? absl::UnavailableError(text) : absl::InternalError(text);
  return result == ncclSystemError ? NamingFullSharedMemory(error, kSegment) : error;
}

class Event {
 public:
  explicit Event(int device) : device_(device) {
    const CurrentGpu current(device_);
    error_ = cudaEventCreateWithFlags(&event_, cudaEventDisableTiming);
  }
  ~Event() {
    const CurrentGpu current(device_);
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void Record(cudaStream_t stream) {
    if (error_ == cudaSuccess) error_ = cudaEventRecord(event_, stream);
  }
  cudaEvent_t get() const { return event_; }
  cudaError_t error() const { return error_; }

 private:
  const int device_;
  cudaEvent_t event_ = nullptr;
  cudaError_t error_ = cudaSuccess;
};

ncclDataType_t TypeOf(Element element) {
  switch (element) {
    case Element::kFloat64:
      return ncclFloat64;
    case Element::kFloat32:
      return ncclFloat32;
    case Element::kFloat16:
      return ncclFloat16;
    case Element::kBFloat16:
      return ncclBfloat16;
  }
  return ncclFloat32;
}

// A communicator and the stream of its kernels.
struct Group {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<int> devices;  // By rank.
};

class NcclMover : public DeviceMover {
 public:
  explicit NcclMover(const NcclOptions& options)
      : device_(options.cuda_device), stream_(options.stream) {}
  ~NcclMover() override { Stop(); }

  absl::StatusOr<std::string> MakeNote() override {
    ncclUniqueId id;
    RETURN_IF_ERROR(Nccl("ncclGetUniqueId", ncclGetUniqueId(&id), nullptr));
    return std::string(reinterpret_cast<const char*>(&id), sizeof(id));
  }

  absl::Status Connect(const MoverGroup& group, const std::string& note,
                       absl::Time deadline) override {
    const CurrentGpu current(device_);
    self_ = group.self;
    RETURN_IF_ERROR(Open(group.devices, note, deadline));
    return Warm(OrderOfFirstMessages(self_, group.devices, group.partners), deadline);
  }

  absl::Status OpenCollectives(const std::vector<std::vector<int>>& lists,
                               absl::Time deadline) override {
    const CurrentGpu current(device_);
    std::vector<Group*> opened;
    for (const std::vector<int>& list : lists) {
      if (known_.insert(list).second) RETURN_IF_ERROR(Split(list, deadline, opened));
    }
    for (Group* group : opened) RETURN_IF_ERROR(WarmCollectives(*group, deadline));
    return absl::OkStatus();
  }

  std::shared_ptr<void> Mark() override {
    const CurrentGpu current(device_);
    auto event = std::make_shared<Event>(device_);
    event->Record(stream_ ? static_cast<cudaStream_t>(stream_()) : nullptr);
    return event;
  }

  bool Passed(const std::shared_ptr<void>& mark) override {
    const auto& event = *static_cast<const Event*>(mark.get());
    // An error shows where the operation is started.
    return event.error() != cudaSuccess || QueryEvent(event.get()) != cudaErrorNotReady;
  }

  absl::StatusOr<uint64_t> Start(const std::vector<MoverPart>& parts) override {
    const CurrentGpu current(device_);
    Group* group = &all_;
    if (parts[0].kind == MoverPart::Kind::kReduce) {
      const auto found = reducing_.find(parts[0].devices);
      if (found == reducing_.end())
        return absl::FailedPreconditionError("no communicator for a collective");
      group = &found->second;
    }
    for (const MoverPart& part : parts) {
      const auto& after = *static_cast<const Event*>(part.after.get());
      RETURN_IF_ERROR(Cuda("cudaEventRecord", after.error()));
      RETURN_IF_ERROR(
          Cuda("cudaStreamWaitEvent", cudaStreamWaitEvent(group->stream, after.get(), 0)));
    }
    RETURN_IF_ERROR(Nccl("ncclGroupStart", ncclGroupStart(), group->comm));
    absl::Status status;
    for (const MoverPart& part : parts) status.Update(Issue(part, *group));
    status.Update(Nccl("ncclGroupEnd", ncclGroupEnd(), group->comm));
    RETURN_IF_ERROR(status);
    // Until NCCL is ready, its kernel need not be on the stream.
    RETURN_IF_ERROR(AwaitReady(*group, absl::InfiniteFuture()));
    auto end = std::make_unique<Event>(device_);
    end->Record(group->stream);
    RETURN_IF_ERROR(Cuda("cudaEventRecord", end->error()));
    under_way_.push_back({++last_, std::move(end), group});
    return last_;
  }

  absl::StatusOr<std::vector<uint64_t>> Ended() override {
    const CurrentGpu current(device_);
    std::vector<uint64_t> ended;
    for (auto round = under_way_.begin(); round != under_way_.end();) {
      const cudaError_t state = QueryEvent(round->end->get());
      if (state == cudaErrorNotReady) {
        RETURN_IF_ERROR(CheckAsync(*round->group));
        ++round;
        continue;
      }
      RETURN_IF_ERROR(Cuda("a transfer between GPUs", state));
      ended.push_back(round->number);
      round = under_way_.erase(round);
    }
    return ended;
  }

  void InterruptAt(absl::Time when) override {
    const int64_t nanos = absl::ToUnixNanos(when);
    int64_t before = interrupted_at_;
    while (nanos < before && !interrupted_at_.compare_exchange_weak(before, nanos)) {
    }
  }

  void Stop() override {
    InterruptAt(absl::InfinitePast());
    const CurrentGpu current(device_);
    // All at once: what ends one communicator may wait for the whole GPU, where a kernel of another
    // one waits for a peer until that is aborted, too.
    std::vector<std::thread> threads;
    for (auto& reducing : reducing_) threads.emplace_back([&] { Abort(reducing.second); });
    Abort(all_);
    for (std::thread& thread : threads) thread.join();
    Close(all_);
    for (auto& [devices, group] : reducing_) Close(group);
    reducing_.clear();
    under_way_.clear();
  }

 private:
  struct UnderWay {
    uint64_t number = 0;
    std::unique_ptr<Event> end;
    Group* group = nullptr;
  };

  int RankOf(const Group& group, int device) const {
    return static_cast<int>(std::find(group.devices.begin(), group.devices.end(), device) -
                            group.devices.begin());
  }

  absl::Status Open(const std::vector<int>& devices, const std::string& note, absl::Time deadline) {
    all_.devices = devices;
    RETURN_IF_ERROR(MakeStream(all_));
    ncclUniqueId id;
    if (note.size() != sizeof(id)) return absl::InternalError("no id for a communicator");
    std::memcpy(&id, note.data(), sizeof(id));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = kMostMessageBlocks;
    RETURN_IF_ERROR(Nccl("ncclCommInitRankConfig",
                         ncclCommInitRankConfig(&all_.comm, static_cast<int>(devices.size()), id,
                                                RankOf(all_, self_), &config),
                         all_.comm));
    return AwaitReady(all_, deadline);
  }

  // What NCCL does is short and others wait for it: before the passes.
  static absl::Status MakeStream(Group& group) {
    int least = 0, greatest = 0;
    RETURN_IF_ERROR(Cuda("cudaDeviceGetStreamPriorityRange",
                         cudaDeviceGetStreamPriorityRange(&least, &greatest)));
    return Cuda("cudaStreamCreate",
                cudaStreamCreateWithPriority(&group.stream, cudaStreamNonBlocking, greatest));
  }

  // A communicator for the list out of that of all, who take part in this. Adds it to `opened` if
  // this device is in the list.
  absl::Status Split(const std::vector<int>& list, absl::Time deadline,
                     std::vector<Group*>& opened) {
    const bool member = std::find(list.begin(), list.end(), self_) != list.end();
    Group& group = member ? reducing_[list] : outside_;
    group.devices = list;
    if (member) RETURN_IF_ERROR(MakeStream(group));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    RETURN_IF_ERROR(Nccl("ncclCommSplit",
                         ncclCommSplit(all_.comm, member ? 0 : NCCL_SPLIT_NOCOLOR,
                                       member ? RankOf(group, self_) : 0, &group.comm, &config),
                         all_.comm));
    // Until then `group.comm` is not written.
    RETURN_IF_ERROR(AwaitReady(all_, deadline));
    if (!member) return absl::OkStatus();
    opened.push_back(&group);
    return AwaitReady(group, deadline);
  }

  absl::Status CheckAsync(const Group& group) const {
    ncclResult_t state = ncclSuccess;
    RETURN_IF_ERROR(
        Nccl("ncclCommGetAsyncError", ncclCommGetAsyncError(group.comm, &state), group.comm));
    return Nccl("NCCL", state, group.comm);
  }

  absl::Status AwaitReady(const Group& group, absl::Time deadline) const {
    for (Waiting waiting;; waiting.Pause()) {
      ncclResult_t state = ncclSuccess;
      RETURN_IF_ERROR(
          Nccl("ncclCommGetAsyncError", ncclCommGetAsyncError(group.comm, &state), group.comm));
      if (state != ncclInProgress) return Nccl("NCCL", state, group.comm);
      RETURN_IF_ERROR(MayWait(deadline));
    }
  }

  absl::Status MayWait(absl::Time deadline) const {
    const absl::Time now = SteadyNow();
    if (absl::ToUnixNanos(now) >= interrupted_at_)
      return absl::CancelledError("NCCL was interrupted");
    if (now > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("device ", self_, ": NCCL's communicator was not ready in time"));
    }
    return absl::OkStatus();
  }

  absl::Status Issue(const MoverPart& part, const Group& group) const {
    switch (part.kind) {
      case MoverPart::Kind::kSend:
        return Nccl("ncclSend",
                    ncclSend(part.data, part.bytes, ncclInt8, RankOf(group, part.peer), group.comm,
                             group.stream),
                    group.comm);
      case MoverPart::Kind::kReceive:
        return Nccl("ncclRecv",
                    ncclRecv(part.data, part.bytes, ncclInt8, RankOf(group, part.peer), group.comm,
                             group.stream),
                    group.comm);
      case MoverPart::Kind::kReduce:
        return IssueCollective(part, group);
    }
    return absl::OkStatus();
  }

  // In place: a device's chunk is where the whole has it.
  absl::Status IssueCollective(const MoverPart& part, const Group& group) const {
    const size_t count = part.bytes / ElementSize(part.element);
    const size_t chunk = count / group.devices.size();
    const ncclDataType_t type = TypeOf(part.element);
    void* const own =
        static_cast<char*>(part.data) + RankOf(group, self_) * chunk * ElementSize(part.element);
    switch (part.collective) {
      case Collective::kAllReduce:
        return Nccl(
            "ncclAllReduce",
            ncclAllReduce(part.data, part.data, count, type, ncclSum, group.comm, group.stream),
            group.comm);
      case Collective::kReduceScatter:
        return Nccl(
            "ncclReduceScatter",
            ncclReduceScatter(part.data, own, chunk, type, ncclSum, group.comm, group.stream),
            group.comm);
      case Collective::kAllGather:
        return Nccl("ncclAllGather",
                    ncclAllGather(own, part.data, chunk, type, group.comm, group.stream),
                    group.comm);
    }
    return absl::OkStatus();
  }

  // NCCL connects two ranks when they first exchange something, which takes long. One byte goes
  // each way over every edge that is used.
  absl::Status Warm(const std::vector<FirstMessages>& order, absl::Time deadline) {
    void* bytes = nullptr;
    RETURN_IF_ERROR(Cuda("cudaMallocAsync", cudaMallocAsync(&bytes, 2, all_.stream)));
    for (const FirstMessages& messages : order) {
      RETURN_IF_ERROR(Nccl("ncclGroupStart", ncclGroupStart(), all_.comm));
      absl::Status status;
      if (messages.to.has_value()) {
        status.Update(
            Issue({.kind = MoverPart::Kind::kSend, .peer = *messages.to, .data = bytes, .bytes = 1},
                  all_));
      }
      if (messages.from.has_value()) {
        status.Update(Issue({.kind = MoverPart::Kind::kReceive,
                             .peer = *messages.from,
                             .data = static_cast<char*>(bytes) + 1,
                             .bytes = 1},
                            all_));
      }
      status.Update(Nccl("ncclGroupEnd", ncclGroupEnd(), all_.comm));
      RETURN_IF_ERROR(status);
      RETURN_IF_ERROR(AwaitReady(all_, deadline));
    }
    RETURN_IF_ERROR(Cuda("cudaFreeAsync", cudaFreeAsync(bytes, all_.stream)));
    return AwaitEnd(all_, deadline);
  }

  // The same for sums: NCCL connects a ring, and allocates, when it is first used.
  absl::Status WarmCollectives(const Group& group, absl::Time deadline) const {
    void* number = nullptr;
    RETURN_IF_ERROR(Cuda("cudaMallocAsync", cudaMallocAsync(&number, sizeof(float), group.stream)));
    RETURN_IF_ERROR(
        Nccl("ncclAllReduce",
             ncclAllReduce(number, number, 1, ncclFloat32, ncclSum, group.comm, group.stream),
             group.comm));
    RETURN_IF_ERROR(AwaitReady(group, deadline));
    RETURN_IF_ERROR(Cuda("cudaFreeAsync", cudaFreeAsync(number, group.stream)));
    return AwaitEnd(group, deadline);
  }

  // Until what is queued on the group's stream has ended.
  absl::Status AwaitEnd(const Group& group, absl::Time deadline) const {
    Event end(device_);
    end.Record(group.stream);
    RETURN_IF_ERROR(Cuda("cudaEventRecord", end.error()));
    for (Waiting waiting;; waiting.Pause()) {
      const cudaError_t state = QueryEvent(end.get());
      if (state != cudaErrorNotReady) return Cuda("the first transfer between GPUs", state);
      RETURN_IF_ERROR(CheckAsync(group));
      RETURN_IF_ERROR(MayWait(deadline));
    }
  }

  // Stops NCCL's kernels.
  void Abort(Group& group) const {
    const CurrentGpu current(device_);
    if (group.comm != nullptr) ncclCommAbort(group.comm);
    group.comm = nullptr;
  }

  // After Abort: once the stream is empty nothing touches anybody's memory.
  void Close(Group& group) {
    if (group.stream != nullptr) {
      cudaStreamSynchronize(group.stream);
      cudaStreamDestroy(group.stream);
    }
    group = Group{};
  }

  const int device_;
  const std::function<void*()> stream_;
  int self_ = 0;
  Group all_;
  Group outside_;  // NCCL writes there for lists without this device, also after an interruption.
  std::set<std::vector<int>> known_;  // Lists that were opened, also those without this device.
  std::map<std::vector<int>, Group> reducing_;  // By list.
  std::list<UnderWay> under_way_;
  uint64_t last_ = 0;
  std::atomic<int64_t> interrupted_at_ = std::numeric_limits<int64_t>::max();  // Unix ns.
};

}  // namespace

absl::Status NcclUsable() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    return absl::FailedPreconditionError(
        absl::StrCat("no GPU that CUDA can use: ", cudaGetErrorString(error)));
  }
  if (count == 0) return absl::FailedPreconditionError("no GPU that CUDA can use");
  return absl::OkStatus();
}

bool GpusMayBeShared() {
  const char* wanted = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  if (wanted == nullptr || std::strcmp(wanted, "1") != 0) return false;
  return NcclVersion() >= NCCL_VERSION(2, 30, 0);
}

int NcclVersion() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

absl::StatusOr<std::unique_ptr<DeviceMover>> MakeNcclMover(const NcclOptions& options) {
  RETURN_IF_ERROR(NcclUsable());
  int count = 0;
  RETURN_IF_ERROR(Cuda("cudaGetDeviceCount", cudaGetDeviceCount(&count)));
  if (options.cuda_device < 0 || options.cuda_device >= count) {
    return absl::InvalidArgumentError(
        absl::StrCat("no GPU ", options.cuda_device, ": there are ", count));
  }
  return std::make_unique<NcclMover>(options);
}

absl::StatusOr<std::string> AcceleratorName(int cuda_device) {
  cudaDeviceProp properties;
  RETURN_IF_ERROR(
      Cuda("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, cuda_device)));
  std::string name = absl::StrCat(
      "GPU-", absl::BytesToHexString({properties.uuid.bytes, sizeof(properties.uuid.bytes)}));
  if (GpusMayBeShared()) {
    std::random_device random;
    absl::StrAppend(&name, "/", absl::Hex(random(), absl::kZeroPad8),
                    absl::Hex(random(), absl::kZeroPad8));
  }
  return name;
}

absl::StatusOr<RoutingOptions> WithNccl(const NcclOptions& nccl, RoutingOptions options) {
  ASSIGN_OR_RETURN(options.mover, MakeNcclMover(nccl));
  ASSIGN_OR_RETURN(options.accelerator, AcceleratorName(nccl.cuda_device));
  return options;
}

}  // namespace stagewright
