// In which order the devices of a job move data when what moves it (NCCL) knows no tags and blocks.
//
// A communicator of NCCL runs what a device gives it one group after the other, and a group waits
// for its counterparts at the other devices. If each device chose its order by itself, two of them
// (or a ring of more) could wait for one another for ever. So one of them, the arranger's, is told
// every operation, pairs sends with receives by their tags, and puts the pairs into *rounds*, which
// are numbered; each device starts its parts of the rounds in that order.
//
// Why that cannot deadlock. In a round a device has at most one send and one receive, which are
// started as one group and run at the same time, or one reduction. Take the first round with
// something unfinished, and in it any transfer: at both of its ends all earlier rounds are over,
// and both have been told, so that both run it. Hence it ends. Nothing ever waits for a later
// round, whatever order the operations were posted in.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "worker_daemon/transport/transport.h"

namespace stagewright {

// An operation that a device wants to do.
struct TransferOffer {
  enum class Kind : uint32_t { kSend, kReceive, kReduce };

  Kind kind = Kind::kSend;
  int device = 0;
  uint64_t id = 0;  // Chosen by the device, another one for each of its offers.
  int peer = 0;     // The other end of a send or receive.
  Tag tag;
  uint64_t bytes = 0;
  // Which devices a reduction has, as a number that stands for the list, and how many.
  uint64_t group = 0;
  uint32_t members = 0;
  uint32_t element = 0;
};

// That a device is to start one of its operations, or to fail it.
struct TransferOrder {
  int device = 0;
  uint64_t id = 0;  // As in the offer.
  // Orders of a device with equal rounds are started together. They come one after the other.
  uint64_t round = 0;
  bool last_of_round = true;
  // If the ends disagree: what the sender offers and the receiver (or the other member) expects.
  bool mismatch = false;
  uint64_t offered = 0;
  uint64_t expected = 0;
};

// Not thread-safe. A message takes O(log of what waits).
class Arranger {
 public:
  void Add(TransferOffer offer);

  // The orders that have become due, by round; of one device, in the order in which it must follow
  // them. Every matched operation appears once.
  std::vector<TransferOrder> Take();

 private:
  using PairKey = std::tuple<int, int, Tag>;             // Sender, receiver, tag.
  using GroupKey = std::tuple<uint64_t, uint32_t, Tag>;  // List, members, tag.
  struct Waiting {
    std::deque<TransferOffer> sends;
    std::deque<TransferOffer> receives;
  };
  struct Match {
    std::vector<TransferOffer> parts;  // A send and a receive, or all of a reduction.
    bool mismatch = false;
  };

  void AddReduction(TransferOffer offer);

  std::map<PairKey, Waiting> pairs_;
  // One entry for each member that has come: several reductions of equal tags may be under way.
  std::map<GroupKey, std::map<int, std::deque<TransferOffer>>> groups_;
  std::vector<Match> matches_;
  uint64_t next_round_ = 1;
};

}  // namespace stagewright
