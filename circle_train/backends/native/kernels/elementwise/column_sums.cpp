#include "elementwise/column_sums.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int64_t kPivotRows = 32;

struct Moments {
  const float* x;
  const float* pivot;
  void ask(int64_t at) const { __builtin_prefetch(x + at, 0, 2); }
  template <class Lanes>
  void take(int64_t at, int64_t j, vf& sum, vf& squares, Lanes lanes) const {
    const vf d = load_some(x + at, lanes) - load_some(pivot + j, lanes);
    sum += d;
    squares += d * d;
  }
};

// The mean of some rows, roughly.
void find_pivot(const float* x, int64_t rows, int64_t cols, float* pivot) {
  std::fill(pivot, pivot + cols, 0.0f);
  for (int64_t r = 0; r < rows; ++r)
    each_vector(cols, [&](int64_t j, auto lanes) {
      store_some(pivot + j, load_some(pivot + j, lanes) + load_some(x + r * cols + j, lanes) * (1.0f / float(rows)), lanes);
    });
}

// Parts of different sizes and pivots joined: the mean of means, and squares about it.
void join(const ColumnSums& s, int64_t j, float* mean, float* variance) {
  double total = 0, squares = 0;
  for (int64_t p = 0; p < s.parts; ++p)
    total += double(s.pivots[p * s.cols + j]) * double(s.begin(p + 1) - s.begin(p)) + s.sums[p * 2 * s.cols + j];
  const double centre = total / double(s.rows);
  for (int64_t p = 0; p < s.parts; ++p) {
    const double n = double(s.begin(p + 1) - s.begin(p)), d = s.pivots[p * s.cols + j] - centre;
    squares += s.sums[(p * 2 + 1) * s.cols + j] + 2 * d * s.sums[p * 2 * s.cols + j] + n * d * d;
  }
  *mean = float(centre);
  *variance = float(std::max(squares, 0.0) / double(s.rows));
}

}  // namespace

void column_statistics(Context& context, const ColumnSums& s, const float* x, float* mean, float* variance) {
  context.parallel(s.parts, double(s.rows) * s.cols * 0.15, [&](int, int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t first = s.begin(p), last = s.begin(p + 1);
      float* const pivot = s.pivots + p * s.cols;
      find_pivot(x + first * s.cols, std::min(kPivotRows, last - first), s.cols, pivot);
      add_rows(Moments{x, pivot}, s.cols, first, last, s.height(), s.sums + p * 2 * s.cols);
    }
  });
  context.parallel(ceil_div(s.cols, 64), double(s.cols) * s.parts * 4, [&](int, int64_t begin, int64_t end) {
    for (int64_t j = begin * 64; j < std::min(end * 64, s.cols); ++j) join(s, j, mean + j, variance + j);
  });
}

}  // namespace CT_TIER
}  // namespace ct
