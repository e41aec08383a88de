#include "elementwise/chain_ops.h"

#include "vectors/activation.h"
#include "vectors/bf16.h"

#include "run/abi.h"
#include "vectors/vecmath.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr float kInverseSqrt2 = 0.70710678118654752f;
constexpr float kInverseSqrt2Pi = 0.39894228040143268f;
constexpr float kSqrt2OverPi = 0.79788456080286536f;
constexpr float kCubic = 0.044715f;

inline vf truth(vi condition) { return condition ? splat(1.0f) : vf{}; }
inline vi is_true(vf a) { return a != vf{}; }

template <class F>
inline void unary(const float* a, float* y, int64_t n, F f) {
  each_vector(n, [&](int64_t i, auto lanes) { store_some(y + i, f(load_some(a + i, lanes)), lanes); });
}
template <class F>
inline void binary(const float* a, const float* b, float* y, int64_t n, F f) {
  each_vector(n, [&](int64_t i, auto lanes) {
    store_some(y + i, f(load_some(a + i, lanes), load_some(b + i, lanes)), lanes);
  });
}
template <class F>
inline void ternary(const float* a, const float* b, const float* c, float* y, int64_t n, F f) {
  each_vector(n, [&](int64_t i, auto lanes) {
    store_some(y + i, f(load_some(a + i, lanes), load_some(b + i, lanes), load_some(c + i, lanes)), lanes);
  });
}
template <class F>
inline void scalar(const float* a, const float* b, float* y, int64_t n, F f) {
  for (int64_t i = 0; i < n; ++i) y[i] = f(a[i], b[i]);
}

inline vf phi(vf x) { return 0.5f + 0.5f * erf(x * kInverseSqrt2); }

inline vf gelu_grad(vf x, vf dy) { return dy * (phi(x) + x * kInverseSqrt2Pi * exp(-0.5f * x * x)); }

inline vf gelu_tanh(vf x) { return 0.5f * x * (1.0f + tanh(kSqrt2OverPi * (x + kCubic * x * x * x))); }

// With e = exp(-2|u|): (1 + tanh u)/2 and 1 - tanh(u)^2 without cancellation.
inline vf gelu_tanh_grad(vf x, vf dy) {
  const vf u = kSqrt2OverPi * (x + kCubic * x * x * x);
  const vf e = exp(-2.0f * abs(u));
  const vf s = 1.0f / (1.0f + e);
  const vf half = (u >= vf{} ? splat(1.0f) : e) * s;
  return dy * (half + 2.0f * x * e * s * s * kSqrt2OverPi * (1.0f + 3.0f * kCubic * x * x));
}

inline vf hard_swish_grad(vf x, vf dy) {
  const vf inside = dy * (2.0f * x + 3.0f) * (1.0f / 6.0f);
  return x <= splat(-3.0f) ? vf{} : (x >= splat(3.0f) ? dy : inside);
}

// log(1 + e^a) = max(a, 0) + log1p(e^-|a|); log1p(e) = log(u) e/(u-1) with u = 1 + e as rounded.
inline vf softplus(vf a) {
  const vf e = exp(-abs(a));
  const vf u = 1.0f + e;
  const vf l = u == splat(1.0f) ? e : log(u) * (e / (u - 1.0f));
  return at_least(a, vf{}) + l;
}

float floor_mod(float a, float b) {
  const float r = std::fmod(a, b);
  if (r == 0) return std::copysign(0.0f, b);
  return (r < 0) != (b < 0) ? r + b : r;
}

bool run_arithmetic(int32_t op, const float* a, const float* b, const float* c, float k, float* y, int64_t n) {
  switch (op) {
    case CT_OP_CONST: each_vector(n, [&](int64_t i, auto lanes) { store_some(y + i, splat(k), lanes); }); return true;
    case CT_OP_COPY: unary(a, y, n, [](vf x) { return x; }); return true;
    case CT_OP_ADD: binary(a, b, y, n, [](vf p, vf q) { return p + q; }); return true;
    case CT_OP_SUB: binary(a, b, y, n, [](vf p, vf q) { return p - q; }); return true;
    case CT_OP_MUL: binary(a, b, y, n, [](vf p, vf q) { return p * q; }); return true;
    case CT_OP_DIV: binary(a, b, y, n, [](vf p, vf q) { return p / q; }); return true;
    case CT_OP_MAX: binary(a, b, y, n, [](vf p, vf q) { return maximum(p, q); }); return true;
    case CT_OP_MIN: binary(a, b, y, n, [](vf p, vf q) { return minimum(p, q); }); return true;
    case CT_OP_ADD_IMM: unary(a, y, n, [k](vf x) { return x + k; }); return true;
    case CT_OP_MUL_IMM: unary(a, y, n, [k](vf x) { return x * k; }); return true;
    case CT_OP_MAX_IMM: unary(a, y, n, [k](vf x) { return at_least(x, splat(k)); }); return true;
    case CT_OP_MIN_IMM: unary(a, y, n, [k](vf x) { return at_most(x, splat(k)); }); return true;
    case CT_OP_NEG: unary(a, y, n, [](vf x) { return -x; }); return true;
    case CT_OP_ABS: unary(a, y, n, [](vf x) { return abs(x); }); return true;
    case CT_OP_SIGN:
      unary(a, y, n, [](vf x) { return x > vf{} ? splat(1.0f) : (x < vf{} ? splat(-1.0f) : x); });
      return true;
    case CT_OP_SQUARE: unary(a, y, n, [](vf x) { return x * x; }); return true;
    case CT_OP_SQRT: unary(a, y, n, [](vf x) { return sqrt(x); }); return true;
    case CT_OP_RSQRT: unary(a, y, n, [](vf x) { return 1.0f / sqrt(x); }); return true;
    case CT_OP_RECIPROCAL: unary(a, y, n, [](vf x) { return 1.0f / x; }); return true;
    case CT_OP_ROUND_BF16: unary(a, y, n, round_bf16); return true;
    case CT_OP_ROUND: unary(a, y, n, round_even); return true;
    case CT_OP_MUL_ADD: ternary(a, b, c, y, n, [](vf p, vf q, vf r) { return p * q + r; }); return true;
    default: return false;
  }
}

bool run_function(int32_t op, const float* a, const float* b, float k, float* y, int64_t n) {
  switch (op) {
    case CT_OP_EXP: unary(a, y, n, [](vf x) { return exp(x); }); return true;
    case CT_OP_LOG: unary(a, y, n, [](vf x) { return log(x); }); return true;
    case CT_OP_TANH: unary(a, y, n, [](vf x) { return tanh(x); }); return true;
    case CT_OP_LOGISTIC: unary(a, y, n, [](vf x) { return logistic(x); }); return true;
    case CT_OP_ERF: unary(a, y, n, [](vf x) { return erf(x); }); return true;
    case CT_OP_GELU: unary(a, y, n, [](vf x) { return x * phi(x); }); return true;
    case CT_OP_GELU_GRAD: binary(a, b, y, n, gelu_grad); return true;
    case CT_OP_GELU_TANH: unary(a, y, n, gelu_tanh); return true;
    case CT_OP_GELU_TANH_GRAD: binary(a, b, y, n, gelu_tanh_grad); return true;
    case CT_OP_HARD_SWISH: unary(a, y, n, hard_swish); return true;
    case CT_OP_HARD_SWISH_GRAD: binary(a, b, y, n, hard_swish_grad); return true;
    case CT_OP_LEAKY_RELU: unary(a, y, n, [k](vf x) { return x > vf{} ? x : k * x; }); return true;
    case CT_OP_LEAKY_RELU_GRAD: binary(a, b, y, n, [k](vf x, vf d) { return x > vf{} ? d : k * d; }); return true;
    case CT_OP_ELU: unary(a, y, n, [](vf x) { return x > vf{} ? x : exp(x) - 1.0f; }); return true;
    case CT_OP_ELU_GRAD: binary(a, b, y, n, [](vf o, vf d) { return o > vf{} ? d : d * (o + 1.0f); }); return true;
    case CT_OP_SOFTPLUS: unary(a, y, n, softplus); return true;
    case CT_OP_POW_IMM: scalar(a, a, y, n, [k](float x, float) { return std::pow(x, k); }); return true;
    case CT_OP_POW: scalar(a, b, y, n, [](float x, float e) { return std::pow(x, e); }); return true;
    case CT_OP_FLOOR: scalar(a, a, y, n, [](float x, float) { return std::floor(x); }); return true;
    case CT_OP_CEIL: scalar(a, a, y, n, [](float x, float) { return std::ceil(x); }); return true;
    case CT_OP_SIN: scalar(a, a, y, n, [](float x, float) { return std::sin(x); }); return true;
    case CT_OP_FLOOR_MOD: scalar(a, b, y, n, floor_mod); return true;
    case CT_OP_ATAN2: scalar(a, b, y, n, [](float p, float q) { return std::atan2(p, q); }); return true;
    case CT_OP_COS: scalar(a, a, y, n, [](float x, float) { return std::cos(x); }); return true;
    default: return false;
  }
}

bool run_choice(int32_t op, const float* a, const float* b, const float* c, float* y, int64_t n) {
  const vf one = splat(1.0f), six = splat(6.0f);
  switch (op) {
    case CT_OP_RELU_MASK: binary(a, b, y, n, [](vf x, vf d) { return x > vf{} ? d : vf{}; }); return true;
    case CT_OP_RELU6_MASK:
      binary(a, b, y, n, [six](vf x, vf d) { return ((x > vf{}) & (x < six)) ? d : vf{}; });
      return true;
    case CT_OP_RELU_N1_TO_1_MASK:
      binary(a, b, y, n, [one](vf x, vf d) { return ((x > -one) & (x < one)) ? d : vf{}; });
      return true;
    case CT_OP_TANH_GRAD: binary(a, b, y, n, [](vf o, vf d) { return d * (1.0f - o * o); }); return true;
    case CT_OP_LOGISTIC_GRAD: binary(a, b, y, n, [](vf o, vf d) { return d * o * (1.0f - o); }); return true;
    case CT_OP_SELECT: ternary(a, b, c, y, n, [](vf p, vf q, vf r) { return is_true(p) ? q : r; }); return true;
    case CT_OP_LESS: binary(a, b, y, n, [](vf p, vf q) { return truth(p < q); }); return true;
    case CT_OP_LESS_EQUAL: binary(a, b, y, n, [](vf p, vf q) { return truth(p <= q); }); return true;
    case CT_OP_GREATER: binary(a, b, y, n, [](vf p, vf q) { return truth(p > q); }); return true;
    case CT_OP_GREATER_EQUAL: binary(a, b, y, n, [](vf p, vf q) { return truth(p >= q); }); return true;
    case CT_OP_EQUAL: binary(a, b, y, n, [](vf p, vf q) { return truth(p == q); }); return true;
    case CT_OP_NOT_EQUAL: binary(a, b, y, n, [](vf p, vf q) { return truth(p != q); }); return true;
    case CT_OP_LOGICAL_NOT: unary(a, y, n, [](vf p) { return truth(p == vf{}); }); return true;
    case CT_OP_LOGICAL_AND: binary(a, b, y, n, [](vf p, vf q) { return truth(is_true(p) & is_true(q)); }); return true;
    case CT_OP_LOGICAL_OR: binary(a, b, y, n, [](vf p, vf q) { return truth(is_true(p) | is_true(q)); }); return true;
    default: return false;
  }
}

}  // namespace

bool run_chain_op(int32_t op, const float* a, const float* b, const float* c, float imm, float* y, int64_t n) {
  return run_arithmetic(op, a, b, c, imm, y, n) || run_choice(op, a, b, c, y, n) || run_function(op, a, b, imm, y, n);
}

}  // namespace CT_TIER
}  // namespace ct
