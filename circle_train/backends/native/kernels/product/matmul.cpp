// FULLY_CONNECTED, BATCH_MATMUL and their gradients.
#include <algorithm>

#include "vectors/stored.h"
#include "product/dense.h"
#include "product/gemm.h"
#include "product/pack.h"
#include "product/tile.h"

namespace ct {
namespace CT_TIER {
namespace {

// A read across its rows, or scattered.
struct StridedRows final : RowSource {
  const float* a;
  int64_t row, col;
  void rows(int64_t m0, int64_t mc, int64_t k0, int64_t kc, float* dst, int64_t dst_row) const override {
    const int64_t base = m0 * row + k0 * col;
    if (row == 1) return transpose(a + base, col, kc, mc, dst, dst_row);
    for (int64_t i = 0; i < mc; ++i)
      for (int64_t k = 0; k < kc; ++k) dst[i * dst_row + k] = a[base + i * row + k * col];
  }
};

bool is_empty(const ct_matmul_args& t) { return t.batch0 * t.batch1 == 0 || t.m == 0 || t.n == 0; }

RowsProduct product_of(const ct_matmul_args& t) {
  RowsProduct p;
  p.m = t.m, p.n = t.n, p.k = t.k;
  p.a = t.a, p.a_row = t.a_row;
  p.b = t.b, p.b_row = t.b_row, p.b_col = t.b_col;
  p.stored = t.stored.x ? &t.stored : nullptr;
  p.panels = t.panels;
  p.alpha = t.alpha;
  p.c = t.c, p.c_row = t.c_row;
  p.bias = t.bias, p.add = t.add, p.out_mask = t.out_mask_y;
  p.act = t.act, p.out_mask_act = t.out_mask_act;
  p.accumulate = t.accumulate != 0;
  p.bf16 = t.bf16;
  return p;
}

// Runs f(product) for batch entry i, its A gathered when it cannot be read in place.
template <class F>
void with_entry(const ct_matmul_args& t, int64_t i, F f) {
  const int64_t p = i / t.batch1, q = i % t.batch1;
  const int64_t a = p * t.a_batch0 + q * t.a_batch1, c = p * t.c_batch0 + q * t.c_batch1;
  RowsProduct entry = product_of(t);
  entry.a += a;
  entry.b += p * t.b_batch0 + q * t.b_batch1;
  entry.c += c;
  if (entry.add) entry.add += c;
  if (entry.out_mask) entry.out_mask += c;
  StridedRows strided;
  strided.a = entry.a;
  strided.row = t.a_row, strided.col = t.a_col;
  if (t.a_col != 1) entry.source = &strided;
  const LossRows loss(t.a, t.a_row, t.labels);
  if (t.labels.label) entry.source = &loss;
  f(entry);
}

int64_t entry_scratch(const ct_matmul_args& t, int workers) {
  int64_t bytes = 0;
  with_entry(t, 0, [&](const RowsProduct& p) { bytes = rows_scratch(p, workers); });
  return bytes;
}

// Few rows against weights as they lie (n rows of k): dot products, nothing packed, each weight read once.
constexpr int64_t kFarWeights = 1 << 18;  // floats: more than the second-level cache holds beside what else a network reads
constexpr int kDotA = sizeof(vf) == 64 ? 5 : 3, kDotB = sizeof(vf) == 64 ? 4 : 2;

bool use_dots(const ct_matmul_args& t) {
  return !t.bf16 && !t.labels.label && t.m <= CT_DOT_ROWS && t.k >= W && t.a_col == 1 && t.b_row == 1 && t.b_col != 1 && t.batch0 * t.batch1 == 1;
}

// far: the weights lie in no near cache, so the next rows are asked for.
template <int A, int B>
void dots(const float* a, int64_t a_row, const float* b, int64_t b_row, int64_t k, bool far, float* out) {
  vf acc[A][B];
  for (int i = 0; i < A; ++i)
    for (int j = 0; j < B; ++j) acc[i][j] = vf{};
  each_vector(k, [&](int64_t at, auto lanes) {
    vf bv[B];
#pragma GCC unroll 4
    for (int j = 0; j < B; ++j) bv[j] = load_some(b + j * b_row + at, lanes);
    if (far) {
#pragma GCC unroll 4
      for (int j = 0; j < B; ++j) __builtin_prefetch(b + (B + j) * b_row + at, 0, 2);
    }
#pragma GCC unroll 5
    for (int i = 0; i < A; ++i) {
      const vf av = load_some(a + i * a_row + at, lanes);
#pragma GCC unroll 4
      for (int j = 0; j < B; ++j) acc[i][j] += av * bv[j];
    }
  });
  for (int i = 0; i < A; ++i)
    for (int j = 0; j < B; ++j) out[i * kDotB + j] = sum(acc[i][j]);
}

// What follows the sums v at element `at` of c, column j.
struct Ending {
  explicit Ending(const ct_matmul_args& args) : t(args), act(clamp_of(args.act)), mask(clamp_of(args.out_mask_act)) {}
  const ct_matmul_args& t;
  Clamp act, mask;

  template <class Lanes>
  void put(int64_t at, int64_t j, vf v, Lanes lanes) const {
    v *= t.alpha;
    if (t.bias) v += load_some(t.bias + j, lanes);
    if (t.add) v += load_some(t.add + at, lanes);
    if (t.accumulate) v += load_some(t.c + at, lanes);
    v = activate(v, act);
    if (t.out_mask_y) v = masked(v, load_some(t.out_mask_y + at, lanes), mask);
    store_some(t.c + at, v, lanes);
  }
};

using Dots = void (*)(const float*, int64_t, const float*, int64_t, int64_t, bool, float*);
template <int A>
constexpr Dots dots_for_b[4] = {dots<A, 1>, dots<A, 2>, kDotB > 2 ? dots<A, 3> : nullptr, kDotB > 3 ? dots<A, 4> : nullptr};
constexpr const Dots* dots_for[5] = {dots_for_b<1>, dots_for_b<2>, dots_for_b<3>, dots_for_b<4>, dots_for_b<5>};

// Room for a worker's rows of weights, where they lie as integers.
int64_t dots_row(const ct_matmul_args& t) { return t.stored.x ? round_up(kDotB * t.k, 16) : 0; }

const float* weights_of(const ct_matmul_args& t, int64_t n0, int64_t rows, float* widened) {
  if (!t.stored.x) return t.b + n0 * t.b_col;
  for (int64_t j = 0; j < rows; ++j)
    widen_row(t.stored, Bytes(t.stored), t.stored.channels > 1 ? n0 + j : 0, (n0 + j) * t.b_col, t.k, widened + j * t.b_col);
  return widened;
}

void run_dots(Context& context, const ct_matmul_args& t) {
  const Ending ending(t);
  float* const widened = reinterpret_cast<float*>(context.scratch());
  const int64_t groups = ceil_div(t.m, kDotA), step = ceil_div(t.m, groups);
  const bool far = !t.stored.x && t.n * t.k > kFarWeights;
  context.parallel(ceil_div(t.n, kDotB), double(t.m) * t.n * t.k / 80, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t n0 = begin * kDotB; n0 < std::min(end * kDotB, t.n); n0 += kDotB) {
      const int64_t cols = std::min<int64_t>(kDotB, t.n - n0);
      const float* const weights = weights_of(t, n0, cols, widened + worker * dots_row(t));
      for (int64_t m0 = 0; m0 < t.m; m0 += step) {
        const int64_t rows = std::min(step, t.m - m0);
        float out[kDotA * kDotB];
        dots_for[rows - 1][cols - 1](t.a + m0 * t.a_row, t.a_row, weights, t.b_col, t.k, far, out);
        for (int64_t i = 0; i < rows; ++i)
          ending.put((m0 + i) * t.c_row + n0, n0, load_n(out + i * kDotB, cols), int(cols));
      }
    }
  });
}

// Few rows against many weights as they lie (k rows of n), in two sums: so one core reads here the rows of weights that it read
// forward and will move. Where cores share no cache, what another has read is slow to write, and what it wrote slow to read.
constexpr int64_t kManyWeights = 1 << 16;
constexpr int64_t kSplitColumns = 384;

bool splits_sums(const ct_matmul_args& t) {
  return !t.bf16 && !t.stored.x && !t.labels.label && t.m <= CT_DOT_ROWS && t.k >= 2 * W && t.n * t.k >= kManyWeights && t.a_col == 1 &&
         t.b_col == 1 && t.batch0 * t.batch1 == 1;
}

// Both parts go from the middle outwards: what the hardware asks for beyond their ends is nothing of the other's.
struct SplitSums {
  SplitSums(const ct_matmul_args& args, char* scratch, int workers) : t(args), middle(args.k / 2) {
    cols = round_up(ceil_div(t.n, ceil_div(t.n, kSplitColumns)), kTileCols), units = ceil_div(t.n, cols);
    Carver carver(scratch);
    turned = carver.take<float>(t.m * middle);
    sums = carver.take<float>(2 * t.m * t.n);
    own = std::max(round_up(rows_alone_scratch(product(1, 0)), 64), round_up(rows_alone_scratch(product(1, units - 1)), 64));
    mine = carver.take<char>(own * workers);
    size = carver.used();
  }
  // The sums over one part for a unit of columns, nothing added.
  RowsProduct product(int64_t part, int64_t unit) const {
    const int64_t n0 = unit * cols, low = part ? middle : 0, high = part ? t.k : middle;
    RowsProduct p;
    p.m = t.m, p.n = std::min(cols, t.n - n0), p.k = high - low;
    p.a = part ? t.a + low : turned, p.a_row = part ? t.a_row : middle;
    p.b = t.b + (part ? low : high - 1) * t.b_row + n0, p.b_row = part ? t.b_row : -t.b_row;
    p.c = sums + part * t.m * t.n + n0, p.c_row = t.n;
    return p;
  }
  void turn() const {
    for (int64_t i = 0; i < t.m; ++i) std::reverse_copy(t.a + i * t.a_row, t.a + i * t.a_row + middle, turned + i * middle);
  }
  const ct_matmul_args& t;
  int64_t middle, cols, units, own, size;
  float *turned, *sums;
  char* mine;
};

void run_split(Context& context, const ct_matmul_args& t) {
  const SplitSums h(t, context.scratch(), context.workers());
  h.turn();
  context.parallel(2 * h.units, double(t.m) * t.n * t.k / 100, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) run_rows_alone(h.product(i / h.units, i % h.units), h.mine + worker * h.own);
  });
  const Ending ending(t);
  context.parallel(t.m, double(t.m) * t.n * 0.3, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      each_vector(t.n, [&](int64_t j, auto lanes) {
        const float* const at = h.sums + i * t.n + j;
        ending.put(i * t.c_row + j, j, load_some(at, lanes) + load_some(at + t.m * t.n, lanes), lanes);
      });
  });
}

struct GradW {
  explicit GradW(const ct_matmul_grad_w_args& t)
      : dy(t.dy, t.out_features), x(t.x, t.in_features), loss(t.dy, t.out_features, t.labels) {
    p.k = t.rows;
    x.bf16 = t.bf16 & CT_BF16_X;
    p.transposed = suits_transposed(t.out_features, t.in_features);
    const DenseMatrix &a = p.transposed ? x : dy, &b = p.transposed ? dy : x;
    p.m = a.row, p.n = b.row;
    p.a = &a, p.b = &b;
    p.a_dense = a.x, p.a_bf16 = a.bf16;
    p.b_dense = b.x, p.b_row = b.row, p.b_bf16 = b.bf16;
    if (t.labels.label && p.transposed) p.b = &loss, p.b_dense = nullptr;
    if (t.labels.label && !p.transposed) p.a = &loss, p.a_dense = nullptr;
    p.w = t.has_w ? &t.w : nullptr;
    p.bias = t.has_b ? &t.b : nullptr;
    p.bf16 = t.bf16;
  }
  GradW(const GradW&) = delete;
  DenseMatrix dy, x;
  LossRows loss;
  SumProduct p;
};

}  // namespace

int64_t matmul_scratch(const void* opaque, int threads) {
  const auto& t = *static_cast<const ct_matmul_args*>(opaque);
  if (is_empty(t)) return 0;
  if (use_dots(t)) return dots_row(t) * threads * int64_t(sizeof(float));
  if (t.stored.x && t.bf16) return widened_scratch(t, threads, matmul_scratch);
  if (splits_sums(t)) return SplitSums(t, nullptr, threads).size;
  const int64_t batch = t.batch0 * t.batch1;
  return batch >= 4 ? round_up(entry_scratch(t, 1), 64) * threads : entry_scratch(t, threads);
}

int32_t matmul(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_matmul_args*>(opaque);
  if (is_empty(t)) return CT_OK;
  if (use_dots(t)) {
    run_dots(context, t);
    return CT_OK;
  }
  if (t.stored.x && t.bf16) return run_widened(context, t, &ct_matmul_args::b, matmul);
  if (splits_sums(t)) {
    run_split(context, t);
    return CT_OK;
  }
  const int64_t batch = t.batch0 * t.batch1;
  if (batch < 4) {
    for (int64_t i = 0; i < batch; ++i)
      with_entry(t, i, [&](const RowsProduct& p) { run_rows(context, p, context.scratch()); });
    return CT_OK;
  }
  const int64_t own = round_up(entry_scratch(t, 1), 64);
  context.parallel(batch, double(batch) * t.m * t.n * t.k / 80, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      with_entry(t, i, [&](const RowsProduct& p) { run_rows_alone(p, context.scratch() + worker * own); });
  });
  return CT_OK;
}

int64_t matmul_panels_scratch(const void* opaque, int) {
  const auto& t = *static_cast<const ct_matmul_args*>(opaque);
  if (is_empty(t) || use_dots(t) || splits_sums(t) || t.batch0 * t.batch1 != 1) return 0;
  int64_t bytes = 0;
  with_entry(t, 0, [&](const RowsProduct& p) { bytes = panel_bytes(p); });
  return bytes;
}

int32_t matmul_panels(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_matmul_args*>(opaque);
  if (matmul_panels_scratch(opaque, context.workers()) > 0)
    with_entry(t, 0, [&](const RowsProduct& p) { keep_panels(context, p, reinterpret_cast<float*>(context.scratch())); });
  return CT_OK;
}

int64_t matmul_grad_w_scratch(const void* opaque, int threads) {
  const GradW g(*static_cast<const ct_matmul_grad_w_args*>(opaque));
  return sum_scratch(g.p, threads);
}

int32_t matmul_grad_w(Context& context, const void* opaque) {
  const GradW g(*static_cast<const ct_matmul_grad_w_args*>(opaque));
  run_sum(context, g.p, context.scratch());
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
