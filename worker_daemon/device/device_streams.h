// The streams of an accelerator that one device of a job uses: one for compute, one for copies to
// the host and one for copies from it, so that copies run beside compute and nothing waits for the
// device but what needs a figure from it.
//
// The host never waits here. Copies are told when they have ended (CopyOut), or the compute stream
// waits for them on the device (Arrived::ready and Await). A Mark is a place in what was queued.
//
// The memory of what is queued. LibTorch's allocators give a block that is freed to whoever asks
// next on the stream that it was allocated on, in the order of that stream. So tensors of the
// compute stream that another stream reads are kept until that has passed, and tensors that other
// streams made for the compute stream are reported to the allocator.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StreamGuard.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/status.h"
#include "common/base/units.h"

namespace stagewright {

// Thread-safe. Functions throw what LibTorch throws, and then have had no effect.
class DeviceStreams {
 public:
  // Null: a place that has been passed.
  using Mark = std::shared_ptr<const void>;
  // Called once, on a thread of the streams; must not block.
  using Done = std::function<void(absl::Status)>;

  // Tensors on the device that the compute stream may use behind Await(ready).
  struct Arrived {
    std::vector<at::Tensor> tensors;
    Mark ready;
  };

  // Waits until all copies have ended and are reported.
  virtual ~DeviceStreams() = default;

  // Makes the compute stream the one that the calling thread queues on until it ends; scopes nest.
  // Null: no change.
  class Scope {
   public:
    explicit Scope(const DeviceStreams* streams)
        : guard_(streams == nullptr ? std::nullopt : streams->compute()) {}

   private:
    c10::OptionalStreamGuard guard_;
  };

  // The compute stream; nothing if the device has none to speak of.
  virtual std::optional<c10::Stream> compute() const = 0;

  // Behind all that is on the compute stream.
  virtual Mark Record() = 0;

  // What is queued on the compute stream from now on runs when the mark has been passed. The mark
  // may be one of another device's streams.
  virtual void Await(const Mark& mark) = 0;

  // Calls `work` at once; what it queues runs beside compute, on the stream of copies out, when
  // `after` has been passed. Tensors that it reads must live until that has run.
  virtual void QueueOut(const Mark& after, const std::function<void()>& work) = 0;

  // Memory for what another device sends, from the stream of copies in, so that it need not wait
  // for compute. Calls `work` with it at once; what that queues runs on that stream.
  virtual void QueueIn(Bytes bytes, const std::function<void(at::Tensor)>& work) = 0;

  // Copies what `make` returns to `host`, of the same type and size, when `after` has been passed.
  // `make` is called at once, and what it queues runs on the stream of copies out; it and what it
  // holds live until that has ended, and `host` until `done` returns. `done` gets INTERNAL if the
  // device failed.
  virtual void CopyOut(const Mark& after, std::function<at::Tensor()> make, at::Tensor host,
                       Done done) = 0;

  // Copies `host` to the device; keeps it until that has ended.
  virtual Arrived CopyIn(at::Tensor host) = 0;

  // Tensors, all in one memory, that another device of the process has handed over; what made them
  // ends at `made`. Copies them if they are in another memory.
  virtual Arrived Adopt(std::vector<at::Tensor> tensors, const Mark& made) = 0;
};

// Streams of an accelerator that LibTorch knows, from its pool: those of two objects at a time
// differ. Throws if LibTorch cannot use the device.
std::unique_ptr<DeviceStreams> MakeDeviceStreams(at::Device device);

}  // namespace stagewright
