#include "common/data/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"

namespace stagewright {
namespace {

constexpr size_t kPrefix = 8;
constexpr uint64_t kLongestHeader = 100'000'000;  // The format's own limit.

constexpr std::pair<DType, const char*> kNames[] = {
    {DType::kFloat64, "F64"},   {DType::kFloat32, "F32"}, {DType::kFloat16, "F16"},
    {DType::kBFloat16, "BF16"}, {DType::kInt64, "I64"},   {DType::kInt32, "I32"},
    {DType::kInt16, "I16"},     {DType::kInt8, "I8"},     {DType::kUInt8, "U8"},
    {DType::kBool, "BOOL"}};

uint64_t ReadLittleEndian(const std::byte* bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<uint64_t>(bytes[i]);
  return value;
}

// The number of bytes of a tensor; nothing if it overflows or a dimension is negative.
std::optional<uint64_t> ByteSize(DType dtype, const std::vector<int64_t>& shape) {
  uint64_t bytes = static_cast<uint64_t>(SizeOf(dtype));
  for (int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(dim), &bytes))
      return std::nullopt;
  }
  return bytes;
}

// One entry of the header, with its bytes still as a range.
struct Entry {
  TensorView tensor;
  uint64_t begin = 0;
  uint64_t end = 0;
};

absl::StatusOr<Entry> ParseEntry(const std::string& name, const nlohmann::json& json,
                                 uint64_t data_bytes) {
  Entry entry;
  entry.tensor.name = name;
  if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets")) {
    return absl::InvalidArgumentError("dtype, shape or data_offsets is missing");
  }
  const nlohmann::json& dtype = json["dtype"];
  const nlohmann::json& shape = json["shape"];
  const nlohmann::json& offsets = json["data_offsets"];
  if (!dtype.is_string()) return absl::InvalidArgumentError("dtype is not a string");
  ASSIGN_OR_RETURN(entry.tensor.dtype, ParseSafetensorsName(dtype.get<std::string>()));
  if (!shape.is_array() || !std::all_of(shape.begin(), shape.end(),
                                        [](const auto& dim) { return dim.is_number_unsigned(); })) {
    return absl::InvalidArgumentError("shape is not a list of sizes");
  }
  entry.tensor.shape = shape.get<std::vector<int64_t>>();
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    return absl::InvalidArgumentError("data_offsets is not a pair of offsets");
  }
  entry.begin = offsets[0].get<uint64_t>();
  entry.end = offsets[1].get<uint64_t>();
  const std::optional<uint64_t> bytes = ByteSize(entry.tensor.dtype, entry.tensor.shape);
  if (!bytes.has_value()) return absl::InvalidArgumentError("the size of its shape overflows");
  if (entry.begin > entry.end || entry.end > data_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("its bytes [", entry.begin, ", ", entry.end,
                                                   ") lie outside the ", data_bytes,
                                                   " bytes of data; the file may be truncated"));
  }
  if (entry.end - entry.begin != *bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(entry.tensor.dtype, entry.tensor.shape), " needs ", *bytes,
                     " bytes, the header gives it ", entry.end - entry.begin));
  }
  return entry;
}

// The tensors must fill the data exactly.
absl::Status CheckLayout(const std::vector<Entry>& entries, uint64_t data_bytes) {
  std::vector<const Entry*> order;
  for (const Entry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
    return std::tie(a->begin, a->end, a->tensor.name) < std::tie(b->begin, b->end, b->tensor.name);
  });
  uint64_t end = 0;
  for (const Entry* entry : order) {
    if (entry->begin != end) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", entry->tensor.name,
                       entry->begin < end ? "\" overlaps the one before" : "\" follows a gap",
                       " at byte ", entry->begin, " of the data"));
    }
    end = entry->end;
  }
  if (end != data_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tensors end at byte ", end, " of ", data_bytes, " bytes of data"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadTensor(const TensorView& tensor, std::span<std::byte> out) {
  CHECK(out.size() == tensor.data.size());
  if (tensor.file != nullptr) {
    const auto offset = static_cast<size_t>(tensor.data.data() - tensor.file->bytes().data());
    return tensor.file->Read(offset, out);
  }
  if (!out.empty()) std::memcpy(out.data(), tensor.data.data(), out.size());
  return absl::OkStatus();
}

std::string SafetensorsName(DType dtype) {
  for (const auto& [type, name] : kNames) {
    if (type == dtype) return name;
  }
  return "";
}

absl::StatusOr<DType> ParseSafetensorsName(const std::string& name) {
  for (const auto& [type, known] : kNames) {
    if (name == known) return type;
  }
  return absl::InvalidArgumentError(absl::StrCat("type \"", name, "\" is not supported"));
}

std::string Describe(DType dtype, const std::vector<int64_t>& shape) {
  const std::string_view name = DTypeName(dtype);
  return absl::StrCat(absl::string_view(name.data(), name.size()), "[", absl::StrJoin(shape, ", "),
                      "]");
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  SafetensorsFile file;
  file.path_ = path;
  ASSIGN_OR_RETURN(file.mapping_, MappedFile::Open(path));
  const std::span<const std::byte> bytes = file.mapping_->bytes();  // Not looked at here.
  const auto bad = [&](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", parts...));
  };
  if (bytes.size() < kPrefix) {
    return bad("not a safetensors file: ", bytes.size(), " bytes are no header");
  }
  std::byte prefix[kPrefix];
  RETURN_IF_ERROR(file.mapping_->Read(0, prefix));
  const uint64_t header_bytes = ReadLittleEndian(prefix);
  if (header_bytes > kLongestHeader || header_bytes > bytes.size() - kPrefix) {
    // What stands for the length may be the beginning of any file: it is not told.
    return bad("not a safetensors file, or truncated: its header would not fit into its ",
               bytes.size(), " bytes");
  }
  const std::span<const std::byte> data = bytes.subspan(kPrefix + header_bytes);
  std::string text(header_bytes, '\0');
  RETURN_IF_ERROR(file.mapping_->Read(kPrefix, std::as_writable_bytes(std::span(text))));
  const nlohmann::json header = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) return bad("the header is not a JSON object");
  std::vector<Entry> entries;
  for (const auto& [name, json] : header.items()) {
    if (name == "__metadata__") {
      if (!json.is_object()) return bad("__metadata__ is not an object");
      for (const auto& [key, value] : json.items()) {
        if (!value.is_string()) return bad("__metadata__ \"", key, "\" is not a string");
        file.metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    auto entry = ParseEntry(name, json, data.size());
    if (!entry.ok()) return bad("tensor \"", name, "\": ", entry.status().message());
    entries.push_back(*std::move(entry));
  }
  RETURN_IF_ERROR(Annotate(CheckLayout(entries, data.size()), path));
  for (Entry& entry : entries) {
    entry.tensor.data = data.subspan(entry.begin, entry.end - entry.begin);
    entry.tensor.file = file.mapping_.get();
    file.tensors_.push_back(std::move(entry.tensor));
  }
  std::sort(file.tensors_.begin(), file.tensors_.end(),
            [](const TensorView& a, const TensorView& b) { return a.name < b.name; });
  return file;
}

const TensorView* SafetensorsFile::Find(const std::string& name) const {
  const auto found =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const TensorView& t, const std::string& n) { return t.name < n; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

}  // namespace stagewright
