// Format: how one side (K or V) of a page is stored. Touches no data.
//
// A value x of a group is coded as  x ~ scale * code + offset  with one scale (and, where the
// convention has one, one offset or zero) a group. Four affine conventions are in use in the field
// and give different codes for the same group, so the name of the convention is part of the format:
//
//   none   symmetric:     s = amax / (2^(b-1) - 1),  x ~ s * (code - 2^(b-1))
//   ext    llama.cpp's:   s = extreme / -2^(b-1) (signed),  x ~ s * (code - 2^(b-1))
//   min    min-offset:    s = (max - min) / (2^b - 1),  x ~ s * code + min          (KIVI, DiffKV)
//   zero   integer zero:  same s, z = rint(-min / s),  x ~ s * (code - z)           (GPTQ, AWQ)
//   rzero  real zero:     same s, zeta = -min / s,     x ~ s * code - zeta * s      (QServe)
//
// Every printed byte and every allocated byte of kvant comes from this file and page_layout.h.
// Thread rules: plain values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/status.h"

namespace kvant {

// Tokens of the unit in which positions, windows and kernels count.
inline constexpr int kPageTokens = 64;

struct Calibration;  // kvant/calibration.h
struct MixedSpec;    // kvant/mixed_spec.h

enum class Side { kK, kV };

enum class Levels {
  kFloat,     // no codes: the value itself in a float type
  kUniform,   // evenly spaced codes of 2, 3, 4, 5, 6 or 8 bits
  kCodebook,  // iq4_nl: 16 signed 8-bit levels, one scale a group
  // Of whole vectors, rotated before they come to the cache (codec/rotation.h): levels of a normal
  // distribution in units of the vector's own norm. 8-bit tables: codec/level_tables.h.
  kLloydMax,   // the nearest of 2^bits levels
  kFitted,     // the same with levels that a calibration fitted to the layer
  kTrellis16,  // the window of 4 bits of the stream of codes tells the level (trellis-coded)
  kTrellis64,  // the same with a window of 6 bits
  // The nearest of 16 levels, of whose 4-bit codes the upper `bits` are stored: a page of 4 bits
  // becomes one of 3 or 2 by leaving planes out. A level is the mean of those it stands for.
  kNested,
  // 8-bit floats of the OCP standard with one scale a token: codes are the standard's bytes.
  kE4M3,
  kE5M2,
  kE2M1,  // 4-bit floats of the OCP standard, +-{0 .5 1 1.5 2 3 4 6}: codes are its nibbles
  kIf4,   // E2M1 or whole numbers -7 .. 7 times 6/7, chosen by group; for arrays only
};
enum class FloatType { kF32, kF16, kBf16 };
enum class Axis {
  kChannel,  // a group runs along tokens, one scale per channel (K's habit)
  kToken,    // a group runs along channels, one scale per token (V's habit)
};
enum class Offset { kNone, kExtreme, kMin, kIntegerZero, kRealZero };

// How a scale is stored, and for the 8-bit ones how it is chosen from a group's largest magnitude.
enum class Scale {
  kF16,
  kE8M0,           // 2^(byte - 127), the OCP rule for kE2M1: floor(log2 amax) - 2; clips above 6
  kE8M0Nearest,    // the same type, the power of two nearest to .2 amax by its logarithm
  kE4M3,           // amax / 6
  kE4M3FourOrSix,  // amax / 6 or amax / 4, the one with the smaller squared error; 6 of equals
};

// Bits of one slot of the side-band: a place of 16 bits and an f16.
inline constexpr double kSlotBits = 32;

struct Format {
  Levels levels = Levels::kFloat;
  FloatType float_type = FloatType::kF16;  // levels == kFloat
  int bits = 16;
  Axis axis = Axis::kToken;
  int group = 0;  // values that share one scale; 0: the whole head (axis token only)
  Offset offset = Offset::kNone;
  bool norms_8bit = false;  // normed: the norms in 8 bits between the page's least and largest
  bool page_mean = false;  // normed, K only: each page's mean, 8 bits a channel, is taken off first
  bool balanced = false;   // normed, K only: channels scaled by sqrt(rms q / rms k) and back
  bool pre_rope = false;   // uniform, K only: pages hold K as it was before RoPE (KVQuant)
  // Uniform: slots of the side-band (KVQuant, arXiv 2401.18079) for each vector, a vector being a
  // group along tokens (axis channel) or a token's whole head (axis token). The values farthest
  // from the vector's mean stay out of its ranges; a slot holds the place of one as u16 and, as
  // f16, what its code lacks: a decoder always adds.
  int outliers = 0;
  Scale scale = Scale::kF16;
  bool smooth = false;           // uniform, K only: channels divided by a calibration's factors
  bool hadamard = false;         // uniform: rotated by the fixed rotation, as normed formats are
  bool loaded_rotation = false;  // normed or uniform: rotated by a calibration's rotation instead
  // Uniform: a group of n values reaches no farther from 0 than its value of rank
  // floor(clip_percent n / 100), from 0, by magnitude; those beyond it get the first or last code
  // (OSCAR, arXiv 2605.17757). 0: all are inside. V takes it only where it is rotated.
  int clip_percent = 0;

  bool operator==(const Format&) const = default;

  bool is_float() const { return levels == Levels::kFloat; }
  // One norm a token and codes of the vector's direction; wants rotated vectors.
  bool is_normed() const {
    return levels == Levels::kLloydMax || levels == Levels::kFitted ||
           levels == Levels::kTrellis16 || levels == Levels::kTrellis64 ||
           levels == Levels::kNested;
  }
  // Whether vectors are rotated before they come to the cache.
  bool is_rotated() const { return is_normed() || hadamard || loaded_rotation; }
  // Whether the format reads what `kvant calibrate` measured: KvSpec::calibration.
  bool needs_calibration() const { return levels == Levels::kFitted || smooth || loaded_rotation; }
  // 8-bit floats: laid out like a float side, coded like any other.
  bool is_float8() const { return levels == Levels::kE4M3 || levels == Levels::kE5M2; }
  bool is_float4() const { return levels == Levels::kE2M1 || levels == Levels::kIf4; }
  bool is_small_float() const { return is_float8() || is_float4(); }
  // Whether a token's codes and metadata are its own, so that it can leave its page for another.
  bool by_token() const {
    if (is_float() || is_small_float()) return true;
    if (is_normed()) {
      return levels != Levels::kTrellis16 && levels != Levels::kTrellis64 && !page_mean &&
             !norms_8bit;
    }
    return axis == Axis::kToken;
  }

  // Bytes of metadata of one group: a scale of 16 or 8 bits and, unless symmetric, one 16-bit
  // offset or zero; of a normed format the norm of one token.
  int metadata_bytes_per_group() const {
    if (is_float()) return 0;
    if (is_normed()) return norms_8bit ? 1 : 2;
    if (scale != Scale::kF16) return 1;
    return offset == Offset::kNone || offset == Offset::kExtreme ? 2 : 4;
  }

  // Bits a value that the side-band costs; 0 without one.
  double SideBandBits(int head_dim) const;

  // Bits a value with its share of the metadata: pages only, padding left out, for a head of
  // `head_dim` channels. 4.25 for int4 in groups of 128.
  double EffectiveBits(int head_dim) const;
};

inline constexpr Format kFormatF32{Levels::kFloat, FloatType::kF32, 32, Axis::kToken, 0,
                                   Offset::kNone};
inline constexpr Format kFormatF16{Levels::kFloat, FloatType::kF16, 16, Axis::kToken, 0,
                                   Offset::kNone};
inline constexpr Format kFormatBf16{Levels::kFloat, FloatType::kBf16, 16, Axis::kToken, 0,
                                    Offset::kNone};

// Parses one side's spec:
//   f32 f16 bf16 | q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl | int<bits>[:channel|:token][:g<N>][:<offset>]
//   int...[:prerope]                K only: coded as it was before RoPE turned it
//   int...[:out<N>]                 N of 1 .. 16 outliers a vector apart, 4 bytes each
//   int...[:smooth]                 K only: channels divided by a calibration's factors
//   int...[:had|:rot]               rotated, by the fixed rotation or by a calibration's
//   int...[:clip<N>]                N of 50 .. 99: a group's range ends at the N-th part in 100 of
//                                   its magnitudes; of V only behind had or rot
//   tq{1,2,3,4}[:mean][:bal][:n8]   rotated, Lloyd-Max levels; 1 bit is the sign, for V only
//   nest{2,3,4}[...]                the same, of which narrower codes are the upper bits of wider
//                                   ones (DemoteArray in kvant/codec.h)
//   fit{2,3,4}[...]                 the same with levels fitted to the layer by a calibration
//   tc{2,3}[...]  tcx{2,3,4}[...]   rotated, trellis-coded with a table of 16 or of 64 levels
//   tq4:rot ...                     any rotated one, with a calibration's rotation
//   fp8_e4m3[:token]  fp8_e5m2[:token]     8-bit floats, an f16 scale a token
//   mxfp4[:c20]  nvfp4  nvfp4_4over6       4-bit floats along channels, 8-bit scales: groups of 32
//                                          with powers of two, groups of 16 with E4M3
//   if4                                    the same, or 4-bit integers, by group; CheckKvSpec
//                                          refuses it: arrays only
// `smooth` (K) and `rot` take K's channel factors and the rotation from a calibration file, as fit
// takes its levels (kvant/calibration.h).
// Left out: axis = channel for K, token for V; group = 64 along tokens, the whole head along
// channels; offset = min. llama.cpp's names are aliases of equal size and meaning along channels.
// kInvalidArgument names the part that is wrong and lists what is possible.
Result<Format> ParseFormat(std::string_view spec, Side side);

// The canonical spec, which ParseFormat reads back to an equal Format; aliases print as themselves.
std::string FormatSpec(const Format& format);

// Whether the format can store a head of this size; the sentence names what does not fit. A group
// that does not divide head_dim ends in a short tail group, billed as what it is.
Status CheckFormat(const Format& format, Side side, int head_dim);

// Both sides of one layer.
struct FormatPair {
  Format k, v;
  bool operator==(const FormatPair&) const = default;
};

// What --kv and the -ctk/-ctv flags say together: both sides, sinks and window.
struct KvSpec {
  Format k = kFormatF16;
  Format v = kFormatF16;
  int sinks_tokens = 4;          // the first tokens, kept as they came; 0 to 64
  int window_tokens = 64;        // newest tokens, kept as they came; a multiple of 64
  std::vector<int> skip_layers;  // layers whose pages stay f16
  // One a layer, instead of k and v; empty: k and v everywhere.
  std::vector<FormatPair> layers = {};
  // What fitted levels, smoothing and loaded rotations read; null where no format needs it.
  std::shared_ptr<const Calibration> calibration = nullptr;
  // Widths chosen token by token, in all layers that are not skipped; null: k and v everywhere. Set
  // it with SetMixed.
  std::shared_ptr<const MixedSpec> mixed = nullptr;

  bool operator==(const KvSpec&) const = default;
};

// A preset (KvPresetNames()), which may set sinks and window too; "K/V" with two specs of
// ParseFormat; or one spec for both sides, each on its own axis. A preset of the roadmap that this
// build does not hold is refused by name.
Result<KvSpec> ParseKvPreset(std::string_view preset);
std::vector<std::string> KvPresetNames();

// The shape of what a model caches.
struct KvGeometry {
  int layers = 0;
  int kv_heads = 0;
  int head_dim = 0;  // channels that a query multiplies
  int q_heads = 0;   // a multiple of kv_heads
  // Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): all query heads share one KV head,
  // of which a token holds a latent of this many channels and a key of the other ones, the only
  // ones that RoPE turns. Queries multiply both, [latent, RoPE key], and the latent is V too: it is
  // stored once, as the V side of a page, and the RoPE key is the K side. 0: no such attention.
  int latent_dim = 0;

  int group_ratio() const { return q_heads / kv_heads; }
  bool is_latent() const { return latent_dim != 0; }
  // Channels of the two sides of a page.
  int k_channels() const { return head_dim - latent_dim; }
  int v_channels() const { return is_latent() ? latent_dim : head_dim; }
  // Numbers that a token adds to the cache, in all layers.
  int64_t values_per_token() const {
    return int64_t{layers} * kv_heads * (k_channels() + v_channels());
  }
  bool operator==(const KvGeometry&) const = default;
};

// kInvalidArgument unless 1 <= layers <= 1024, heads and head_dim are positive and sane
// (head_dim 4..1024, a multiple of 4) and q_heads is a multiple of kv_heads. A latent asks for one
// KV head, and both of its parts are multiples of 4.
Status CheckGeometry(const KvGeometry& geometry);

// Checks formats, window, sinks, layer numbers and the calibration against a geometry: the one
// capability check that every entry point of a cache uses. A latent, being K and V, takes neither
// formats that treat them apart (rotated, balanced, smoothed, before RoPE) nor several widths.
Status CheckKvSpec(const KvSpec& spec, const KvGeometry& geometry);

// The formats of one layer after `layers` and skip_layers.
FormatPair LayerFormats(const KvSpec& spec, int layer);

}  // namespace kvant
