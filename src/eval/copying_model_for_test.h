// A model with weights set by hand that goes on as the text did before: after a byte it writes what
// followed that byte earlier, digits before all else. So it finds a number that is hidden among
// words, if no digit of it but the last stands in it twice.
//
// Every byte is a token with a code of 64 signs. The residual stream holds the codes of the byte,
// of the byte before and of the answer, a constant, and whether the byte is a digit. The first
// layer attends to the position before (the rotation of a constant key, turned back by one step)
// and copies its code; the second attends to the bytes whose predecessor is the byte at hand.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "model/toy_model_for_test.h"
#include "model/unicode_bytes.h"

namespace kvant {

inline ToyModel CopyingModel() {
  constexpr int kCode = 64, kBefore = kCode, kAnswer = 2 * kCode, kOne = 3 * kCode;
  constexpr int kDigit = kOne + 1, kRotated = 16, kMark = kRotated + kCode;
  constexpr double kBase = 1000;
  ToyModel toy({.layers = 2,
                .embedding = 224,
                .feed_forward = 32,
                .q_heads = 1,
                .kv_heads = 1,
                .head_dim = 96,
                .vocab = 256,
                .rope_dims = kRotated});
  toy.numbers["llama.context_length"] = 2048;
  toy.floats["llama.rope.freq_base"] = static_cast<float>(kBase);
  for (int byte = 0; byte < 256; ++byte) {
    toy.spellings[static_cast<size_t>(byte)].clear();
    AppendUtf8(ByteStandIn(static_cast<uint8_t>(byte)), toy.spellings[static_cast<size_t>(byte)]);
  }
  for (auto& [name, tensor] : toy.tensors) {
    const float value = name.ends_with("norm.weight") ? 1.0f : 0.0f;
    for (float& x : tensor.values) x = value;
  }
  const auto set = [&](const std::string& name, int row, int column, double value) {
    ToyModel::Tensor& tensor = toy.tensors.at(name);
    tensor.values[static_cast<size_t>(row * tensor.dims[0] + column)] = static_cast<float>(value);
  };
  RandomStream random(1);
  for (int token = 0; token < 256; ++token) {
    for (int i = 0; i < kCode; ++i) {
      const double sign = random.Next() % 2 == 0 ? 1 : -1;
      set("token_embd.weight", token, i, sign);
      set("output.weight", token, kAnswer + i, sign);
    }
    set("token_embd.weight", token, kOne, 1);
    if (token >= '0' && token <= '9') set("token_embd.weight", token, kDigit, 1);
  }
  // Norms multiply by what makes the root of the mean square 1: of 65 ones, then of 129.
  const double first_norm = std::sqrt(224.0 / 65), second_norm = std::sqrt(224.0 / 129);
  const double root = std::sqrt(96.0);  // that scores are divided by
  // A pair scores 60 times the cosine of its angle to the position before: all eight together 33
  // less at the best of the other positions.
  const double turn = std::sqrt(60.0 * root) / first_norm;
  for (int pair = 0; pair < kRotated / 2; ++pair) {
    const double angle = std::pow(kBase, -2.0 * pair / kRotated);
    set("blk.0.attn_k.weight", 2 * pair, kOne, turn);
    set("blk.0.attn_q.weight", 2 * pair, kOne, turn * std::cos(angle));
    set("blk.0.attn_q.weight", 2 * pair + 1, kOne, -turn * std::sin(angle));
  }
  // A match scores 68, codes of other bytes about half of it at most, a digit 27 more.
  const double match = std::sqrt(68.0 / kCode * root) / second_norm;
  const double digit = std::sqrt(27.0 * root) / second_norm;
  set("blk.1.attn_q.weight", kMark, kOne, digit);
  set("blk.1.attn_k.weight", kMark, kDigit, digit);
  for (int i = 0; i < kCode; ++i) {
    set("blk.1.attn_q.weight", kRotated + i, i, match);
    set("blk.1.attn_k.weight", kRotated + i, kBefore + i, match);
    for (const std::string block : {"blk.0.", "blk.1."}) set(block + "attn_v.weight", i, i, 1);
    set("blk.0.attn_output.weight", kBefore + i, i, 1 / first_norm);
    set("blk.1.attn_output.weight", kAnswer + i, i, 1 / second_norm);
  }
  return toy;
}

}  // namespace kvant
