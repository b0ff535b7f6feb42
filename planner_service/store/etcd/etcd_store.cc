#include "planner_service/store/etcd/etcd_store.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/failpoint.h"
#include "planner_service/store/checksum.h"
#include "planner_service/store/etcd/etcd_values.h"
#include "planner_service/store/prefix.h"

namespace stagewright {
namespace {

using etcdserverpb::KeyValue;

constexpr size_t kRequestBytes = size_t{1} << 20;  // The values of one transaction.
constexpr size_t kInlineBytes = size_t{1} << 18;   // Larger values are kept in pieces.
constexpr int64_t kKeysPage = 32'000;              // Keys read at once.
constexpr int kMostTries = 50;                     // To write what others change meanwhile.
// A transaction may have 128 operations, less those of transactions around it: nested twice, some
// ten thousand.
constexpr int kOperations = 40;

// A mutation, the last one of its key, as it is written.
struct NewEntry {
  const std::string* value = nullptr;  // The batch's; null: deleted.
  std::string entry;
  std::string pieces;  // Their id, if there are any.
};

using NewEntries = std::map<std::string, NewEntry>;  // By key.

// What etcd has under a key.
struct Present {
  int64_t revision = 0;  // 0: nothing.
  std::string entry;
};

// Puts operations side by side in transactions that are within the limit.
void Nest(std::vector<etcdserverpb::RequestOp> operations, etcdserverpb::TxnRequest& request) {
  while (operations.size() > kOperations) {
    std::vector<etcdserverpb::RequestOp> outer;
    for (size_t at = 0; at < operations.size(); at += kOperations) {
      etcdserverpb::TxnRequest& inner = *outer.emplace_back().mutable_request_txn();
      for (size_t i = at; i < std::min(at + kOperations, operations.size()); ++i)
        *inner.add_success() = std::move(operations[i]);
    }
    operations = std::move(outer);
  }
  for (etcdserverpb::RequestOp& operation : operations)
    *request.add_success() = std::move(operation);
}

class EtcdStore : public Store {
 public:
  EtcdStore(std::shared_ptr<EtcdClient> client, const std::string& prefix,
            std::optional<FencingToken> token)
      : client_(std::move(client)),
        entries_(absl::StrCat(prefix, "/entries/")),
        pieces_(absl::StrCat(prefix, "/pieces/")),
        token_(std::move(token)) {}

  absl::Status WriteIf(const std::vector<Condition>& conditions,
                       const std::vector<Mutation>& batch) override {
    if (batch.empty() && conditions.empty()) return absl::OkStatus();
    NewEntries writes;
    for (const Mutation& mutation : batch) {
      writes[mutation.key] = NewEntry{mutation.value.has_value() ? &*mutation.value : nullptr};
    }
    RETURN_IF_ERROR(Prepare(writes));
    bool unknown = false;
    const absl::Status status = Commit(conditions, writes, unknown);
    if (status.ok()) return status;
    if (unknown) return absl::DeadlineExceededError(status.message());
    // Those of a write that may have been done are swept by the next leader.
    for (const auto& [key, write] : writes) DropPieces(write.pieces).IgnoreError();
    return status;
  }

  absl::StatusOr<std::string> Read(const std::string& key) const override {
    etcdserverpb::RangeRequest request;
    request.set_key(entries_ + key);
    ASSIGN_OR_RETURN(const etcdserverpb::RangeResponse response, client_->Range(request));
    if (response.kvs().empty())
      return absl::NotFoundError(absl::StrCat("etcd: no entry \"", absl::CHexEscape(key), "\""));
    return ValueOf(key, response.kvs(0).value(), response.header().revision());
  }

  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> Scan(
      const std::string& prefix) const override {
    std::vector<std::pair<std::string, std::string>> found;
    RETURN_IF_ERROR(ForEach(entries_ + prefix, /*keys_only=*/false,
                            [&](const KeyValue& entry, int64_t revision) -> absl::Status {
                              std::string key = entry.key().substr(entries_.size());
                              ASSIGN_OR_RETURN(std::string value,
                                               ValueOf(key, entry.value(), revision));
                              found.emplace_back(std::move(key), std::move(value));
                              return absl::OkStatus();
                            }));
    return found;
  }

  absl::StatusOr<std::vector<std::string>> Keys(const std::string& prefix) const override {
    std::vector<std::string> keys;
    RETURN_IF_ERROR(ForEach(entries_ + prefix, /*keys_only=*/true,
                            [&](const KeyValue& entry, int64_t /*revision*/) {
                              keys.push_back(entry.key().substr(entries_.size()));
                              return absl::OkStatus();
                            }));
    return keys;
  }

  // Removes pieces that no entry names.
  absl::Status Sweep() {
    std::set<std::string> ids;
    RETURN_IF_ERROR(ForEach(pieces_, /*keys_only=*/true, [&](const KeyValue& piece, int64_t) {
      const std::string name = piece.key().substr(pieces_.size());
      ids.insert(name.substr(0, name.find('/')));
      return absl::OkStatus();
    }));
    if (ids.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(ForEach(entries_, /*keys_only=*/false, [&](const KeyValue& kv, int64_t) {
      if (auto entry = ParseEtcdEntry(kv.value()); entry.ok()) ids.erase(entry->pieces.id);
      return absl::OkStatus();
    }));
    for (const std::string& id : ids) RETURN_IF_ERROR(DropPieces(id));
    return absl::OkStatus();
  }

 private:
  static bool IsUnknown(const absl::Status& status) {
    return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
           absl::IsUnknown(status) || absl::IsInternal(status) || absl::IsCancelled(status);
  }

  // All entries that start with `prefix`, as they are at one moment.
  template <typename Visit>
  absl::Status ForEach(const std::string& prefix, bool keys_only, Visit visit) const {
    etcdserverpb::RangeRequest request;
    request.set_key(prefix);
    request.set_range_end(BehindPrefix(prefix));
    request.set_limit(keys_only ? kKeysPage : kEtcdFirstPage);
    request.set_keys_only(keys_only);
    while (true) {
      auto read = client_->Range(request);
      const bool too_much =
          absl::IsDeadlineExceeded(read.status()) || absl::IsResourceExhausted(read.status());
      if (too_much && !keys_only && request.limit() > kEtcdFirstPage) {
        request.set_limit(kEtcdFirstPage);
        continue;
      }
      ASSIGN_OR_RETURN(const etcdserverpb::RangeResponse page, std::move(read));
      if (request.revision() == 0) request.set_revision(page.header().revision());
      size_t largest = 0;
      for (const KeyValue& entry : page.kvs()) {
        RETURN_IF_ERROR(visit(entry, request.revision()));
        largest = std::max(largest, entry.ByteSizeLong());
      }
      if (!keys_only) request.set_limit(NextEtcdPage(request.limit(), largest));
      if (!page.more() || page.kvs().empty()) return absl::OkStatus();
      request.set_key(page.kvs().rbegin()->key() + std::string(1, '\0'));
    }
  }

  absl::StatusOr<std::string> ValueOf(const std::string& key, const std::string& text,
                                      int64_t revision) const {
    const auto damaged = [&] {
      return absl::DataLossError(
          absl::StrCat("etcd: entry ", absl::CHexEscape(key), " is damaged"));
    };
    auto entry = ParseEtcdEntry(text);
    if (!entry.ok()) return damaged();
    if (!entry->in_pieces) return std::move(entry->value);
    std::string value;
    etcdserverpb::RangeRequest request;
    request.set_key(pieces_ + entry->pieces.id + "/");
    request.set_range_end(BehindPrefix(request.key()));
    request.set_revision(revision);
    ASSIGN_OR_RETURN(const etcdserverpb::RangeResponse found, client_->Range(request));
    for (const KeyValue& piece : found.kvs()) value += piece.value();
    if (value.size() != entry->pieces.bytes || EntryChecksum(key, value) != entry->pieces.checksum)
      return damaged();
    return value;
  }

  // Fills `entry` of all writes, and puts large values in pieces, which nobody sees before the
  // entries name them.
  absl::Status Prepare(NewEntries& writes) {
    size_t bytes = 0;
    for (const auto& [key, write] : writes)
      bytes += write.value == nullptr ? 0 : write.value->size();
    const size_t most = bytes <= kRequestBytes ? kRequestBytes : kInlineBytes / 256;
    bytes = 0;
    for (auto& [key, write] : writes) {
      bytes += key.size();
      if (write.value == nullptr) continue;
      const std::string& value = *write.value;
      if (value.size() <= std::min(most, kInlineBytes)) {
        write.entry = InlineEntry(value);
      } else {
        write.pieces = NewPiecesId();
        write.entry = PiecesEntry({write.pieces, value.size(), EntryChecksum(key, value)});
        RETURN_IF_ERROR(PutPieces(write.pieces, value));
      }
      bytes += write.entry.size();
    }
    if (bytes <= kRequestBytes + kInlineBytes) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("etcd: a batch of ", bytes, " bytes is too large for one transaction"));
  }

  absl::Status PutPieces(const std::string& id, absl::string_view value) {
    for (size_t i = 0; i * kEtcdPieceBytes < value.size(); ++i) {
      etcdserverpb::TxnRequest request;
      AddFence(request);
      etcdserverpb::PutRequest* put = request.add_success()->mutable_request_put();
      put->set_key(pieces_ + PieceKey(id, i));
      put->set_value(std::string(value.substr(i * kEtcdPieceBytes, kEtcdPieceBytes)));
      ASSIGN_OR_RETURN(const etcdserverpb::TxnResponse response, client_->Txn(request));
      if (!response.succeeded()) return Fenced();
    }
    return absl::OkStatus();
  }

  absl::Status DropPieces(const std::string& id) {
    if (id.empty()) return absl::OkStatus();
    etcdserverpb::DeleteRangeRequest request;
    request.set_key(pieces_ + id + "/");
    request.set_range_end(BehindPrefix(request.key()));
    return client_->DeleteRange(request);
  }

  void AddFence(etcdserverpb::TxnRequest& request) const {
    if (!token_.has_value()) return;
    etcdserverpb::Compare* compare = request.add_compare();
    compare->set_target(etcdserverpb::Compare::CREATE);
    compare->set_key(token_->key);
    compare->set_create_revision(token_->create_revision);
  }

  static absl::Status Fenced() {
    return absl::FailedPreconditionError(
        "etcd: another planner leads, or none: this one writes nothing any more");
  }

  // Whether the token still is the leader's; without one always.
  absl::StatusOr<bool> Leads() const {
    if (!token_.has_value()) return true;
    etcdserverpb::RangeRequest request;
    request.set_key(token_->key);
    ASSIGN_OR_RETURN(const etcdserverpb::RangeResponse response, client_->Range(request));
    return !response.kvs().empty() && response.kvs(0).create_revision() == token_->create_revision;
  }

  absl::StatusOr<Present> PresentOf(const std::string& key, int64_t& revision) const {
    etcdserverpb::RangeRequest request;
    request.set_key(entries_ + key);
    ASSIGN_OR_RETURN(const etcdserverpb::RangeResponse response, client_->Range(request));
    revision = response.header().revision();
    if (response.kvs().empty()) return Present();
    return Present{response.kvs(0).mod_revision(), response.kvs(0).value()};
  }

  // `unknown`: whether it may have been done though the result is an error.
  absl::Status Commit(const std::vector<Condition>& conditions, const NewEntries& writes,
                      bool& unknown) {
    absl::Status status;
    for (int tries = 0; tries < kMostTries; ++tries) {
      if (unknown) {
        ASSIGN_OR_RETURN(const bool done, IsDone(writes));
        if (done) return absl::OkStatus();
      }
      const auto committed = TryCommit(conditions, writes);
      if (committed.ok() && *committed) return absl::OkStatus();
      status = committed.status();
      if (!status.ok() && !IsUnknown(status)) return status;
      if (!status.ok() && std::exchange(unknown, true)) return status;
      ASSIGN_OR_RETURN(const bool leads, Leads());
      if (!leads) return Fenced();
      absl::SleepFor(absl::Milliseconds(tries));
    }
    return absl::UnavailableError("etcd: other writers are always faster");
  }

  // False: what is there has changed between reading and writing.
  absl::StatusOr<bool> TryCommit(const std::vector<Condition>& conditions,
                                 const NewEntries& writes) {
    etcdserverpb::TxnRequest request;
    AddFence(request);
    const auto expect = [&](const std::string& key, int64_t revision) {
      etcdserverpb::Compare* compare = request.add_compare();
      compare->set_target(etcdserverpb::Compare::MOD);
      compare->set_key(entries_ + key);
      compare->set_mod_revision(revision);
    };
    int64_t revision = 0;
    for (const Condition& condition : conditions) {
      ASSIGN_OR_RETURN(const Present present, PresentOf(condition.key, revision));
      std::optional<std::string> value;
      if (present.revision != 0) {
        ASSIGN_OR_RETURN(value, ValueOf(condition.key, present.entry, revision));
      }
      if (value != condition.value) {
        return absl::AbortedError(absl::StrCat("etcd: entry ", absl::CHexEscape(condition.key),
                                               " is not as it was expected"));
      }
      expect(condition.key, present.revision);
    }
    std::vector<etcdserverpb::RequestOp> operations;
    ASSIGN_OR_RETURN(const auto large, LargeAmong(writes));
    for (const auto& [key, present] : large) {
      expect(key, present.revision);
      const std::string pieces =
          absl::StrCat(pieces_, ParseEtcdEntry(present.entry)->pieces.id, "/");
      auto* drop = operations.emplace_back().mutable_request_delete_range();
      drop->set_key(pieces);
      drop->set_range_end(BehindPrefix(pieces));
    }
    for (const auto& [key, write] : writes) {
      etcdserverpb::RequestOp& operation = operations.emplace_back();
      if (write.value != nullptr) {
        operation.mutable_request_put()->set_key(entries_ + key);
        operation.mutable_request_put()->set_value(write.entry);
      } else {
        operation.mutable_request_delete_range()->set_key(entries_ + key);
      }
    }
    Nest(std::move(operations), request);
    STAGEWRIGHT_FAILPOINT("etcd.commit.before");
    ASSIGN_OR_RETURN(const etcdserverpb::TxnResponse response, client_->Txn(request));
    STAGEWRIGHT_FAILPOINT("etcd.commit.after");
    return response.succeeded();
  }

  // Entries that are to be written and are in pieces now.
  absl::StatusOr<std::map<std::string, Present>> LargeAmong(const NewEntries& writes) const {
    std::map<std::string, Present> large;
    int64_t revision = 0;
    for (const auto& [key, write] : writes) {
      ASSIGN_OR_RETURN(Present present, PresentOf(key, revision));
      if (present.revision == 0) continue;
      const auto entry = ParseEtcdEntry(present.entry);
      if (entry.ok() && entry->in_pieces && entry->pieces.id != write.pieces)
        large[key] = std::move(present);
    }
    return large;
  }

  absl::StatusOr<bool> IsDone(const NewEntries& writes) const {
    int64_t revision = 0;
    for (const auto& [key, write] : writes) {
      ASSIGN_OR_RETURN(const Present present, PresentOf(key, revision));
      if ((write.value != nullptr) != (present.revision != 0) || write.entry != present.entry)
        return false;
    }
    return !writes.empty();
  }

  const std::shared_ptr<EtcdClient> client_;
  const std::string entries_;
  const std::string pieces_;
  const std::optional<FencingToken> token_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> OpenEtcdStore(std::shared_ptr<EtcdClient> client,
                                                     const std::string& prefix,
                                                     std::optional<FencingToken> token) {
  const bool leads = token.has_value();  // Else others may be writing pieces just now.
  auto store = std::make_unique<EtcdStore>(std::move(client), prefix, std::move(token));
  if (leads) RETURN_IF_ERROR(store->Sweep());
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace stagewright
