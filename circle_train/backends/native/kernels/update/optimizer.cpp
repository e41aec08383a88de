// The formulas stand at ct_update_kind in abi.h.
#include "update/optimizer.h"

#include <algorithm>

#include "run/table.h"

namespace ct {
namespace CT_TIER {
namespace {

struct Scalars {
  explicit Scalars(const float* s)
      : step(s[CT_SCALAR_STEP]), beta1(s[CT_SCALAR_BETA1]), eps(s[CT_SCALAR_EPS]), decay(s[CT_SCALAR_DECAY]),
        sqrt_bias2(s[CT_SCALAR_SQRT_BIAS2]), rest1(s[CT_SCALAR_ONE_MINUS_BETA1]), rest2(s[CT_SCALAR_ONE_MINUS_BETA2]),
        beta2(s[CT_SCALAR_BETA2]), limit(s[CT_SCALAR_LIMIT]) {}
  float step, beta1, eps, decay, sqrt_bias2, rest1, rest2, beta2, limit;
};

constexpr bool is_centered(int kind) { return kind == CT_UPDATE_RMSPROP_CENTERED || kind == CT_UPDATE_RMSPROP_CENTERED_MOMENTUM; }
constexpr bool is_rms_with_momentum(int kind) { return kind == CT_UPDATE_RMSPROP_MOMENTUM || kind == CT_UPDATE_RMSPROP_CENTERED_MOMENTUM; }

// RMSPROP and its kin, and ADAGRAD.
template <int Kind>
inline void move_by_root(const Scalars& s, vf step, vf g, vf& w, vf& m, vf& v, vf& a) {
  g += s.decay * w;
  if (Kind == CT_UPDATE_ADAGRAD) {
    v += g * g;
    w -= step * g / (sqrt(v + s.beta2) + s.eps);
    return;
  }
  v += (g * g - v) * s.rest2;
  vf spread = v;
  if (is_centered(Kind)) {
    a += (g - a) * s.rest2;
    spread = at_least(v - a * a, vf{});
  }
  g = g / (sqrt(spread) + s.eps);
  if (is_rms_with_momentum(Kind)) g = m = s.beta1 * m + g;
  w -= step * g;
}

template <int Kind>
inline void move(const Scalars& s, vf step, vf g, vf& w, vf& m, vf& v, vf& a) {
  if (Kind >= CT_UPDATE_RMSPROP) return move_by_root<Kind>(s, step, g, w, m, v, a);
  if (Kind == CT_UPDATE_ADAMW_TORCH) {
    w -= s.decay * w;
  } else if (Kind != CT_UPDATE_ADAMW_ORT) {
    g += s.decay * w;
  }
  if (Kind == CT_UPDATE_SGD) {
    w -= step * g;
  } else if (Kind == CT_UPDATE_MOMENTUM || Kind == CT_UPDATE_NESTEROV) {
    m = s.beta1 * m + s.rest1 * g;
    w -= step * (Kind == CT_UPDATE_NESTEROV ? g + s.beta1 * m : m);
  } else {
    m += (g - m) * s.rest1;
    v += (g * g - v) * s.rest2;
    vf root = sqrt(v);
    if (Kind == CT_UPDATE_ADAMW_TORCH) root /= s.sqrt_bias2;
    w -= step * m / (root + s.eps);
    if (Kind == CT_UPDATE_ADAMW_ORT) w -= s.decay * w;
  }
}

// What steps are counted in: a number for all elements, or one for each.
struct Unit {
  const float* of;
  bool for_each;
  vf at(int64_t i, int lanes) const { return for_each ? load_some(of + i, lanes) : splat(*of); }
};

template <int Kind>
void sweep(const ct_update& u, Unit unit, int64_t offset, const float* grad, int64_t n) {
  constexpr bool has_v = Kind >= CT_UPDATE_ADAM, has_a = is_centered(Kind);
  constexpr bool has_m = Kind >= CT_UPDATE_RMSPROP ? is_rms_with_momentum(Kind) : Kind != CT_UPDATE_SGD;
  const Scalars s(u.scalars);
  const float factor = u.factor ? *u.factor : 1.0f;
  float* const w = u.w + offset;
  float* const m = has_m ? u.m + offset : nullptr;
  float* const v = has_v ? u.v + offset : nullptr;
  float* const a = has_a ? u.a + offset : nullptr;
  const float* const more = u.accumulate ? u.g + offset : nullptr;
  each_vector(n, [&](int64_t i, auto lanes) {
    vf g = grad ? load_some(grad + i, lanes) : vf{};
    if (more) g += load_some(more + i, lanes);
    if (s.limit > 0) g = at_most(at_least(g, splat(-s.limit)), splat(s.limit));
    if (u.factor) g *= factor;
    vf wv = load_some(w + i, lanes);
    vf mv = has_m ? load_some(m + i, lanes) : vf{};
    vf vv = has_v ? load_some(v + i, lanes) : vf{};
    vf av = has_a ? load_some(a + i, lanes) : vf{};
    move<Kind>(s, unit.at(i, lanes) * s.step, g, wv, mv, vv, av);
    store_some(w + i, wv, lanes);
    if (has_m) store_some(m + i, mv, lanes);
    if (has_v) store_some(v + i, vv, lanes);
    if (has_a) store_some(a + i, av, lanes);
  });
}

void keep(const ct_update& u, int64_t offset, const float* grad, int64_t n) {
  float* const g = u.g + offset;
  if (!grad) {
    if (!u.accumulate) std::fill(g, g + n, 0.0f);
  } else if (u.accumulate) {
    each_vector(n, [&](int64_t i, auto lanes) { store_some(g + i, load_some(g + i, lanes) + load_some(grad + i, lanes), lanes); });
  } else {
    each_vector(n, [&](int64_t i, auto lanes) { store_some(g + i, load_some(grad + i, lanes), lanes); });
  }
}

void dispatch(const ct_update& u, Unit unit, int64_t offset, const float* grad, int64_t n) {
  switch (u.kind) {
    case CT_UPDATE_SGD: return sweep<CT_UPDATE_SGD>(u, unit, offset, grad, n);
    case CT_UPDATE_MOMENTUM: return sweep<CT_UPDATE_MOMENTUM>(u, unit, offset, grad, n);
    case CT_UPDATE_NESTEROV: return sweep<CT_UPDATE_NESTEROV>(u, unit, offset, grad, n);
    case CT_UPDATE_ADAM: return sweep<CT_UPDATE_ADAM>(u, unit, offset, grad, n);
    case CT_UPDATE_ADAMW_TORCH: return sweep<CT_UPDATE_ADAMW_TORCH>(u, unit, offset, grad, n);
    case CT_UPDATE_ADAMW_ORT: return sweep<CT_UPDATE_ADAMW_ORT>(u, unit, offset, grad, n);
    case CT_UPDATE_RMSPROP: return sweep<CT_UPDATE_RMSPROP>(u, unit, offset, grad, n);
    case CT_UPDATE_RMSPROP_CENTERED: return sweep<CT_UPDATE_RMSPROP_CENTERED>(u, unit, offset, grad, n);
    case CT_UPDATE_RMSPROP_MOMENTUM: return sweep<CT_UPDATE_RMSPROP_MOMENTUM>(u, unit, offset, grad, n);
    case CT_UPDATE_RMSPROP_CENTERED_MOMENTUM: return sweep<CT_UPDATE_RMSPROP_CENTERED_MOMENTUM>(u, unit, offset, grad, n);
    case CT_UPDATE_ADAGRAD: return sweep<CT_UPDATE_ADAGRAD>(u, unit, offset, grad, n);
    default: return keep(u, offset, grad, n);
  }
}

// Pieces whose units are one number, or lie one behind the other.
void in_units(const ct_update& u, int64_t offset, const float* grad, int64_t n) {
  const bool for_each = u.unit_each == 1;
  for (int64_t done = 0; done < n;) {
    const int64_t at = offset + done, entry = at / u.unit_each % u.unit_count;
    const int64_t rest = for_each ? u.unit_count - entry : u.unit_each - at % u.unit_each, count = std::min(rest, n - done);
    dispatch(u, {u.unit + entry, for_each}, at, grad ? grad + done : nullptr, count);
    done += count;
  }
}

}  // namespace

void apply_update(const ct_update& u, int64_t offset, const float* grad, int64_t n) {
  static const float one = 1;
  if (u.unit) return in_units(u, offset, grad, n);
  dispatch(u, {&one, false}, offset, grad, n);
}

bool rests_without_gradient(const ct_update& u) {
  return !u.accumulate && (u.kind == CT_UPDATE_SGD || u.kind == CT_UPDATE_ADAGRAD) && u.scalars[CT_SCALAR_DECAY] == 0;
}

void apply_zero_update(const ct_update& u, int64_t offset, int64_t n) {
  if (!rests_without_gradient(u)) apply_update(u, offset, nullptr, n);
}

int32_t clip_factor(Context&, const void* opaque) {
  const auto& t = *static_cast<const ct_clip_factor_args*>(opaque);
  double total = 0;
  for (int64_t p = 0; p < t.parts; ++p) total += t.sums[p];
  t.factor[0] = float(std::min(double(t.limit) / (std::sqrt(total) + 1e-6), 1.0));
  return CT_OK;
}

int32_t update(Context& context, const void* opaque) {
  const auto& args = *static_cast<const ct_update_args*>(opaque);
  constexpr int64_t block = 4096;
  context.parallel(ceil_div(args.size, block), double(args.size) * 0.3, [&](int, int64_t begin, int64_t end) {
    const int64_t first = begin * block, last = std::min(end * block, args.size);
    apply_update(args.update, first, args.grad + first, last - first);
  });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
