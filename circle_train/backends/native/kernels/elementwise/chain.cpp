// Fused elementwise chains: a tile that fits the nearest cache goes through all operations before the next one is read.
#include <algorithm>

#include "vectors/bf16.h"
#include "vectors/bits.h"
#include "elementwise/chain_ops.h"
#include "vectors/simd.h"
#include "vectors/strides.h"
#include "run/table.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int64_t kTile = 1024;

struct Plan {
  const ct_chain_args& args;
  Space space;
  bool dense[kMaxTensors];
  int direct_output = -1;  // the output the last operation may write straight away
  int64_t tile = kTile;
  bool repeats[kMaxTensors] = {};  // inputs that are the same for every tile: one short row, over and over
  int repeating = 0;
};

// Whether input t is one row for all, short enough for some to fill a tile; tiles then begin with it.
bool is_short_row(const Plan& plan, int t) {
  const Space& s = plan.space;
  const int last = s.rank - 1;
  bool same = last > 0 && s.strides[t][last] == 1 && s.shape[last] > 0 && s.shape[last] <= kTile / 4;
  for (int d = 0; d < last; ++d) same = same && s.strides[t][d] == 0;
  return same && kTile / s.shape[last] * s.shape[last] % 8 == 0;  // bits begin a byte at every tile
}

Plan plan_of(const ct_chain_args& args) {
  Plan plan{args, {}, {}, -1};
  Space& s = plan.space;
  s.rank = args.rank;
  s.tensors = args.input_count + args.output_count;
  std::copy(args.shape, args.shape + args.rank, s.shape);
  for (int t = 0; t < s.tensors; ++t) {
    const ct_chain_tensor& tensor = t < args.input_count ? args.inputs[t] : args.outputs[t - args.input_count];
    std::copy(tensor.strides, tensor.strides + args.rank, s.strides[t]);
  }
  simplify(s);
  for (int t = 0; t < s.tensors; ++t) {
    const ct_chain_tensor& tensor = t < args.input_count ? args.inputs[t] : args.outputs[t - args.input_count];
    plan.dense[t] = tensor.dtype == CT_F32 && is_dense(s, t);
  }
  for (int t = 0; t < args.input_count; ++t)
    if ((plan.repeats[t] = is_short_row(plan, t))) ++plan.repeating;
  if (plan.repeating) plan.tile = kTile / s.shape[s.rank - 1] * s.shape[s.rank - 1];
  int readers = 0;
  for (int o = 0; o < args.output_count && args.op_count > 0; ++o) {
    if (args.outputs[o].reg != args.ops[args.op_count - 1].dst) continue;
    ++readers;
    if (plan.dense[args.input_count + o]) plan.direct_output = o;
  }
  if (readers != 1) plan.direct_output = -1;
  return plan;
}

template <class T>
void read_run(const T* from, int64_t stride, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = float(from[i * stride]);
}

void read_f32(const float* from, int64_t stride, int64_t count, float* to) {
  if (stride == 1) {
    each_vector(count, [&](int64_t i, auto lanes) { store_some(to + i, load_some(from + i, lanes), lanes); });
  } else if (stride == 0) {
    const vf v = splat(*from);
    each_vector(count, [&](int64_t i, auto lanes) { store_some(to + i, v, lanes); });
  } else {
    read_run(from, stride, count, to);
  }
}

static_assert(kTile % 8 == 0, "bits begin a byte at every tile");

void read_bf16(const uint16_t* from, int64_t stride, int64_t count, float* to) {
  if (stride == 1) {
    each_vector(count, [&](int64_t i, auto lanes) { store_some(to + i, load_bf16(from + i, lanes), lanes); });
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = load_bf16(from + i * stride, 1)[0];
  }
}

void write_bf16(const float* from, int64_t stride, int64_t count, uint16_t* to) {
  if (stride == 1) {
    each_vector(count, [&](int64_t i, auto lanes) { store_bf16(to + i, load_some(from + i, lanes), lanes); });
  } else {
    for (int64_t i = 0; i < count; ++i) store_bf16(to + i * stride, splat(from[i]), 1);
  }
}

// The values of input t at first..first+n: in place when possible, else gathered into `aside`.
const float* read_input(const Plan& plan, int t, int64_t first, int64_t n, float* aside) {
  const ct_chain_tensor& tensor = plan.args.inputs[t];
  if (plan.dense[t]) return static_cast<const float*>(tensor.data) + first;
  if (tensor.dtype == CT_BITS) {
    spread_bits(static_cast<const uint8_t*>(tensor.data) + first / 8, n, aside);
    return aside;
  }
  const int64_t stride = plan.space.strides[t][plan.space.rank - 1];
  each_run(plan.space, t, first, n, [&](int64_t count, int64_t offset, int64_t done) {
    switch (tensor.dtype) {
      case CT_F32: return read_f32(static_cast<const float*>(tensor.data) + offset, stride, count, aside + done);
      case CT_I32: return read_run(static_cast<const int32_t*>(tensor.data) + offset, stride, count, aside + done);
      case CT_BF16: return read_bf16(static_cast<const uint16_t*>(tensor.data) + offset, stride, count, aside + done);
      case CT_I64: return read_run(static_cast<const int64_t*>(tensor.data) + offset, stride, count, aside + done);
      default: return read_run(static_cast<const uint8_t*>(tensor.data) + offset, stride, count, aside + done);
    }
  });
  return aside;
}

// Truncation as numpy does it on this hardware, but defined for every value.
int32_t to_int(float v) { return v > -2147483648.0f && v < 2147483648.0f ? int32_t(v) : INT32_MIN; }

void write_output(const Plan& plan, int o, int64_t first, int64_t n, const float* from) {
  const ct_chain_tensor& tensor = plan.args.outputs[o];
  const int t = plan.args.input_count + o;
  if (plan.dense[t]) return read_f32(from, 1, n, static_cast<float*>(tensor.data) + first);
  if (tensor.dtype == CT_BITS) return gather_bits(from, n, static_cast<uint8_t*>(tensor.data) + first / 8);
  const int64_t stride = plan.space.strides[t][plan.space.rank - 1];
  each_run(plan.space, t, first, n, [&](int64_t count, int64_t offset, int64_t done) {
    if (tensor.dtype == CT_BF16)
      return write_bf16(from + done, stride, count, static_cast<uint16_t*>(tensor.data) + offset);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = offset + i * stride;
      const float v = from[done + i];
      if (tensor.dtype == CT_F32) static_cast<float*>(tensor.data)[at] = v;
      if (tensor.dtype == CT_I32) static_cast<int32_t*>(tensor.data)[at] = to_int(v);
      if (tensor.dtype == CT_U8) static_cast<uint8_t*>(tensor.data)[at] = v != 0;
    }
  });
}

// Where each worker keeps them, behind its registers.
int64_t own_floats(const Plan& plan) { return kTile * (CT_CHAIN_REGISTERS + plan.repeating); }

bool run_tile(const Plan& plan, int64_t first, int64_t n, const float* const* rows, float* registers) {
  const ct_chain_args& args = plan.args;
  const float* values[CT_CHAIN_REGISTERS] = {};
  for (int t = 0; t < args.input_count; ++t) values[t] = plan.repeats[t] ? rows[t] : read_input(plan, t, first, n, registers + t * kTile);
  for (int i = 0; i < args.op_count; ++i) {
    const ct_chain_operation& op = args.ops[i];
    float* to = registers + op.dst * kTile;
    const bool direct = i == args.op_count - 1 && plan.direct_output >= 0;
    if (direct) to = static_cast<float*>(args.outputs[plan.direct_output].data) + first;
    if (!run_chain_op(op.op, values[op.a], values[op.b], values[op.c], op.imm, to, n)) return false;
    values[op.dst] = to;
  }
  for (int o = 0; o < args.output_count; ++o)
    if (o != plan.direct_output) write_output(plan, o, first, n, values[args.outputs[o].reg]);
  return true;
}

}  // namespace

int64_t chain_scratch(const void* opaque, int threads) {
  return int64_t(sizeof(float)) * own_floats(plan_of(*static_cast<const ct_chain_args*>(opaque))) * threads;
}

int32_t chain(Context& context, const void* opaque) {
  const auto& args = *static_cast<const ct_chain_args*>(opaque);
  const Plan plan = plan_of(args);
  const int64_t size = plan.space.size();
  std::atomic<bool> known{true};
  const double work = double(size) * (0.05 * (args.input_count + args.output_count) + 0.05 * args.op_count);
  context.parallel(ceil_div(size, plan.tile), work, [&](int worker, int64_t begin, int64_t end) {
    float* const registers = reinterpret_cast<float*>(context.scratch()) + worker * own_floats(plan);
    const float* rows[CT_CHAIN_REGISTERS] = {};
    float* own = registers + kTile * CT_CHAIN_REGISTERS;
    for (int t = 0; t < args.input_count; ++t)
      if (plan.repeats[t]) rows[t] = read_input(plan, t, 0, std::min(plan.tile, size), own), own += kTile;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i * plan.tile;
      if (!run_tile(plan, first, std::min(plan.tile, size - first), rows, registers)) known.store(false);
    }
  });
  return known.load() ? CT_OK : CT_BAD_KERNEL;
}

}  // namespace CT_TIER
}  // namespace ct
