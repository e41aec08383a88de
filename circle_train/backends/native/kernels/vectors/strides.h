// Strided index spaces: fewer dimensions where they run together, and walking them run by run.
#pragma once

#include "run/abi.h"

#include <cstdint>

namespace ct {
namespace CT_TIER {

constexpr int kMaxTensors = CT_CHAIN_REGISTERS * 2;

// A shape and the strides of several tensors over it.
struct Space {
  int rank = 0;
  int tensors = 0;
  int64_t shape[CT_MAX_RANK];
  int64_t strides[kMaxTensors][CT_MAX_RANK];

  int64_t size() const {
    int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= shape[d];
    return n;
  }
};

// Drops extents of 1 and joins neighbours that every tensor walks as one; rank stays >= 1.
inline void simplify(Space& s) {
  int out = 0;
  for (int d = 0; d < s.rank; ++d) {
    if (s.shape[d] == 1) continue;
    bool joins = out > 0;
    for (int t = 0; t < s.tensors && joins; ++t) joins = s.strides[t][out - 1] == s.strides[t][d] * s.shape[d];
    const int to = joins ? out - 1 : out++;
    s.shape[to] = joins ? s.shape[to] * s.shape[d] : s.shape[d];
    for (int t = 0; t < s.tensors; ++t) s.strides[t][to] = s.strides[t][d];
  }
  if (out == 0) {
    s.shape[0] = 1;
    for (int t = 0; t < s.tensors; ++t) s.strides[t][0] = 0;
    out = 1;
  }
  s.rank = out;
}

// f(count, offset, done) for every piece of the innermost dimension among elements first..first+n, `offset` in tensor t.
template <class F>
inline void each_run(const Space& s, int t, int64_t first, int64_t n, F f) {
  int64_t index[CT_MAX_RANK], offset = 0, rest = first;
  const int last = s.rank - 1;
  for (int d = last; d >= 0; --d) {
    index[d] = rest % s.shape[d];
    rest /= s.shape[d];
    offset += index[d] * s.strides[t][d];
  }
  for (int64_t done = 0; done < n;) {
    const int64_t left = s.shape[last] - index[last];
    const int64_t count = left < n - done ? left : n - done;
    f(count, offset, done);
    done += count;
    offset += count * s.strides[t][last];
    index[last] += count;
    for (int d = last; d > 0 && index[d] == s.shape[d]; --d) {
      offset += s.strides[t][d - 1] - index[d] * s.strides[t][d];
      index[d] = 0;
      ++index[d - 1];
    }
  }
}

inline bool is_dense(const Space& s, int t) {
  int64_t stride = 1;
  for (int d = s.rank - 1; d >= 0; --d) {
    if (s.strides[t][d] != stride && s.shape[d] != 1) return false;
    stride *= s.shape[d];
  }
  return true;
}

}  // namespace CT_TIER
}  // namespace ct
