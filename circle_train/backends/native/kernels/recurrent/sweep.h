// Sweeps along time. What inputs and weight gradients cost is products over all steps at once, outside of here; a sweep has the
// recurrent product and the cell. Samples do not meet: each thread takes its own through all steps, and nobody waits.
#pragma once

#include <algorithm>

#include "run/table.h"
#include "vectors/activation.h"

namespace ct {
namespace CT_TIER {

template <class Lanes>
vf given(const float* values, int64_t at, Lanes lanes) {
  return values ? load_some(values + at, lanes) : vf{};
}

// What a thread works on: `rows` samples from `first`, their state h (or its gradient) and c (or its gradient), and room.
struct Part {
  const ct_recurrent_args& t;
  const float* packed;
  float *h, *c, *room;
  int64_t first, rows;

  int64_t row(int64_t step, int64_t i) const { return (step * t.time_row + (first + i) * t.sample_row) * t.units; }
  int64_t y_row(int64_t step, int64_t i) const { return (step * t.y_time_row + (first + i) * t.y_sample_row) * t.units; }
  int64_t step(int64_t number) const { return t.backwards ? t.steps - 1 - number : number; }
  float* gate(int number) const;
  const float* bias(int gate) const;
  // gate += R h, where a row of the gate lies.
  void recur(int gate, int64_t step, const float* state) const;
  // to += R a for one gate, rows of a being `a_row` floats apart; back, R turned.
  void multiply(int gate, const float* a, int64_t a_row, float* to) const;
  // What the inputs and the state give a gate, and its bias.
  template <class Lanes>
  vf total(int number, int64_t at, int64_t j, Lanes lanes) const {
    return given(bias(number), j, lanes) + load_some(gate(number) + at + j, lanes);
  }
  void start(const float* state, float* to) const;
  void finish(const float* from, float* state) const;
  // The state as the step finds it, where a gradient will ask for it.
  void note(int64_t at, const float* state) const;
};

// All samples, part by part; `turned`: by R as it is multiplied forwards.
int32_t sweep(Context& context, const void* opaque, bool turned, void (*each_part)(const Part&));

}  // namespace CT_TIER
}  // namespace ct
