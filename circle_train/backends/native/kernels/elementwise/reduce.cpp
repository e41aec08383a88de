// Reductions over any set of axes. Axes with the same fate that lie together are one; the last one decides how vectors are
// used: along it when it is reduced, side by side when it is kept. Long reductions are cut into fixed parts.
#include <algorithm>
#include <limits>

#include "vectors/simd.h"
#include "run/table.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int64_t kRun = 4096;   // elements of one contiguous piece
constexpr int64_t kColumns = 4 * W;
constexpr int64_t kRowsAtOnce = 128;  // rows added before they join the total: sums of sums lose less

struct Axes {
  int rank = 0;
  int64_t size[CT_MAX_RANK], stride[CT_MAX_RANK];
  int64_t count() const {
    int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= size[d];
    return n;
  }
};

// Walks an Axes in order from a given index.
struct Walk {
  const Axes& axes;
  int64_t index[CT_MAX_RANK] = {};
  int64_t offset = 0;
  Walk(const Axes& a, int64_t from) : axes(a) {
    for (int d = a.rank - 1; d >= 0 && from > 0; --d) {
      index[d] = from % a.size[d];
      from /= a.size[d];
      offset += index[d] * a.stride[d];
    }
  }
  void next() {
    for (int d = axes.rank - 1; d >= 0; --d) {
      offset += axes.stride[d];
      if (++index[d] < axes.size[d]) return;
      offset -= axes.size[d] * axes.stride[d];
      index[d] = 0;
    }
  }
};

struct Plan {
  const ct_reduce_args& args;
  Axes kept, reduced;       // without the last axis
  int64_t length = 1;       // of the last axis
  bool along = false;       // it is reduced
  int64_t outputs, groups;  // groups: units of outputs
  int64_t items, splits;    // items: rows or runs to reduce for one output
};

Plan plan_of(const ct_reduce_args& args) {
  Plan p{args, {}, {}, 1, false, 1, 1, 1, 1};
  int64_t size[CT_MAX_RANK];
  bool reduce[CT_MAX_RANK];
  int rank = 0;
  for (int d = 0; d < args.rank; ++d) {
    if (args.shape[d] == 1) continue;
    const bool flag = args.reduce[d] != 0;
    if (rank > 0 && reduce[rank - 1] == flag) {
      size[rank - 1] *= args.shape[d];
    } else {
      size[rank] = args.shape[d];
      reduce[rank++] = flag;
    }
  }
  int64_t stride = 1;
  if (rank > 0) p.length = size[rank - 1], p.along = reduce[rank - 1];
  int64_t strides[CT_MAX_RANK];
  for (int d = rank - 1; d >= 0; --d) strides[d] = stride, stride *= size[d];
  for (int d = 0; d < rank - 1; ++d) {
    Axes& axes = reduce[d] ? p.reduced : p.kept;
    axes.size[axes.rank] = size[d];
    axes.stride[axes.rank++] = strides[d];
  }
  const int64_t kept = p.kept.count(), runs = p.along ? ceil_div(p.length, kRun) : 1;
  p.outputs = p.along ? kept : kept * p.length;
  p.groups = p.along ? kept : kept * ceil_div(p.length, kColumns);
  p.items = p.reduced.count() * runs;
  const int64_t item = p.along ? std::min(p.length, kRun) : std::min(p.length, kColumns);
  // Of one sample, where the first axis is the samples': what becomes of it must not depend on how many others there are.
  const bool samples = args.rank > 0 && !args.reduce[0] && args.shape[0] > 0;
  const int64_t groups = samples ? p.groups / args.shape[0] : p.groups;
  if (groups < 16 && p.items * item > 32768) p.splits = std::min(p.items, ceil_div(32, std::max<int64_t>(1, groups)));
  return p;
}

struct Sum {
  static vf start() { return vf{}; }
  static vf take(vf total, vf x) { return total + x; }
  static vf join(vf a, vf b) { return a + b; }
};
struct SumSquares : Sum {
  static vf take(vf total, vf x) { return total + x * x; }
};
struct Max {
  static vf start() { return splat(-std::numeric_limits<float>::infinity()); }
  static vf take(vf total, vf x) { return maximum(total, x); }
  static vf join(vf a, vf b) { return maximum(a, b); }
};
struct Min {
  static vf start() { return splat(std::numeric_limits<float>::infinity()); }
  static vf take(vf total, vf x) { return minimum(total, x); }
  static vf join(vf a, vf b) { return minimum(a, b); }
};
struct Prod {
  static vf start() { return splat(1.0f); }
  static vf take(vf total, vf x) { return total * x; }
  static vf join(vf a, vf b) { return a * b; }
};

template <class Op>
float fold(vf v) {
  vf total = splat(v[0]);
  for (int i = 1; i < W; ++i) total = Op::join(total, splat(v[i]));
  return total[0];
}

template <class Op>
float run_along(const float* x, int64_t n) {
  vf acc[4] = {Op::start(), Op::start(), Op::start(), Op::start()};
  int64_t i = 0;
  for (; i + 4 * W <= n; i += 4 * W)
    for (int j = 0; j < 4; ++j) acc[j] = Op::take(acc[j], load(x + i + j * W));
  for (; i + W <= n; i += W) acc[0] = Op::take(acc[0], load(x + i));
  vf total = Op::join(Op::join(acc[0], acc[1]), Op::join(acc[2], acc[3]));
  if (i < n) {
    const vf tail = Op::take(Op::start(), load_n(x + i, n - i));
    for (int64_t j = 0; j < n - i; ++j) total[j] = Op::join(splat(total[j]), splat(tail[j]))[0];
  }
  return fold<Op>(total);
}

// Items first..last of output `group`.
template <class Op>
float reduce_along(const Plan& p, int64_t group, int64_t first, int64_t last) {
  const float* const x = p.args.x + Walk(p.kept, group).offset;
  const int64_t runs = std::max<int64_t>(1, ceil_div(p.length, kRun));
  Walk walk(p.reduced, first / runs);
  vf total = Op::start();
  for (int64_t i = first; i < last; ++i) {
    const int64_t at = i % runs * kRun;
    total = Op::join(total, splat(run_along<Op>(x + walk.offset + at, std::min(kRun, p.length - at))));
    if (i % runs == runs - 1) walk.next();
  }
  return total[0];
}

// Rows first..last of a group of columns, to y[0..columns).
template <class Op>
void reduce_across(const Plan& p, int64_t group, int64_t first, int64_t last, float* y) {
  const int64_t blocks = ceil_div(p.length, kColumns), c0 = group % blocks * kColumns;
  const int64_t columns = std::min(kColumns, p.length - c0);
  const float* const x = p.args.x + Walk(p.kept, group / blocks).offset + c0;
  Walk walk(p.reduced, first);
  vf total[4] = {Op::start(), Op::start(), Op::start(), Op::start()};
  for (int64_t r = first; r < last;) {
    const int64_t stop = std::min(last, r + kRowsAtOnce);
    vf acc[4] = {Op::start(), Op::start(), Op::start(), Op::start()};
    for (; r < stop; ++r, walk.next()) {
      const float* const row = x + walk.offset;
      if (columns == kColumns) {
        for (int j = 0; j < 4; ++j) acc[j] = Op::take(acc[j], load(row + j * W));
      } else {
        each_vector(columns, [&](int64_t j, auto lanes) { acc[j / W] = Op::take(acc[j / W], load_some(row + j, lanes)); });
      }
    }
    for (int j = 0; j < 4; ++j) total[j] = Op::join(total[j], acc[j]);
  }
  each_vector(columns, [&](int64_t j, auto lanes) { store_some(y + j, total[j / W], lanes); });
}

int64_t output_of(const Plan& p, int64_t group) {
  if (p.along) return group;
  const int64_t blocks = ceil_div(p.length, kColumns);
  return group / blocks * p.length + group % blocks * kColumns;
}

template <class Op>
void run(Context& context, const Plan& p, float* parts) {
  const int64_t per_item = p.along ? std::min(p.length, kRun) : std::min(p.length, kColumns);
  const double work = double(p.groups) * p.items * (per_item * 0.06 + 2);
  context.parallel(p.groups * p.splits, work, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t group = i / p.splits, split = i % p.splits;
      const int64_t first = p.items * split / p.splits, last = p.items * (split + 1) / p.splits;
      float* const to = parts + split * p.outputs + output_of(p, group);
      if (p.along) {
        *to = reduce_along<Op>(p, group, first, last);
      } else {
        reduce_across<Op>(p, group, first, last, to);
      }
    }
  });
  const bool sums = p.args.op == CT_REDUCE_SUM || p.args.op == CT_REDUCE_SUM_SQUARES;
  float* const y = p.args.y;
  constexpr int64_t kPiece = 4096;
  context.parallel(ceil_div(p.outputs, kPiece), double(p.outputs) * p.splits * 0.1, [&](int, int64_t begin, int64_t end) {
    const int64_t from = begin * kPiece, n = std::min(end * kPiece, p.outputs) - from;
    each_vector(n, [&](int64_t j, auto lanes) {
      vf total = load_some(parts + from + j, lanes);
      for (int64_t s = 1; s < p.splits; ++s) total = Op::join(total, load_some(parts + s * p.outputs + from + j, lanes));
      if (sums) total *= p.args.scale;
      if (p.args.accumulate) total += load_some(y + from + j, lanes);
      store_some(y + from + j, total, lanes);
    });
  });
}

}  // namespace

int64_t reduce_scratch(const void* opaque, int) {
  const Plan p = plan_of(*static_cast<const ct_reduce_args*>(opaque));
  return p.splits * p.outputs * int64_t(sizeof(float));
}

int32_t reduce(Context& context, const void* opaque) {
  const Plan p = plan_of(*static_cast<const ct_reduce_args*>(opaque));
  float* const parts = reinterpret_cast<float*>(context.scratch());
  switch (p.args.op) {
    case CT_REDUCE_SUM: run<Sum>(context, p, parts); return CT_OK;
    case CT_REDUCE_MAX: run<Max>(context, p, parts); return CT_OK;
    case CT_REDUCE_MIN: run<Min>(context, p, parts); return CT_OK;
    case CT_REDUCE_SUM_SQUARES: run<SumSquares>(context, p, parts); return CT_OK;
    case CT_REDUCE_PROD: run<Prod>(context, p, parts); return CT_OK;
    default: return CT_BAD_KERNEL;
  }
}

}  // namespace CT_TIER
}  // namespace ct
