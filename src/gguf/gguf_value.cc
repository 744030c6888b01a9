#include "gguf/gguf_value.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace kvant {
namespace {

struct ValueTypeInfo {
  std::string_view name;
  int bytes;
};
constexpr ValueTypeInfo kTypes[kGgufValueTypeCount] = {
    {"u8", 1},   {"i8", 1},     {"u16", 2},   {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
    {"bool", 1}, {"string", 0}, {"array", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8}};

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

bool IsInteger(GgufValueType type) {
  return type <= GgufValueType::kI32 || type == GgufValueType::kU64 || type == GgufValueType::kI64;
}

// Calls f(number) with element `index` in its own C++ type.
// REQUIRES: IsInteger(value.element_type).
template <typename F>
void VisitInteger(const GgufValue& value, uint64_t index, const F& f) {
  const std::byte* at = value.data.data() + index * GgufValueTypeBytes(value.element_type);
  switch (value.element_type) {
    case GgufValueType::kU8:
      f(Load<uint8_t>(at));
      break;
    case GgufValueType::kI8:
      f(Load<int8_t>(at));
      break;
    case GgufValueType::kU16:
      f(Load<uint16_t>(at));
      break;
    case GgufValueType::kI16:
      f(Load<int16_t>(at));
      break;
    case GgufValueType::kU32:
      f(Load<uint32_t>(at));
      break;
    case GgufValueType::kI32:
      f(Load<int32_t>(at));
      break;
    case GgufValueType::kU64:
      f(Load<uint64_t>(at));
      break;
    case GgufValueType::kI64:
      f(Load<int64_t>(at));
      break;
    default:
      break;
  }
}

std::string TypeText(const GgufValue& value) {
  if (value.type != GgufValueType::kArray) return std::string(GgufValueTypeName(value.type));
  return "array of " + std::string(GgufValueTypeName(value.element_type));
}

Status WrongType(const GgufEntry& entry, const char* wanted) {
  return Status::Corrupt("key " + QuoteUntrusted(entry.key) + " holds " + TypeText(entry.value) +
                         " where " + wanted + " is wanted");
}

Status DoesNotFit(const GgufEntry& entry, const std::string& number, const std::string& range) {
  return Status::Corrupt("key " + QuoteUntrusted(entry.key) + " holds " + number +
                         ", which is not in " + range);
}

template <typename T>
Result<T> IntegerAt(const GgufEntry& entry, uint64_t index, const char* wanted) {
  if (!IsInteger(entry.value.element_type)) return WrongType(entry, wanted);
  Result<T> result(T{0});
  VisitInteger(entry.value, index, [&](auto number) {
    if (std::in_range<T>(number)) {
      result = static_cast<T>(number);
    } else {
      result = DoesNotFit(entry, std::to_string(number),
                          std::to_string(std::numeric_limits<T>::min()) + ".." +
                              std::to_string(std::numeric_limits<T>::max()));
    }
  });
  return result;
}

Result<float> FloatAt(const GgufEntry& entry, uint64_t index, const char* wanted) {
  const std::byte* data = entry.value.data.data();
  if (entry.value.element_type == GgufValueType::kF32) return Load<float>(data + index * 4);
  if (entry.value.element_type != GgufValueType::kF64) return WrongType(entry, wanted);
  const double number = Load<double>(data + index * 8);
  if (std::isfinite(number) && std::abs(number) > std::numeric_limits<float>::max()) {
    return DoesNotFit(entry, std::to_string(number), "the range of f32");
  }
  return static_cast<float>(number);
}

bool IsScalar(const GgufEntry& entry, GgufValueType type) { return entry.value.type == type; }

bool IsArrayOf(const GgufEntry& entry, GgufValueType type) {
  return entry.value.type == GgufValueType::kArray && entry.value.element_type == type;
}

// The string at *data, which moves past it.
std::string_view TakeString(const std::byte** data) {
  const uint64_t bytes = Load<uint64_t>(*data);
  const std::string_view text(reinterpret_cast<const char*>(*data + sizeof bytes), bytes);
  *data += sizeof bytes + bytes;
  return text;
}

template <typename T>
std::string ShortestText(T number) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, number).ptr;
  return std::string(buffer, end);
}

// The element at *data, which moves past it.
std::string ElementText(GgufValueType type, const std::byte** data, size_t max_string_bytes) {
  if (type == GgufValueType::kString) return QuoteUntrusted(TakeString(data), max_string_bytes);
  const std::byte* at = *data;
  *data += GgufValueTypeBytes(type);
  if (type == GgufValueType::kF32) return ShortestText(Load<float>(at));
  if (type == GgufValueType::kF64) return ShortestText(Load<double>(at));
  if (type == GgufValueType::kBool) return Load<uint8_t>(at) != 0 ? "true" : "false";
  std::string text;
  const GgufValue one{type, type, 1, {at, static_cast<size_t>(GgufValueTypeBytes(type))}};
  VisitInteger(one, 0, [&](auto number) { text = std::to_string(number); });
  return text;
}

}  // namespace

std::string_view GgufValueTypeName(GgufValueType type) {
  return kTypes[static_cast<uint32_t>(type)].name;
}

int GgufValueTypeBytes(GgufValueType type) { return kTypes[static_cast<uint32_t>(type)].bytes; }

template <typename T>
Result<T> ReadInteger(const GgufEntry& entry) {
  if (entry.value.type == GgufValueType::kArray) return WrongType(entry, "an integer");
  return IntegerAt<T>(entry, 0, "an integer");
}

Result<float> ReadFloat(const GgufEntry& entry) {
  if (entry.value.type == GgufValueType::kArray) return WrongType(entry, "a float");
  return FloatAt(entry, 0, "a float");
}

Result<bool> ReadBool(const GgufEntry& entry) {
  if (!IsScalar(entry, GgufValueType::kBool)) return WrongType(entry, "a bool");
  return entry.value.data[0] != std::byte{0};
}

Result<std::string_view> ReadString(const GgufEntry& entry) {
  if (!IsScalar(entry, GgufValueType::kString)) return WrongType(entry, "a string");
  const std::byte* data = entry.value.data.data();
  return TakeString(&data);
}

template <typename T>
Result<std::vector<T>> ReadIntegers(const GgufEntry& entry) {
  constexpr const char* kWanted = "an array of integers";
  if (entry.value.type != GgufValueType::kArray) return WrongType(entry, kWanted);
  if (!IsInteger(entry.value.element_type)) return WrongType(entry, kWanted);
  std::vector<T> numbers;
  numbers.reserve(entry.value.count);
  for (uint64_t i = 0; i < entry.value.count; ++i) {
    KVANT_ASSIGN_OR_RETURN(const T number, IntegerAt<T>(entry, i, kWanted));
    numbers.push_back(number);
  }
  return numbers;
}

Result<std::vector<float>> ReadFloats(const GgufEntry& entry) {
  constexpr const char* kWanted = "an array of floats";
  if (!IsArrayOf(entry, GgufValueType::kF32) && !IsArrayOf(entry, GgufValueType::kF64)) {
    return WrongType(entry, kWanted);
  }
  std::vector<float> numbers;
  numbers.reserve(entry.value.count);
  for (uint64_t i = 0; i < entry.value.count; ++i) {
    KVANT_ASSIGN_OR_RETURN(const float number, FloatAt(entry, i, kWanted));
    numbers.push_back(number);
  }
  return numbers;
}

Result<std::vector<bool>> ReadBools(const GgufEntry& entry) {
  if (!IsArrayOf(entry, GgufValueType::kBool)) return WrongType(entry, "an array of bools");
  std::vector<bool> bools;
  bools.reserve(entry.value.count);
  for (const std::byte b : entry.value.data) bools.push_back(b != std::byte{0});
  return bools;
}

Result<std::vector<std::string_view>> ReadStrings(const GgufEntry& entry) {
  if (!IsArrayOf(entry, GgufValueType::kString)) return WrongType(entry, "an array of strings");
  std::vector<std::string_view> strings;
  strings.reserve(entry.value.count);
  const std::byte* data = entry.value.data.data();
  for (uint64_t i = 0; i < entry.value.count; ++i) strings.push_back(TakeString(&data));
  return strings;
}

template Result<uint32_t> ReadInteger(const GgufEntry&);
template Result<int32_t> ReadInteger(const GgufEntry&);
template Result<uint64_t> ReadInteger(const GgufEntry&);
template Result<int64_t> ReadInteger(const GgufEntry&);
template Result<std::vector<uint32_t>> ReadIntegers(const GgufEntry&);
template Result<std::vector<int32_t>> ReadIntegers(const GgufEntry&);
template Result<std::vector<uint64_t>> ReadIntegers(const GgufEntry&);
template Result<std::vector<int64_t>> ReadIntegers(const GgufEntry&);

std::string ToText(const GgufValue& value, size_t max_elements, size_t max_string_bytes) {
  const std::byte* data = value.data.data();
  if (value.type != GgufValueType::kArray) return ElementText(value.type, &data, max_string_bytes);
  const std::string total = std::to_string(value.count) + " in all]";
  if (value.element_type == GgufValueType::kArray) return "[arrays, " + total;
  std::string text = "[";
  for (uint64_t i = 0; i < value.count; ++i) {
    if (i >= max_elements) return text + "... " + total;
    text += ElementText(value.element_type, &data, max_string_bytes);
    if (i + 1 < value.count) text += ", ";
  }
  return text + "]";
}

std::string QuoteUntrusted(std::string_view text, size_t max_bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  size_t shown = text.size();
  if (shown > max_bytes) {
    shown = max_bytes;
    // Not inside a UTF-8 sequence.
    while (shown > 0 && (static_cast<unsigned char>(text[shown]) & 0xc0) == 0x80) --shown;
  }
  std::string quoted = "'";
  for (const char c : text.substr(0, shown)) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      quoted += "\\x";
      quoted += kHex[byte >> 4];
      quoted += kHex[byte & 15];
    } else {
      if (c == '\'' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  return quoted + (shown < text.size() ? "...'" : "'");
}

}  // namespace kvant
