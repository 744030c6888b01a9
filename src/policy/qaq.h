// QAQ (arXiv 2403.04643): the width of a token from the error that attention may have.
//
// An error of V reaches the output times the token's probability S; one of K moves logits. With a
// bound on the error sigma that a token may have, and an error of step / (2 sqrt 3) of a uniform
// code over `range`, the width follows. The paper's formula and the published code's differ by
// about a bit, since the code counts its error as half a step's range: both are here.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>

namespace kvant {

enum class QaqFormula { kPaper, kCode };

// Bits for a token of a sequence of `tokens`; may be negative or, where there is nothing to lose
// (range or score 0), -infinity. error > 0; score: the token's largest probability of the last
// queries.
double QaqValueBits(QaqFormula formula, double error, int64_t tokens, double score, double range);

// logit_error > 0: the bound on the error of probabilities; query_energy: sum of q^2 over channels.
// REQUIRES: tokens > 1, query_energy > 0. Grows only with the logarithm of the bound's: nearly
// flat.
double QaqKeyBits(QaqFormula formula, double logit_error, int64_t tokens, double query_energy,
                  double range);

}  // namespace kvant
