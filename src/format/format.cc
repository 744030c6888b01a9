#include "kvant/format.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "format/page_layout.h"

namespace kvant {
namespace {

constexpr int kWidths[] = {2, 3, 4, 5, 6, 8};
constexpr int kMaxOutliers = 16;
constexpr int kLeastClip = 50, kMostClip = 99;  // percent
constexpr int kGroups[] = {16, 32, 64, 128, 256};
constexpr std::string_view kPossible =
    "possible: f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl or "
    "int{2,3,4,5,6,8}[:channel|:token][:g{16,32,64,128,256}][:none|:ext|:min|:zero|:rzero]"
    "[:prerope][:out{1..16}][:smooth][:had|:rot][:clip{50..99}] or "
    "tq{1,2,3,4}, fit{2,3,4}, tc{2,3}, tcx{2,3,4}, nest{2,3,4}, each [:mean][:bal][:n8][:rot], or "
    "fp8_e4m3 fp8_e5m2 mxfp4[:c20] nvfp4 nvfp4_4over6, for arrays if4";

constexpr Format Float8(Levels levels) {
  return {levels, FloatType::kF16, 8, Axis::kToken, 0, Offset::kNone};
}
constexpr Format Float4(int group, Scale scale, Levels levels = Levels::kE2M1) {
  Format f{levels, FloatType::kF16, 4, Axis::kToken, group, Offset::kNone};
  f.scale = scale;
  return f;
}

struct Alias {
  std::string_view name;
  Format format;
};
constexpr Alias kAliases[] = {
    {"f32", kFormatF32},
    {"f16", kFormatF16},
    {"bf16", kFormatBf16},
    {"q8_0", {Levels::kUniform, FloatType::kF16, 8, Axis::kToken, 32, Offset::kNone}},
    {"q4_0", {Levels::kUniform, FloatType::kF16, 4, Axis::kToken, 32, Offset::kExtreme}},
    {"q4_1", {Levels::kUniform, FloatType::kF16, 4, Axis::kToken, 32, Offset::kMin}},
    {"q5_0", {Levels::kUniform, FloatType::kF16, 5, Axis::kToken, 32, Offset::kExtreme}},
    {"q5_1", {Levels::kUniform, FloatType::kF16, 5, Axis::kToken, 32, Offset::kMin}},
    {"iq4_nl", {Levels::kCodebook, FloatType::kF16, 4, Axis::kToken, 32, Offset::kNone}},
    // Of two names of one format the first is the canonical one.
    {"fp8_e4m3", Float8(Levels::kE4M3)},
    {"fp8_e4m3:token", Float8(Levels::kE4M3)},
    {"fp8_e5m2", Float8(Levels::kE5M2)},
    {"fp8_e5m2:token", Float8(Levels::kE5M2)},
    {"mxfp4", Float4(32, Scale::kE8M0)},
    {"mxfp4:c20", Float4(32, Scale::kE8M0Nearest)},
    {"nvfp4", Float4(16, Scale::kE4M3)},
    {"nvfp4_4over6", Float4(16, Scale::kE4M3FourOrSix)},
    {"if4", Float4(16, Scale::kE4M3, Levels::kIf4)},
};

// Names of the normed formats, and the widths that each has a table for.
struct NormedName {
  std::string_view prefix;
  Levels levels;
  std::string_view widths;
};
constexpr NormedName kNormedNames[] = {
    // a prefix before what it begins with
    {"tq", Levels::kLloydMax, "1234"}, {"nest", Levels::kNested, "234"},
    {"fit", Levels::kFitted, "234"},   {"tcx", Levels::kTrellis64, "234"},
    {"tc", Levels::kTrellis16, "23"},
};

constexpr std::string_view kOffsetNames[] = {"none", "ext", "min", "zero", "rzero"};

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

bool ParseInt(std::string_view text, int* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

template <typename Range>
bool Contains(const Range& range, int value) {
  return std::find(std::begin(range), std::end(range), value) != std::end(range);
}

Status BadSpec(std::string_view spec, const std::string& why) {
  return Status::InvalidArgument("KV format '" + std::string(spec) + "': " + why + "; " +
                                 std::string(kPossible));
}

Status ParseGroup(std::string_view spec, std::string_view part, int* group) {
  if (!ParseInt(part.substr(1), group) || !Contains(kGroups, *group)) {
    return BadSpec(spec, "group '" + std::string(part) + "' is not one of g16 g32 g64 g128 g256");
  }
  return Status::Ok();
}

bool IsClip(int percent) { return percent >= kLeastClip && percent <= kMostClip; }

// What options of a uniform format contradict each other; empty where none do.
std::string_view ConflictOf(const Format& format, Side side) {
  if (format.hadamard && format.loaded_rotation) return "'had' and 'rot' are two rotations";
  if (format.pre_rope && format.is_rotated()) {
    return "'prerope' takes no rotation: RoPE turns pairs of channels, which a rotation mixes";
  }
  if (format.clip_percent != 0 && format.outliers != 0) {
    return "'clip' and 'out' are two ways to treat the same values";
  }
  if (format.clip_percent != 0 && side == Side::kV && !format.is_rotated()) {
    return "V takes 'clip' only where it is rotated, by 'had' or 'rot'";
  }
  return "";
}

// One of the parts behind the width. `seen` marks each kind of option against repetition.
// Axis, group, offset, place of RoPE, side-band, smoothing, rotation, clipping.
constexpr int kOptionKinds = 8;
Status ParseOption(std::string_view spec, std::string_view part, bool (&seen)[kOptionKinds],
                   Format* format) {
  int kind = -1;
  if (part == "channel" || part == "token") {
    kind = 0;
    format->axis = part == "channel" ? Axis::kChannel : Axis::kToken;
  } else if (part.size() > 1 && part[0] == 'g') {
    kind = 1;
    KVANT_RETURN_IF_ERROR(ParseGroup(spec, part, &format->group));
  } else if (const auto it = std::find(std::begin(kOffsetNames), std::end(kOffsetNames), part);
             it != std::end(kOffsetNames)) {
    kind = 2;
    format->offset = static_cast<Offset>(it - std::begin(kOffsetNames));
  } else if (part == "prerope") {
    kind = 3;
    format->pre_rope = true;
  } else if (part.starts_with("out")) {
    kind = 4;
    if (!ParseInt(part.substr(3), &format->outliers) || format->outliers < 1 ||
        format->outliers > kMaxOutliers) {
      return BadSpec(spec, "side-band '" + std::string(part) + "' is not one of out1 to out16");
    }
  } else if (part == "smooth") {
    kind = 5;
    format->smooth = true;
  } else if (part == "had" || part == "rot") {
    kind = 6;
    (part == "had" ? format->hadamard : format->loaded_rotation) = true;
  } else if (part.starts_with("clip")) {
    kind = 7;
    if (!ParseInt(part.substr(4), &format->clip_percent) || !IsClip(format->clip_percent)) {
      return BadSpec(spec, "clipping '" + std::string(part) + "' is not one of clip50 to clip99");
    }
  } else {
    return BadSpec(spec, "option '" + std::string(part) + "' is unknown");
  }
  if (seen[kind]) return BadSpec(spec, "'" + std::string(part) + "' repeats an option");
  seen[kind] = true;
  return Status::Ok();
}

bool IsAlias(const Format& format) {
  return std::any_of(std::begin(kAliases), std::end(kAliases),
                     [&](const Alias& alias) { return alias.format == format; });
}

bool HasWidth(const NormedName& name, int bits) {
  return bits >= 0 && bits <= 9 &&
         name.widths.find(static_cast<char>('0' + bits)) != name.widths.npos;
}

Result<Format> ParseNormed(std::string_view spec, const NormedName& name, Side side) {
  const std::vector<std::string_view> parts = Split(spec, ':');
  Format format;
  format.levels = name.levels;
  const std::string_view width = parts[0].substr(name.prefix.size());
  if (!ParseInt(width, &format.bits) || !HasWidth(name, format.bits)) {
    return BadSpec(spec, "width '" + std::string(width) + "' is not possible");
  }
  for (size_t i = 1; i < parts.size(); ++i) {
    bool* const option = parts[i] == "mean"  ? &format.page_mean
                         : parts[i] == "bal" ? &format.balanced
                         : parts[i] == "n8"  ? &format.norms_8bit
                         : parts[i] == "rot" ? &format.loaded_rotation
                                             : nullptr;
    if (option == nullptr)
      return BadSpec(spec, "option '" + std::string(parts[i]) + "' is unknown");
    if (*option) return BadSpec(spec, "'" + std::string(parts[i]) + "' repeats an option");
    *option = true;
  }
  if (side == Side::kV && (format.page_mean || format.balanced)) {
    return BadSpec(spec, "V takes neither 'mean' nor 'bal'");
  }
  if (side == Side::kK && format.bits == 1) return BadSpec(spec, "one bit is for V only");
  return format;
}

std::string NormedSpec(const Format& format) {
  std::string spec;
  for (const NormedName& name : kNormedNames) {
    if (name.levels == format.levels) spec = std::string(name.prefix) + std::to_string(format.bits);
  }
  if (format.page_mean) spec += ":mean";
  if (format.balanced) spec += ":bal";
  if (format.norms_8bit) spec += ":n8";
  if (format.loaded_rotation) spec += ":rot";
  return spec;
}

Status CheckNormed(const Format& format, Side side, const std::string& name) {
  bool has_table = false;
  for (const NormedName& each : kNormedNames) {
    has_table = has_table || (each.levels == format.levels && HasWidth(each, format.bits));
  }
  if (!has_table) return Status::InvalidArgument(name + ": there is no table of this width");
  if (format.axis != Axis::kToken || format.group != 0 || format.offset != Offset::kNone ||
      format.scale != Scale::kF16 || format.smooth) {
    return Status::InvalidArgument(name +
                                   ": its group is the whole head of a token, without offset");
  }
  if (side == Side::kV && (format.page_mean || format.balanced)) {
    return Status::InvalidArgument(name + ": V takes neither page mean nor balance");
  }
  if (side == Side::kK && format.bits == 1) {
    return Status::InvalidArgument(name + ": one bit is for V only");
  }
  return Status::Ok();
}

}  // namespace

double Format::SideBandBits(int head_dim) const {
  if (outliers == 0) return 0;
  return kSlotBits * outliers / (axis == Axis::kChannel ? group : head_dim);
}

double Format::EffectiveBits(int head_dim) const {
  if (is_float()) return bits;
  if (is_normed()) {
    const SideLayout side = MakePageLayout(*this, *this, head_dim, kPageTokens).k;
    return 8.0 * static_cast<double>(side.code_bytes() + side.used_metadata_bytes()) /
           (kPageTokens * head_dim);
  }
  const double per_group = 8.0 * metadata_bytes_per_group();
  const double coded = bits + SideBandBits(head_dim);
  if (axis == Axis::kChannel) return coded + per_group / group;
  const int stored = group == 0 ? head_dim : std::min(group, head_dim);
  return coded + per_group * DivideUp(head_dim, stored) / head_dim;
}

Result<Format> ParseFormat(std::string_view spec, Side side) {
  for (const Alias& alias : kAliases) {
    if (spec == alias.name) return alias.format;
  }
  for (const NormedName& name : kNormedNames) {
    if (spec.starts_with(name.prefix)) return ParseNormed(spec, name, side);
  }
  const std::vector<std::string_view> parts = Split(spec, ':');
  Format format{
      Levels::kUniform, FloatType::kF16, 0, side == Side::kK ? Axis::kChannel : Axis::kToken, 0,
      Offset::kMin};
  if (!parts[0].starts_with("int")) return BadSpec(spec, "unknown name");
  if (!ParseInt(parts[0].substr(3), &format.bits) || !Contains(kWidths, format.bits)) {
    return BadSpec(spec, "width '" + std::string(parts[0].substr(3)) + "' is not possible");
  }
  bool seen[kOptionKinds] = {};
  for (size_t i = 1; i < parts.size(); ++i) {
    KVANT_RETURN_IF_ERROR(ParseOption(spec, parts[i], seen, &format));
  }
  if (side == Side::kV && format.smooth) return BadSpec(spec, "V does not take 'smooth'");
  if (format.axis == Axis::kChannel && format.group == 0) format.group = kPageTokens;
  if (format.pre_rope && side == Side::kV) return BadSpec(spec, "V takes no 'prerope'");
  const std::string_view conflict = ConflictOf(format, side);
  if (!conflict.empty()) return BadSpec(spec, std::string(conflict));
  return format;
}

std::string FormatSpec(const Format& format) {
  for (const Alias& alias : kAliases) {
    if (format == alias.format) return std::string(alias.name);
  }
  if (format.is_normed()) return NormedSpec(format);
  std::string spec = "int" + std::to_string(format.bits);
  spec += format.axis == Axis::kChannel ? ":channel" : ":token";
  if (format.group != 0) spec += ":g" + std::to_string(format.group);
  spec += ":" + std::string(kOffsetNames[static_cast<int>(format.offset)]);
  if (format.pre_rope) spec += ":prerope";
  if (format.outliers != 0) spec += ":out" + std::to_string(format.outliers);
  if (format.smooth) spec += ":smooth";
  if (format.hadamard) spec += ":had";
  if (format.loaded_rotation) spec += ":rot";
  if (format.clip_percent != 0) spec += ":clip" + std::to_string(format.clip_percent);
  return spec;
}

Status CheckFormat(const Format& format, Side side, int head_dim) {
  const std::string name =
      std::string(side == Side::kK ? "K" : "V") + " format " + FormatSpec(format);
  if (head_dim < 4 || head_dim > 1024 || head_dim % 4 != 0) {
    return Status::InvalidArgument("head_dim " + std::to_string(head_dim) +
                                   " is not a multiple of 4 between 4 and 1024");
  }
  const bool is_uniform = format.levels == Levels::kUniform;
  if (format.pre_rope && (side == Side::kV || !is_uniform)) {
    return Status::InvalidArgument(name + ": 'prerope' belongs to K in evenly spaced levels");
  }
  if (format.outliers != 0 &&
      (!is_uniform || format.outliers < 0 || format.outliers > kMaxOutliers)) {
    return Status::InvalidArgument(name + ": a side-band of " + std::to_string(format.outliers) +
                                   " slots is not possible; evenly spaced levels take 0 to 16");
  }
  if ((format.hadamard || format.clip_percent != 0) && !is_uniform) {
    return Status::InvalidArgument(name + ": 'had' and 'clip' belong to evenly spaced levels");
  }
  if (format.is_float()) return Status::Ok();
  if (format.is_normed()) return CheckNormed(format, side, name);
  if (format.norms_8bit || format.page_mean || format.balanced) {
    return Status::InvalidArgument(name +
                                   ": page mean, balance and 8-bit norms belong to tq, tc and fit");
  }
  if (format.clip_percent != 0 && !IsClip(format.clip_percent)) {
    return Status::InvalidArgument(name + ": a clipping to " + std::to_string(format.clip_percent) +
                                   " % is not possible; possible: 50 to 99");
  }
  if (const std::string_view conflict = ConflictOf(format, side); !conflict.empty()) {
    return Status::InvalidArgument(name + ": " + std::string(conflict));
  }
  if (format.smooth && (!is_uniform || side == Side::kV)) {
    return Status::InvalidArgument(name + ": smoothing belongs to int formats of K");
  }
  if (is_uniform ? format.scale != Scale::kF16 : !IsAlias(format)) {
    return Status::InvalidArgument(
        name + ": levels that are not evenly spaced are possible by name only; " +
        std::string(kPossible));
  }
  if (!Contains(kWidths, format.bits)) {
    return Status::InvalidArgument(name + ": a width of " + std::to_string(format.bits) +
                                   " bits is not possible; possible: 2 3 4 5 6 8");
  }
  const bool whole_head = format.axis == Axis::kToken && format.group == 0;
  if (!whole_head && !Contains(kGroups, format.group)) {
    return Status::InvalidArgument(name + ": a group of " + std::to_string(format.group) +
                                   " is not possible; possible: 16 32 64 128 256");
  }
  return Status::Ok();
}

}  // namespace kvant
