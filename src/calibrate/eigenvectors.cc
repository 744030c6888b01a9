#include "calibrate/eigenvectors.h"

#include <cmath>
#include <cstddef>

namespace kvant {
namespace {

constexpr int kMaxSweeps = 30;  // six to ten are usual
constexpr double kOffDiagonal = 1e-24;

class Jacobi {
 public:
  Jacobi(std::vector<double> matrix, int n)
      : n_(static_cast<size_t>(n)), a_(std::move(matrix)), vectors_(n_ * n_, 0.0) {
    for (size_t i = 0; i < n_; ++i) vectors_[i * n_ + i] = 1;
  }

  std::vector<double> Run() {
    double diagonal = 0;
    for (size_t i = 0; i < n_; ++i) diagonal += At(i, i) * At(i, i);
    for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
      double off = 0;
      for (size_t p = 0; p < n_; ++p) {
        for (size_t q = p + 1; q < n_; ++q) off += At(p, q) * At(p, q);
      }
      if (off <= kOffDiagonal * diagonal) break;
      for (size_t p = 0; p < n_; ++p) {
        for (size_t q = p + 1; q < n_; ++q) Annihilate(p, q);
      }
    }
    return std::move(vectors_);
  }

 private:
  double& At(size_t i, size_t j) { return a_[i * n_ + j]; }

  // Turns axes p and q so that their product vanishes.
  void Annihilate(size_t p, size_t q) {
    if (At(p, q) == 0) return;
    const double theta = (At(q, q) - At(p, p)) / (2 * At(p, q));
    const double t = std::copysign(1.0, theta) / (std::fabs(theta) + std::sqrt(theta * theta + 1));
    const double c = 1 / std::sqrt(t * t + 1), s = t * c;
    const auto turn = [&](double& x, double& y) {
      const double before = x;
      x = c * before - s * y;
      y = s * before + c * y;
    };
    for (size_t i = 0; i < n_; ++i) turn(At(i, p), At(i, q));
    for (size_t i = 0; i < n_; ++i) turn(At(p, i), At(q, i));
    for (size_t i = 0; i < n_; ++i) turn(vectors_[i * n_ + p], vectors_[i * n_ + q]);
  }

  const size_t n_;
  std::vector<double> a_, vectors_;
};

}  // namespace

std::vector<double> Eigenvectors(std::vector<double> matrix, int n) {
  return Jacobi(std::move(matrix), n).Run();
}

}  // namespace kvant
