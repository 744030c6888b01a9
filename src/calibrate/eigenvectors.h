// Eigenvectors of a symmetric matrix, by Jacobi's rotations.
// Thread rules: pure function.
#pragma once

#include <vector>

namespace kvant {

// [n][n], column j the j-th eigenvector, orthonormal to about 1e-12; in no special order. The same
// bits on every host. matrix: [n][n], symmetric, finite.
std::vector<double> Eigenvectors(std::vector<double> matrix, int n);

}  // namespace kvant
