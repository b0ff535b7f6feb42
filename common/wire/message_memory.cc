#include "common/wire/message_memory.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message.h>
#include <google/protobuf/wire_format_lite.h>

#include "absl/container/flat_hash_map.h"

namespace stagewright {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::io::CodedInputStream;
using Wire = google::protobuf::internal::WireFormatLite;

// What an allocation costs beside its bytes, a pointer to it included.
constexpr size_t kAllocation = 24;
constexpr size_t kText = sizeof(std::string) + kAllocation;
constexpr size_t kUnknown = 16;  // An entry of google::protobuf::UnknownFieldSet.
constexpr size_t kNumber = 8;
// Protobuf itself takes no message that is deeper.
constexpr int kDeepest = 100;

class Estimate {
 public:
  explicit Estimate(size_t most) : most_(most) {}

  // False once it is over: there is too much, or the bytes are no message.
  bool Add(const Descriptor* type, CodedInputStream& in, int depth) {
    if (!Take(SizeOf(type)) || depth > kDeepest) return false;
    while (const uint32_t tag = in.ReadTag()) {
      if (!AddField(type, tag, in, depth)) return false;
    }
    return true;
  }

  size_t total() const { return total_; }

 private:
  bool Take(size_t bytes) {
    total_ += bytes;
    return total_ <= most_;
  }

  size_t SizeOf(const Descriptor* type) {
    size_t& size = sizes_[type];
    if (size == 0) {
      const auto* made = google::protobuf::MessageFactory::generated_factory()->GetPrototype(type);
      size = (made == nullptr ? 0 : made->SpaceUsedLong()) + kAllocation;
    }
    return size;
  }

  // Fields within a group, which no message of ours has, count as fields beside it.
  bool AddField(const Descriptor* type, uint32_t tag, CodedInputStream& in, int depth) {
    const FieldDescriptor* field = type->FindFieldByNumber(Wire::GetTagFieldNumber(tag));
    uint64_t number = 0;
    switch (Wire::GetTagWireType(tag)) {
      case Wire::WIRETYPE_VARINT:
        return in.ReadVarint64(&number) && Take(field == nullptr ? kUnknown : kNumber);
      case Wire::WIRETYPE_FIXED64:
        return in.Skip(8) && Take(field == nullptr ? kUnknown : kNumber);
      case Wire::WIRETYPE_FIXED32:
        return in.Skip(4) && Take(field == nullptr ? kUnknown : kNumber);
      case Wire::WIRETYPE_LENGTH_DELIMITED:
        return AddDelimited(field, in, depth);
      case Wire::WIRETYPE_START_GROUP:
        return Take(kUnknown + kAllocation);
      case Wire::WIRETYPE_END_GROUP:
        return true;
    }
    return false;
  }

  bool AddDelimited(const FieldDescriptor* field, CodedInputStream& in, int depth) {
    uint32_t length = 0;
    if (!in.ReadVarint32(&length) || length > static_cast<uint32_t>(in.BytesUntilLimit()))
      return false;
    if (field != nullptr && field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      const CodedInputStream::Limit limit = in.PushLimit(static_cast<int>(length));
      const bool whole = Add(field->message_type(), in, depth + 1);
      in.PopLimit(limit);
      return whole;
    }
    const bool numbers = field != nullptr && field->cpp_type() != FieldDescriptor::CPPTYPE_STRING;
    const size_t taken =
        numbers ? length * kNumber : (field == nullptr ? kUnknown : 0) + kText + length;
    return Take(taken) && in.Skip(static_cast<int>(length));
  }

  const size_t most_;
  size_t total_ = 0;
  absl::flat_hash_map<const Descriptor*, size_t> sizes_;
};

}  // namespace

size_t MessageMemory(const Descriptor* type, absl::string_view bytes, size_t most) {
  CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  in.PushLimit(static_cast<int>(bytes.size()));
  Estimate estimate(most);
  estimate.Add(type, in, 0);
  return estimate.total();
}

}  // namespace stagewright
