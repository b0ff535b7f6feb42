#include "common/data/npy.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/one_line.h"

namespace stagewright {
namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicBytes = 6;

// NumPy's names, without the byte order.
constexpr std::pair<const char*, DType> kTypes[] = {
    {"f8", DType::kFloat64}, {"f4", DType::kFloat32}, {"f2", DType::kFloat16},
    {"i8", DType::kInt64},   {"i4", DType::kInt32},   {"i2", DType::kInt16},
    {"i1", DType::kInt8},    {"u1", DType::kUInt8},   {"b1", DType::kBool}};

// The text after "'key':" in the header; empty if the key is missing.
absl::string_view ValueOf(absl::string_view header, absl::string_view key) {
  for (const char quote : {'\'', '"'}) {
    const std::string quoted = absl::StrCat(std::string(1, quote), key, std::string(1, quote));
    const size_t at = header.find(quoted);
    if (at == absl::string_view::npos) continue;
    absl::string_view rest = absl::StripLeadingAsciiWhitespace(header.substr(at + quoted.size()));
    if (absl::ConsumePrefix(&rest, ":")) return absl::StripLeadingAsciiWhitespace(rest);
  }
  return "";
}

absl::StatusOr<DType> ParseType(absl::string_view value) {
  const bool quoted = !value.empty() && (value[0] == '\'' || value[0] == '"');
  const size_t end = quoted ? value.find(value[0], 1) : absl::string_view::npos;
  if (end == absl::string_view::npos || end < 3)
    return absl::InvalidArgumentError("its descr is no type; arrays of records are not supported");
  const absl::string_view name = value.substr(1, end - 1);
  for (const auto& [known, type] : kTypes) {
    if (name.substr(1) != known) continue;
    if (name[0] == '<' || name[0] == '|' || (name[0] == '=' && SizeOf(type) == 1)) return type;
    if (name[0] == '>') {
      return absl::InvalidArgumentError(
          absl::StrCat("type \"", name, "\" is big-endian; save it as \"<", known, "\""));
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("type \"", name, "\" is not supported"));
}

absl::StatusOr<std::vector<int64_t>> ParseShape(absl::string_view value) {
  const auto bad = [] { return absl::InvalidArgumentError("its shape is not a tuple of sizes"); };
  const size_t end = value.find(')');
  if (!absl::ConsumePrefix(&value, "(") || end == absl::string_view::npos) return bad();
  std::vector<int64_t> shape;
  for (absl::string_view part :
       absl::StrSplit(value.substr(0, end - 1), ',', absl::SkipWhitespace())) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(part, &size) || size < 0) return bad();
    shape.push_back(size);
  }
  return shape;
}

// Fills in all but the bytes of `array`; returns how many these are.
absl::StatusOr<uint64_t> ParseHeader(absl::string_view header, TensorView& array) {
  ASSIGN_OR_RETURN(array.dtype, ParseType(ValueOf(header, "descr")));
  const absl::string_view order = ValueOf(header, "fortran_order");
  if (order.substr(0, 4) == "True")
    return absl::InvalidArgumentError("it is in Fortran order; save it in C order");
  if (order.substr(0, 5) != "False") return absl::InvalidArgumentError("it has no fortran_order");
  ASSIGN_OR_RETURN(array.shape, ParseShape(ValueOf(header, "shape")));
  uint64_t bytes = static_cast<uint64_t>(SizeOf(array.dtype));
  for (int64_t size : array.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes))
      return absl::InvalidArgumentError("the size of its shape overflows");
  }
  return bytes;
}

}  // namespace

absl::StatusOr<NpyFile> NpyFile::Open(const std::string& path) {
  NpyFile file;
  ASSIGN_OR_RETURN(file.mapping, MappedFile::Open(path));
  const std::span<const std::byte> bytes = file.mapping->bytes();  // Not looked at here.
  const auto bad = [&](const auto&... parts) {
    return OneLine(absl::InvalidArgumentError(absl::StrCat(path, ": ", parts...)));
  };
  std::array<std::byte, kMagicBytes + 6> start = {};
  const size_t known = std::min(start.size(), bytes.size());
  RETURN_IF_ERROR(file.mapping->Read(0, std::span(start).first(known)));
  if (known < kMagicBytes + 4 || std::memcmp(start.data(), kMagic, kMagicBytes) != 0)
    return bad("not an .npy file: it does not start with NumPy's magic string");
  const int version = static_cast<int>(start[kMagicBytes]);
  if (version < 1 || version > 3) return bad("version ", version, " of .npy is not known");
  // Version 1 has a length of two bytes, the others of four.
  const size_t prefix = kMagicBytes + 2 + (version == 1 ? 2 : 4);
  size_t header_bytes = 0;
  for (size_t i = prefix; i-- > kMagicBytes + 2;)
    header_bytes = header_bytes << 8 | static_cast<size_t>(start[i]);
  if (bytes.size() < prefix || header_bytes > bytes.size() - prefix) {
    return bad("truncated: its header is longer than the file, which has ", bytes.size(), " bytes");
  }
  std::string header(header_bytes, '\0');
  RETURN_IF_ERROR(file.mapping->Read(prefix, std::as_writable_bytes(std::span(header))));
  file.array.name = path;
  auto size = ParseHeader(header, file.array);
  if (!size.ok()) return bad(size.status().message());
  file.array.data = bytes.subspan(prefix + header_bytes);
  if (file.array.data.size() != *size) {
    return bad(Describe(file.array.dtype, file.array.shape), " needs ", *size,
               " bytes, the file has ", file.array.data.size(),
               file.array.data.size() < *size ? "; it may be truncated" : "");
  }
  return file;
}

}  // namespace stagewright
