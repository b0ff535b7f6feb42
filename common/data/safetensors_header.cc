#include "common/data/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stagewright {
namespace {

constexpr size_t kPrefix = 8;
constexpr size_t kAlignment = 8;
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

absl::StatusOr<SafetensorsEntry> ParseEntry(const std::string& name, const nlohmann::json& json,
                                            uint64_t data_bytes) {
  SafetensorsEntry entry;
  entry.name = name;
  if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets")) {
    return absl::InvalidArgumentError("dtype, shape or data_offsets is missing");
  }
  const nlohmann::json& dtype = json["dtype"];
  const nlohmann::json& shape = json["shape"];
  const nlohmann::json& offsets = json["data_offsets"];
  if (!dtype.is_string()) return absl::InvalidArgumentError("dtype is not a string");
  ASSIGN_OR_RETURN(entry.dtype, ParseSafetensorsName(dtype.get<std::string>()));
  if (!shape.is_array() || !std::all_of(shape.begin(), shape.end(),
                                        [](const auto& dim) { return dim.is_number_unsigned(); })) {
    return absl::InvalidArgumentError("shape is not a list of sizes");
  }
  entry.shape = shape.get<std::vector<int64_t>>();
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    return absl::InvalidArgumentError("data_offsets is not a pair of offsets");
  }
  entry.begin = offsets[0].get<uint64_t>();
  entry.end = offsets[1].get<uint64_t>();
  const std::optional<uint64_t> bytes = ByteSize(entry.dtype, entry.shape);
  if (!bytes.has_value()) return absl::InvalidArgumentError("the size of its shape overflows");
  if (entry.begin > entry.end || entry.end > data_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("its bytes [", entry.begin, ", ", entry.end,
                                                   ") lie outside the ", data_bytes,
                                                   " bytes of data; the file may be truncated"));
  }
  if (entry.end - entry.begin != *bytes) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(entry.dtype, entry.shape), " needs ",
                                                   *bytes, " bytes, the header gives it ",
                                                   entry.end - entry.begin));
  }
  return entry;
}

// The tensors must fill the data exactly.
absl::Status CheckLayout(const std::vector<SafetensorsEntry>& entries, uint64_t data_bytes) {
  std::vector<const SafetensorsEntry*> order;
  for (const SafetensorsEntry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const SafetensorsEntry* a, const SafetensorsEntry* b) {
    return std::tie(a->begin, a->end, a->name) < std::tie(b->begin, b->end, b->name);
  });
  uint64_t end = 0;
  for (const SafetensorsEntry* entry : order) {
    if (entry->begin != end) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", entry->name,
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

// The entries of the header, which are not in order yet.
absl::Status ParseHeader(const nlohmann::json& json, uint64_t data_bytes,
                         SafetensorsHeader& header) {
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") {
      if (!value.is_object()) return absl::InvalidArgumentError("__metadata__ is not an object");
      for (const auto& [key, text] : value.items()) {
        if (!text.is_string()) {
          return absl::InvalidArgumentError(
              absl::StrCat("__metadata__ \"", key, "\" is not a string"));
        }
        header.metadata[key] = text.get<std::string>();
      }
      continue;
    }
    auto entry = ParseEntry(name, value, data_bytes);
    if (!entry.ok()) return Annotate(entry.status(), absl::StrCat("tensor \"", name, "\""));
    header.tensors.push_back(*std::move(entry));
  }
  return CheckLayout(header.tensors, data_bytes);
}

}  // namespace

const SafetensorsEntry* SafetensorsHeader::Find(const std::string& name) const {
  const auto found =
      std::lower_bound(tensors.begin(), tensors.end(), name,
                       [](const SafetensorsEntry& t, const std::string& n) { return t.name < n; });
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const std::string& path, uint64_t size,
                                                        const RangeReader& read) {
  const auto bad = [&](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", parts...));
  };
  if (size < kPrefix) return bad("not a safetensors file: ", size, " bytes are no header");
  std::byte prefix[kPrefix] = {};
  RETURN_IF_ERROR(read(0, prefix));
  const uint64_t header_bytes = ReadLittleEndian(prefix);
  if (header_bytes > kLongestHeader || header_bytes > size - kPrefix) {
    // What stands for the length may be the beginning of any file: it is not told.
    return bad("not a safetensors file, or truncated: its header would not fit into its ", size,
               " bytes");
  }
  std::string text(header_bytes, '\0');
  RETURN_IF_ERROR(read(kPrefix, std::as_writable_bytes(std::span(text))));
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return bad("the header is not a JSON object");
  SafetensorsHeader header;
  header.path = path;
  header.bytes = kPrefix + header_bytes;
  RETURN_IF_ERROR(Annotate(ParseHeader(json, size - header.bytes, header), path));
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) { return a.name < b.name; });
  return header;
}

std::string SafetensorsHeaderText(const std::vector<SafetensorsEntry>& tensors,
                                  const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  for (const SafetensorsEntry& tensor : tensors) {
    nlohmann::ordered_json& entry = json[tensor.name];
    entry["dtype"] = SafetensorsName(tensor.dtype);
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {tensor.begin, tensor.end};
  }
  std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  std::string header;
  for (int shift = 0; shift < 64; shift += 8) header += static_cast<char>(text.size() >> shift);
  return header + text;
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

}  // namespace stagewright
