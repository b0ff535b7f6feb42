#include "worker_daemon/transport/all_reduce.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "worker_daemon/transport/completion.h"

namespace stagewright {
namespace {

constexpr size_t kSegmentBytes = size_t{1} << 20;

float FromBFloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

uint16_t ToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40);  // Stay a quiet NaN.
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <typename T>
void AddAs(char* sum, const char* term, size_t count) {
  T* const a = reinterpret_cast<T*>(sum);
  const T* const b = reinterpret_cast<const T*>(term);
  for (size_t i = 0; i < count; ++i) a[i] += b[i];
}

void AddFloat16(char* sum, const char* term, size_t count) {
  _Float16* const a = reinterpret_cast<_Float16*>(sum);
  const _Float16* const b = reinterpret_cast<const _Float16*>(term);
  for (size_t i = 0; i < count; ++i) {
    a[i] = static_cast<_Float16>(static_cast<float>(a[i]) + static_cast<float>(b[i]));
  }
}

void AddBFloat16(char* sum, const char* term, size_t count) {
  uint16_t* const a = reinterpret_cast<uint16_t*>(sum);
  const uint16_t* const b = reinterpret_cast<const uint16_t*>(term);
  for (size_t i = 0; i < count; ++i) a[i] = ToBFloat16(FromBFloat16(a[i]) + FromBFloat16(b[i]));
}

void Add(Element element, char* sum, const char* term, size_t count) {
  switch (element) {
    case Element::kFloat64:
      return AddAs<double>(sum, term, count);
    case Element::kFloat32:
      return AddAs<float>(sum, term, count);
    case Element::kFloat16:
      return AddFloat16(sum, term, count);
    case Element::kBFloat16:
      return AddBFloat16(sum, term, count);
  }
}

struct Range {
  size_t begin = 0;  // Bytes.
  size_t end = 0;
};

// One collective of one device, which has place `rank` of `size` in the ring. Step s sends chunk
// first - s and receives chunk first - s - 1 (mod size): what it received in a step it sends in the
// next. In the first steps, as many as add, what arrives is added, in the others it replaces. A
// reduce-scatter begins one chunk earlier than an all-reduce, so that it ends with that of the
// device.
class Ring {
 public:
  Ring(Transport& transport, const std::vector<int>& devices, int rank, Collective collective,
       Tag tag, char* data, size_t count, Element element, absl::Time deadline)
      : transport_(transport),
        size_(static_cast<int>(devices.size())),
        steps_((collective == Collective::kAllReduce ? 2 : 1) * (size_ - 1)),
        adding_steps_(collective == Collective::kAllGather ? 0 : size_ - 1),
        first_(collective == Collective::kReduceScatter ? rank - 1 : rank),
        next_(devices[(rank + 1) % size_]),
        previous_(devices[(rank + size_ - 1) % size_]),
        tag_(tag),
        data_(data),
        count_(count),
        element_(element),
        deadline_(deadline),
        scratch_bytes_(adding_steps_ == 0 ? 0 : (count / size_ + 1) * ElementSize(element)),
        scratch_(2 * scratch_bytes_) {}

  absl::Status Run() {
    absl::Status status = RunSteps();
    if (!status.ok()) transport_.Abort(status);
    // Whatever happened, on return nothing may touch the memory.
    for (const std::vector<Completion>& receives : receives_) {
      for (const Completion& receive : receives) status.Update(receive.Wait(transport_, deadline_));
    }
    for (const Completion& send : sends_) status.Update(send.Wait(transport_, deadline_));
    return status;
  }

 private:
  int steps() const { return steps_; }
  bool reduces(int step) const { return step < adding_steps_; }

  // The segments of the chunk that is received in `step`; that of step -1 is the first one sent.
  std::vector<Range> Segments(int step) const {
    const size_t chunk = static_cast<size_t>((first_ - step - 1 + 3 * size_) % size_);
    const size_t width = ElementSize(element_);
    const size_t begin = (count_ / size_ * chunk + std::min(chunk, count_ % size_)) * width;
    const size_t elements = count_ / size_ + (chunk < count_ % size_ ? 1 : 0);
    const size_t end = begin + elements * width;
    std::vector<Range> segments;
    for (size_t at = begin; at < end; at += kSegmentBytes) {
      segments.push_back({at, std::min(end, at + kSegmentBytes)});
    }
    return segments;
  }

  // Additions need the old value beside the new one, and the chunk of the step before may still
  // be waiting to be added: two scratch buffers take turns.
  char* Target(int step, const std::vector<Range>& segments, size_t index) {
    if (!reduces(step)) return data_ + segments[index].begin;
    return scratch_.data() + (step % 2) * scratch_bytes_ +
           (segments[index].begin - segments[0].begin);
  }

  void PostReceives(int step) {
    const std::vector<Range> segments = Segments(step);
    std::vector<Completion>& receives = receives_[step % 2];
    receives = std::vector<Completion>(segments.size());
    for (size_t i = 0; i < segments.size(); ++i) {
      transport_.Receive(previous_, tag_, Target(step, segments, i),
                         segments[i].end - segments[i].begin, receives[i].Callback());
    }
  }

  void Send(const Range& segment) {
    transport_.Send(next_, tag_, data_ + segment.begin, segment.end - segment.begin,
                    sends_.emplace_back().Callback());
  }

  absl::Status RunSteps() {
    {
      const Transport::Batch batch(transport_);
      PostReceives(0);
      for (const Range& segment : Segments(-1)) Send(segment);
    }
    for (int step = 0; step < steps(); ++step) {
      if (step + 1 < steps()) PostReceives(step + 1);
      const std::vector<Range> segments = Segments(step);
      for (size_t i = 0; i < segments.size(); ++i) {
        RETURN_IF_ERROR(receives_[step % 2][i].Wait(transport_, deadline_));
        if (reduces(step)) {
          Add(element_, data_ + segments[i].begin, Target(step, segments, i),
              (segments[i].end - segments[i].begin) / ElementSize(element_));
        }
        if (step + 1 < steps()) Send(segments[i]);
      }
    }
    return absl::OkStatus();
  }

  Transport& transport_;
  const int size_;
  const int steps_;
  const int adding_steps_;
  const int first_;  // The chunk that is sent first.
  const int next_;
  const int previous_;
  const Tag tag_;
  char* const data_;
  const size_t count_;
  const Element element_;
  const absl::Time deadline_;
  const size_t scratch_bytes_;
  std::vector<char> scratch_;
  std::vector<Completion> receives_[2];  // Those of even and of odd steps.
  std::vector<Completion> sends_;
};

const char* NameOf(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "all-reduce";
    case Collective::kReduceScatter:
      return "reduce-scatter";
    case Collective::kAllGather:
      return "all-gather";
  }
  return "";
}

absl::Status Run(Collective collective, Transport& transport, const std::vector<int>& devices,
                 Tag tag, void* data, size_t count, Element element, absl::Time deadline) {
  const auto self = std::find(devices.begin(), devices.end(), transport.device());
  if (self == devices.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(collective), ": device ", transport.device(), " is not in the list"));
  }
  if (std::set<int>(devices.begin(), devices.end()).size() != devices.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(collective), ": a device is twice in the list"));
  }
  CHECK(collective == Collective::kAllReduce || count % devices.size() == 0);
  if (devices.size() == 1 || count == 0) return absl::OkStatus();
  if (transport.reduces()) {
    Completion completion;
    transport.RunCollective(collective, devices, tag, data, count, element, completion.Callback());
    const absl::Status status = completion.Wait(transport, deadline);
    if (!status.ok()) transport.Abort(status);
    return status;
  }
  return Ring(transport, devices, static_cast<int>(self - devices.begin()), collective, tag,
              static_cast<char*>(data), count, element, deadline)
      .Run();
}

}  // namespace

absl::Status AllReduceSum(Transport& transport, const std::vector<int>& devices, Tag tag,
                          void* data, size_t count, Element element, absl::Time deadline) {
  return Run(Collective::kAllReduce, transport, devices, tag, data, count, element, deadline);
}

absl::Status ReduceScatterSum(Transport& transport, const std::vector<int>& devices, Tag tag,
                              void* data, size_t count, Element element, absl::Time deadline) {
  return Run(Collective::kReduceScatter, transport, devices, tag, data, count, element, deadline);
}

absl::Status AllGather(Transport& transport, const std::vector<int>& devices, Tag tag, void* data,
                       size_t count, Element element, absl::Time deadline) {
  return Run(Collective::kAllGather, transport, devices, tag, data, count, element, deadline);
}

}  // namespace stagewright
