#include "worker_daemon/device/device_streams.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <deque>
#include <map>
#include <thread>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "worker_daemon/torch/torch_guard.h"

namespace stagewright {
namespace {

using Event = std::shared_ptr<c10::Event>;

// Streams of a device, and those that nobody uses: what LibTorch's allocator keeps for a stream is
// of use to the next one who has it.
struct Streams {
  c10::Stream compute, out, in;
};

class StreamPool {
 public:
  static StreamPool& Get() {
    static auto* const pool = new StreamPool;
    return *pool;
  }

  Streams Take(at::Device device) {
    absl::MutexLock lock(&mutex_);
    std::vector<Streams>& free = free_[{device.type(), device.index()}];
    if (free.empty()) {
      const c10::impl::VirtualGuardImpl guard(device.type());
      const auto next = [&] { return guard.getStreamFromGlobalPool(device); };
      return {next(), next(), next()};
    }
    const Streams streams = free.back();
    free.pop_back();
    return streams;
  }

  void Give(at::Device device, const Streams& streams) {
    absl::MutexLock lock(&mutex_);
    free_[{device.type(), device.index()}].push_back(streams);
  }

 private:
  absl::Mutex mutex_;
  std::map<std::pair<at::DeviceType, at::DeviceIndex>, std::vector<Streams>> free_
      ABSL_GUARDED_BY(mutex_);
};

// Reports events of one stream in their order.
class Watcher {
 public:
  explicit Watcher(at::Device device) : thread_([this, device] { Run(device); }) {}
  ~Watcher() {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    thread_.join();
  }

  // Lets go of `kept` when the event has been passed, and then calls `done`, which may be null.
  void Add(Event event, std::function<at::Tensor()> kept, at::Tensor host,
           DeviceStreams::Done done) {
    absl::MutexLock lock(&mutex_);
    entries_.push_back({std::move(event), std::move(kept), std::move(host), std::move(done)});
  }

 private:
  struct Entry {
    Event event;
    std::function<at::Tensor()> kept;
    at::Tensor host;
    DeviceStreams::Done done;
  };

  // The device's own way to wait keeps a core busy, perhaps for the whole of a pass.
  static void AwaitEvent(const c10::Event& event) {
    using std::chrono::microseconds;
    const auto begin = std::chrono::steady_clock::now();
    while (!event.query()) {
      if (std::chrono::steady_clock::now() - begin < microseconds(20)) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(microseconds(10));
      }
    }
  }

  void Run(at::Device device) {
    // What lets go of an event makes the thread's device current, one that nobody uses perhaps.
    // A device that fails says so where it is used.
    static_cast<void>(
        Guarded([&] { c10::impl::VirtualGuardImpl(device.type()).setDevice(device); }));
    const auto woken = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || !entries_.empty();
    };
    for (;;) {
      Entry entry;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(&woken));
        if (entries_.empty()) return;
        entry = std::move(entries_.front());
        entries_.pop_front();
      }
      absl::Status status = Guarded([&] { AwaitEvent(*entry.event); });
      entry.kept = nullptr;
      if (entry.done) entry.done(std::move(status));
    }
  }

  absl::Mutex mutex_;
  std::deque<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

void Block(const DeviceStreams::Mark& mark, const c10::Stream& stream) {
  if (mark != nullptr) static_cast<const c10::Event*>(mark.get())->block(stream);
}

// On what LibTorch offers for all kinds of devices, so that it is compiled everywhere.
class TorchStreams : public DeviceStreams {
 public:
  explicit TorchStreams(at::Device device)
      : device_(device),
        guard_(device.type()),
        streams_(StreamPool::Get().Take(device)),
        out_(device),
        in_(device) {}
  ~TorchStreams() override { StreamPool::Get().Give(device_, streams_); }

  std::optional<c10::Stream> compute() const override { return streams_.compute; }

  Mark Record() override { return RecordOn(streams_.compute); }

  void Await(const Mark& mark) override { Block(mark, streams_.compute); }

  void QueueOut(const Mark& after, const std::function<void()>& work) override {
    const c10::StreamGuard on_out(streams_.out);
    Block(after, streams_.out);
    work();
  }

  void QueueIn(Bytes bytes, const std::function<void(at::Tensor)>& work) override {
    const c10::StreamGuard on_in(streams_.in);
    at::Tensor memory =
        at::empty({bytes.count()}, at::TensorOptions().device(device_).dtype(at::kByte));
    KeepFor(memory, streams_.compute);
    work(std::move(memory));
  }

  void CopyOut(const Mark& after, std::function<at::Tensor()> make, at::Tensor host,
               Done done) override {
    const c10::StreamGuard on_out(streams_.out);
    Block(after, streams_.out);
    host.copy_(make(), /*non_blocking=*/true);
    out_.Add(RecordOn(streams_.out), std::move(make), std::move(host), std::move(done));
  }

  Arrived CopyIn(at::Tensor host) override {
    const c10::StreamGuard on_in(streams_.in);
    at::Tensor tensor = at::empty(host.sizes(), host.options().device(device_));
    tensor.copy_(host, /*non_blocking=*/true);
    KeepFor(tensor, streams_.compute);
    const Event ready = RecordOn(streams_.in);
    in_.Add(ready, nullptr, std::move(host), nullptr);
    return {{std::move(tensor)}, ready};
  }

  Arrived Adopt(std::vector<at::Tensor> tensors, const Mark& made) override {
    bool copies = false;
    for (at::Tensor& tensor : tensors) {
      if (!tensor.defined()) continue;
      if (tensor.device() != device_) {
        tensor = CopyFrom(tensor, made);
        copies = true;
      }
      KeepFor(tensor, streams_.compute);
    }
    if (!copies) return {std::move(tensors), made};
    return {std::move(tensors), RecordOn(streams_.in)};
  }

 private:
  Event RecordOn(const c10::Stream& stream) const {
    auto event = std::make_shared<c10::Event>(device_.type());
    event->record(stream);
    return event;
  }

  // Its memory is not used again before what is on the stream when it is freed has run.
  void KeepFor(const at::Tensor& tensor, const c10::Stream& stream) const {
    if (tensor.numel() > 0) guard_.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
  }

  // LibTorch queues copies between accelerators where the thread queues on the source, and makes
  // the stream on this side wait for them.
  at::Tensor CopyFrom(const at::Tensor& tensor, const Mark& made) const {
    const c10::StreamGuard on_in(streams_.in);
    if (tensor.device().type() == device_.type()) {
      const c10::Stream there = guard_.getStream(tensor.device());
      Block(made, there);
      KeepFor(tensor, there);
    }
    return tensor.to(device_, /*non_blocking=*/true);
  }

  const at::Device device_;
  const c10::impl::VirtualGuardImpl guard_;
  const Streams streams_;
  Watcher out_, in_;  // The last to be made and the first to go.
};

}  // namespace

std::unique_ptr<DeviceStreams> MakeDeviceStreams(at::Device device) {
  return std::make_unique<TorchStreams>(device);
}

}  // namespace stagewright
