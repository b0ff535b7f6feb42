// How the devices of one job move raw memory to one another: tagged, asynchronous messages.
//
// A Transport belongs to one device taking part in one *generation* of a job. Its life:
//   1. create it, and give Address() to the others (through the planner);
//   2. Connect() to every device it will exchange messages with: this warms all edges;
//   3. Send() and Receive() in any order, from any thread;
//   4. Abort() when anything went wrong anywhere, then destroy it. A transport is never repaired:
//      the next generation of the job uses new ones.
//
// Messages. A Receive matches the Send of that peer which has an equal tag; among equal tags, in
// the order of posting. Both ends state the size, and a receiver that expected another size fails
// with INVALID_ARGUMENT naming both sizes. Empty messages are legal. The memory must stay valid
// (and, for Receive, untouched) until the operation is done. That a Send is done means its memory
// may be reused, not that the peer has received it.
//
// Completion. `done` is called exactly once for each operation, from a thread of the transport or
// one that does its work (Help, Batch), never from within Send, Receive or Abort. It may start
// further operations or call Abort. It must not block, nor take a lock that a caller of Help or an
// owner of a Batch holds, and must not destroy the transport.
//
// Failure. When a peer dies, every operation with it fails with UNAVAILABLE naming the device,
// within a few seconds; other peers are not affected. After Abort(status) every operation, pending
// or new, fails with that status, and every connected peer sees this device as gone. No operation
// has a deadline of its own: who waits has one, and aborts the transport when it passes (see
// Completion in completion.h), because memory may only be reused once the operation is done.
//
// Memory. Send and Receive of a Transport take host memory. Two other kinds have a way of their
// own, which a transport may or may not offer, for some peers or all: ForDeviceMemory() is a
// transport for the memory of accelerators, ByReference() hands objects over without a copy. Both
// ends of an edge get the same answer, and messages of one way never meet those of another, so a
// program that asks at both ends cannot mix them up.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker_daemon/transport/collective.h"
#include "worker_daemon/transport/tag.h"

namespace stagewright {

// The error of a message whose ends disagree on its size.
absl::Status SizeMismatch(int sender, int receiver, const Tag& tag, size_t sent, size_t expected);

class ReferenceTransport;

class Transport {
 public:
  static constexpr int kMaxDevice = (1 << 12) - 1;
  using Done = std::function<void(absl::Status)>;

  struct Peer {
    int device = 0;
    std::string address;  // The peer's Address().
    // Whether messages go to it or come from it, which the peer knows, too: others are connected
    // only for what all do together, and a message between them takes long the first time.
    bool talks = true;
  };

  virtual ~Transport() = default;

  // The device this transport speaks for, in 0..kMaxDevice.
  virtual int device() const = 0;

  // Opaque bytes by which peers of the same job and generation reach this transport.
  virtual std::string Address() const = 0;

  // Connects to `peers` and waits until each edge has carried a message both ways, so all peers
  // must connect to each other at about the same time. Call it once.
  // Errors: INVALID_ARGUMENT for an address of another device, job or generation;
  // DEADLINE_EXCEEDED naming the peers that did not answer; UNAVAILABLE naming a lost peer. After
  // an error the transport is of no use other than to be destroyed.
  virtual absl::Status Connect(const std::vector<Peer>& peers, absl::Time deadline) = 0;

  // Start a transfer; see above. An operation with a device that is not connected fails with
  // INVALID_ARGUMENT.
  virtual void Send(int peer, Tag tag, const void* data, size_t bytes, Done done) = 0;
  virtual void Receive(int peer, Tag tag, void* data, size_t bytes, Done done) = 0;

  // Fails all operations with `status` (CANCELLED if it is OK): returns at once, and they are done
  // shortly after. Only the first call has an effect. Safe from any thread.
  virtual void Abort(absl::Status status) = 0;

  // While one lives, what its thread starts may wait for its end, where that thread begins all of
  // it: no other has to be woken for that. One at a time on a thread.
  class Batch {
   public:
    explicit Batch(Transport& transport) : transport_(transport) { transport_.Hold(); }
    ~Batch() { transport_.Release(); }
    Batch(const Batch&) = delete;

   private:
    Transport& transport_;
  };

  virtual void Hold() {}     // Begins a Batch.
  virtual void Release() {}  // Ends it.

  // For a thread that waits for `ready` and has nothing else to do: does the work of the
  // transport's own threads, which need not be woken for it. Returns when `ready` holds, or when it
  // has lasted so long that the caller had better sleep.
  virtual void Help(absl::FunctionRef<bool()> ready);

  // The transport whose Send and Receive take memory of the accelerators at both ends, if there is
  // one for all of `devices` (this one may be among them); null otherwise, and then the ends stage
  // through host memory. Owned by this transport and aborted with it, as this is with it. After
  // Connect.
  virtual Transport* ForDeviceMemory(const std::vector<int>& devices) { return nullptr; }

  // The way to hand objects to `peer` by reference; null if it is in another process. Owned by this
  // transport. After Connect.
  virtual ReferenceTransport* ByReference(int peer) { return nullptr; }

  // Makes RunCollective possible among each of `lists` (and leaves those of before). Every device
  // that this one is connected to calls it as well, with equal lists in an equal order, also if it
  // is in none of them, and no transfer is under way meanwhile. Connections are made here, so that
  // none is made in the middle of a step. Host memory needs nothing: OK. Errors: those of Connect.
  virtual absl::Status OpenCollectives(const std::vector<std::vector<int>>& lists,
                                       absl::Time deadline) {
    return absl::OkStatus();
  }

  // Whether RunCollective works; AllReduceSum and its halves (all_reduce.h) use it then.
  virtual bool reduces() const { return false; }

  // Replaces the elements at `data` by what `collective` gives over `devices`, as all_reduce.h
  // says; all of them call it with equal arguments. FAILED_PRECONDITION unless `devices` was among
  // the lists of OpenCollectives. CHECK-fails unless reduces().
  virtual void RunCollective(Collective collective, const std::vector<int>& devices, Tag tag,
                             void* data, size_t count, Element element, Done done);
};

}  // namespace stagewright
