// Two sums of every column of a matrix at once, over fixed parts of its rows: statistics, and what gradients of them want.
#pragma once

#include <algorithm>

#include "run/kernel.h"
#include "vectors/simd.h"

namespace ct {
namespace CT_TIER {

// The parts' sums; how many parts there are is a function of the problem alone.
struct ColumnSums {
  static constexpr int64_t kLeast = 8192;  // elements of a part
  static constexpr int64_t kMost = 48;     // parts
  static constexpr int64_t kNear = 4096;   // elements that stay in the nearest cache, column group by column group

  int64_t rows, cols, parts;
  float* sums;    // parts x 2 x cols
  float* pivots;  // parts x cols: what the columns are measured from; NULL: from 0

  static ColumnSums carve(Carver& carver, int64_t rows, int64_t cols, bool pivoted) {
    ColumnSums s{rows, cols, std::max<int64_t>(1, std::min(std::min(kMost, rows), rows * cols / kLeast)), nullptr, nullptr};
    s.sums = carver.take<float>(s.parts * 2 * cols);
    s.pivots = pivoted ? carver.take<float>(s.parts * cols) : nullptr;
    return s;
  }
  int64_t begin(int64_t part) const { return rows * part / parts; }
  int64_t height() const { return std::max<int64_t>(4, kNear / cols); }
  double first(int64_t j) const { return total(j); }
  double second(int64_t j) const { return total(cols + j); }

 private:
  double total(int64_t j) const {
    double sum = 0;
    for (int64_t p = 0; p < parts; ++p) sum += sums[p * 2 * cols + j];
    return sum;
  }
};

// Rows first..last of the columns from j on: what `source` takes of them joins `to`. Few rows are added before they join,
// as sums of sums lose less.
template <int N, class Source, class Lanes>
inline void add_group(const Source& source, int64_t cols, int64_t first, int64_t last, int64_t ahead, int64_t j, float* to, Lanes lanes) {
  vf sum[N], product[N];
  for (int v = 0; v < N; ++v) sum[v] = product[v] = vf{};
  for (int64_t r = first; r < last; ++r) {
    const int64_t at = r * cols + j;
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) {
      source.ask(at + ahead + v * W);
      source.take(at + v * W, j + v * W, sum[v], product[v], lanes);
    }
  }
  for (int v = 0; v < N; ++v) {
    float* const a = to + j + v * W;
    store_some(a, load_some(a, lanes) + sum[v], lanes);
    store_some(a + cols, load_some(a + cols, lanes) + product[v], lanes);
  }
}

template <class Source>
inline void add_rows(const Source& source, int64_t cols, int64_t first, int64_t last, int64_t height, float* to) {
  std::fill(to, to + 2 * cols, 0.0f);
  for (int64_t r = first; r < last; r += height) {
    const int64_t stop = std::min(r + height, last), ahead = stop < last ? height * cols : 0;
    int64_t j = 0;
    for (; j + 4 * W <= cols; j += 4 * W) add_group<4>(source, cols, r, stop, ahead, j, to, Whole());
    for (; j + W <= cols; j += W) add_group<1>(source, cols, r, stop, ahead, j, to, Whole());
    if (j < cols) add_group<1>(source, cols, r, stop, ahead, j, to, int(cols - j));
  }
}

// source.take(at, column, sum, product, lanes) adds the elements at `at` to both sums; source.ask(at) asks for memory ahead.
template <class Source>
void add_columns(Context& context, const ColumnSums& s, const Source& source) {
  context.parallel(s.parts, double(s.rows) * s.cols * 0.25, [&](int, int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) add_rows(source, s.cols, s.begin(p), s.begin(p + 1), s.height(), s.sums + p * 2 * s.cols);
  });
}

// Mean and variance of each column of x (s.rows x s.cols); each part measures from the mean of its first rows.
void column_statistics(Context& context, const ColumnSums& s, const float* x, float* mean, float* variance);

}  // namespace CT_TIER
}  // namespace ct
