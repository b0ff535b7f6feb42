#include "tests/worker_daemon/support/simulated_accelerator.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "tests/worker_daemon/support/tested_accelerator.h"

namespace stagewright::testing {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
constexpr c10::DeviceIndex kDevices = 2;
constexpr unsigned char kPoison = 0xff;  // In any floating-point type: not a number.

// Runs functions one after the other. As long as the process.
class Queue {
 public:
  Queue() {
    std::thread([this] { Run(); }).detach();
  }

  void Push(std::function<void()> function) {
    absl::MutexLock lock(&mutex_);
    functions_.push_back(std::move(function));
    ++pushed_;
  }

  bool Idle() {
    absl::MutexLock lock(&mutex_);
    return done_ == pushed_;
  }

  void Synchronize() {
    absl::MutexLock lock(&mutex_);
    const int64_t until = pushed_;
    const auto passed = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return done_ >= until; };
    mutex_.Await(absl::Condition(&passed));
  }

 private:
  void Run() {
    const auto woken = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !functions_.empty(); };
    for (;;) {
      std::function<void()> next;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(&woken));
        next = std::move(functions_.front());
        functions_.pop_front();
      }
      next();
      next = nullptr;
      absl::MutexLock lock(&mutex_);
      ++done_;
    }
  }

  absl::Mutex mutex_;
  std::deque<std::function<void()>> functions_ ABSL_GUARDED_BY(mutex_);
  int64_t pushed_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Stream 0 of a device is its default one.
class Queues {
 public:
  static Queues& Get() {
    static auto* const queues = new Queues;
    return *queues;
  }

  Queue& Of(const c10::Stream& stream) {
    absl::MutexLock lock(&mutex_);
    std::unique_ptr<Queue>& queue = queues_[{stream.device_index(), stream.id()}];
    if (queue == nullptr) queue = std::make_unique<Queue>();
    return *queue;
  }

  c10::Stream New(c10::Device device) {
    absl::MutexLock lock(&mutex_);
    return c10::Stream(c10::Stream::UNSAFE, device, ++last_);
  }

  std::vector<Queue*> OfDevice(c10::DeviceIndex device) {
    absl::MutexLock lock(&mutex_);
    std::vector<Queue*> found;
    for (const auto& [key, queue] : queues_) {
      if (key.first == device) found.push_back(queue.get());
    }
    return found;
  }

 private:
  absl::Mutex mutex_;
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, std::unique_ptr<Queue>> queues_
      ABSL_GUARDED_BY(mutex_);
  c10::StreamId last_ ABSL_GUARDED_BY(mutex_) = 0;
};

std::array<std::atomic<int32_t>, kDevices> broken = {};
std::atomic<size_t> largest = 0;

void CheckWorks(c10::DeviceIndex device) {
  const int32_t error = broken.at(static_cast<size_t>(device));
  if (error == 0) return;
  throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, error,
                              absl::StrCat("simulated error ", error, "\nadvice for people"));
}

thread_local c10::DeviceIndex current_device = 0;
thread_local std::array<c10::StreamId, kDevices> current_streams = {};

c10::Stream CurrentOf(c10::Device device) {
  const c10::DeviceIndex index = device.index() < 0 ? current_device : device.index();
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, index), current_streams[index]);
}

// What an event stands for: the last of the places that it was recorded at.
struct Places {
  absl::Mutex mutex;
  std::chrono::steady_clock::time_point passed_at ABSL_GUARDED_BY(mutex);
  int64_t recorded ABSL_GUARDED_BY(mutex) = 0;
  int64_t passed ABSL_GUARDED_BY(mutex) = 0;

  void Await(int64_t place) {
    absl::MutexLock lock(&mutex);
    const auto is_passed = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return passed >= place; };
    mutex.Await(absl::Condition(&is_passed));
  }
  int64_t last() {
    absl::MutexLock lock(&mutex);
    return recorded;
  }
};
using Event = std::shared_ptr<Places>;

int64_t RecordOn(const Event& event, const c10::Stream& stream) {
  int64_t place = 0;
  {
    absl::MutexLock lock(&event->mutex);
    place = ++event->recorded;
  }
  Queues::Get().Of(stream).Push([event, place] {
    absl::MutexLock lock(&event->mutex);
    event->passed = std::max(event->passed, place);
    event->passed_at = std::chrono::steady_clock::now();
  });
  return place;
}

void BlockOn(const Event& event, int64_t place, const c10::Stream& stream) {
  Queues::Get().Of(stream).Push([event, place] { event->Await(place); });
}

// A block of memory of a stream.
struct Block {
  explicit Block(size_t size)
      : bytes(size), memory(std::malloc(size)), stream(CurrentOf({kType, current_device})) {
    std::memset(memory, kPoison, bytes);
  }

  void FreeInOrder() {
    std::set<std::pair<c10::DeviceIndex, c10::StreamId>> others;
    {
      absl::MutexLock lock(&mutex);
      others = readers;
    }
    for (const auto& [device, id] : others) {
      const auto event = std::make_shared<Places>();
      const c10::Stream reader(c10::Stream::UNSAFE, c10::Device(kType, device), id);
      BlockOn(event, RecordOn(event, reader), stream);
    }
    Queues::Get().Of(stream).Push([this] {
      std::memset(memory, kPoison, bytes);
      std::free(memory);
      delete this;
    });
  }

  const size_t bytes;
  void* const memory;
  const c10::Stream stream;
  absl::Mutex mutex;
  std::set<std::pair<c10::DeviceIndex, c10::StreamId>> readers ABSL_GUARDED_BY(mutex);
};

void Delete(void* block) {
  if (block != nullptr) static_cast<Block*>(block)->FreeInOrder();
}

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(kType, current_device);
    if (bytes == 0) return {nullptr, nullptr, &Delete, device};
    TORCH_CHECK_WITH(OutOfMemoryError, largest == 0 || bytes <= largest, "simulated: no ", bytes,
                     " bytes");
    auto* const block = new Block(bytes);
    return {block->memory, block, &Delete, device};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};
Allocator allocator;

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    current_device = device.index();
    return before;
  }
  c10::Device getDevice() const override { return {kType, current_device}; }
  void setDevice(c10::Device device) const override { current_device = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    current_device = device.index();
  }
  c10::Stream getStream(c10::Device device) const override { return CurrentOf(device); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return Queues::Get().New(device);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return Queues::Get().New(device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = CurrentOf(stream.device());
    current_streams[stream.device_index()] = stream.id();
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return &Queues::Get().Of(stream);
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    CheckWorks(stream.device_index());
    if (*event == nullptr) *event = new Event(std::make_shared<Places>());
    RecordOn(*static_cast<Event*>(*event), stream);
  }
  void block(void* event, const c10::Stream& stream) const override {
    CheckWorks(stream.device_index());
    if (event == nullptr) return;
    const Event& recorded = *static_cast<Event*>(event);
    BlockOn(recorded, recorded->last(), stream);
  }
  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    Places& places = **static_cast<Event*>(event);
    absl::MutexLock lock(&places.mutex);
    return places.passed >= places.recorded;
  }
  // In milliseconds.
  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const override {
    return std::chrono::duration<double, std::milli>(PassedAt(to) - PassedAt(from)).count();
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    Places& places = **static_cast<Event*>(event);
    places.Await(places.last());
  }
  bool queryStream(const c10::Stream& stream) const override {
    CheckWorks(stream.device_index());
    return Queues::Get().Of(stream).Idle();
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    CheckWorks(stream.device_index());
    Queues::Get().Of(stream).Synchronize();
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    for (Queue* queue : Queues::Get().OfDevice(device)) queue->Synchronize();
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    if (data.get_deleter() != &Delete || data.get_context() == nullptr) return;
    auto* const block = static_cast<Block*>(data.get_context());
    if (stream == block->stream) return;
    absl::MutexLock lock(&block->mutex);
    block->readers.insert({stream.device_index(), stream.id()});
  }

 private:
  static std::chrono::steady_clock::time_point PassedAt(void* event) {
    Places& places = **static_cast<Event*>(event);
    absl::MutexLock lock(&places.mutex);
    return places.passed_at;
  }
};

struct Hooks final : public at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return current_device; }
};

void SleepSomewhat() {
  thread_local std::minstd_rand random(
      static_cast<unsigned>(std::hash<std::thread::id>()(std::this_thread::get_id())));
  if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
}

// The raw memory of a tensor, which does not keep it.
at::Tensor RawView(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       at::TensorOptions(tensor.scalar_type()));
}

// What an operator gives is there when its copy is, but the host does not wait for that.
thread_local bool in_operator = false;

at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (to.numel() == 0) return to;
  const bool out = from.device().type() == kType;
  const c10::Stream stream = CurrentOf(out ? from.device() : to.device());
  CheckWorks(stream.device_index());
  const bool across = out && to.device().type() == kType && to.device() != from.device();
  const auto event = std::make_shared<Places>();
  if (across) BlockOn(event, RecordOn(event, CurrentOf(to.device())), stream);
  const bool result = in_operator && !out;
  at::Tensor source = result ? from : RawView(from);
  Queues::Get().Of(stream).Push([source = std::move(source), target = RawView(to)]() mutable {
    const at::NoGradGuard no_grad;
    SleepSomewhat();
    target.copy_(source);
  });
  if (across) {
    BlockOn(event, RecordOn(event, stream), CurrentOf(to.device()));
  } else if (!result && !non_blocking && !(out && to.device().type() == kType)) {
    Queues::Get().Of(stream).Synchronize();
    return to;
  }
  return to;
}

at::Tensor CopyFromAndResize(const at::Tensor& from, const at::Tensor& to) {
  if (from.sizes() != to.sizes()) to.resize_(from.sizes());
  return CopyFrom(from, to, false);
}

at::Tensor Empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard on(device.has_value() && device->has_index() ? device
                                                                              : std::nullopt);
  return at::Tensor(at::detail::empty_generic(sizes, &allocator,
                                              c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                              type.value_or(at::kFloat), format));
}

at::Tensor EmptyStrided(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                        std::optional<at::ScalarType> type, std::optional<at::Layout>,
                        std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard on(device.has_value() && device->has_index() ? device
                                                                              : std::nullopt);
  return at::Tensor(at::detail::empty_strided_generic(
      sizes, strides, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      type.value_or(at::kFloat)));
}

void Fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const absl::Cleanup ends = [before = std::exchange(in_operator, true)] { in_operator = before; };
  at::native::cpu_fallback(op, stack);
}

const bool registered = [] {
  c10::register_privateuse1_backend("simulated");
  c10::impl::registerDeviceGuard(kType, new Guard);
  c10::SetAllocator(kType, &allocator);
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &Empty);
  library.impl("empty_strided", &EmptyStrided);
  library.impl("_copy_from", &CopyFrom);
  library.impl("_copy_from_and_resize", &CopyFromAndResize);
  library.impl("view", &at::native::view);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("resize_", &at::native::resize_);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&Fallback>());
}

void QueueOn(const c10::Stream& stream, std::function<void()> function) {
  Queues::Get().Of(stream).Push(std::move(function));
}

absl::StatusOr<std::string> TestedAccelerator(int n) {
  return absl::StrCat("simulated:", n % kDevices);
}

void Break(c10::DeviceIndex device, int32_t error) {
  broken.at(static_cast<size_t>(device)) = error;
}

void LimitAllocations(size_t bytes) { largest = bytes; }

struct Hold::State {
  absl::Mutex mutex;
  bool over ABSL_GUARDED_BY(mutex) = false;
};

Hold::Hold(const c10::Stream& stream) : state_(std::make_shared<State>()) {
  QueueOn(stream, [state = state_] {
    absl::MutexLock lock(&state->mutex);
    state->mutex.Await(absl::Condition(&state->over));
  });
}

Hold::~Hold() {
  absl::MutexLock lock(&state_->mutex);
  state_->over = true;
}

}  // namespace stagewright::testing
