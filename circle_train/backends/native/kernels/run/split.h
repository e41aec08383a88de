// Division of what mostly is small: processors take several times as long for 64 bits.
#pragma once

#include <cstdint>

namespace ct {

struct Split {
  int64_t whole, rest;
};

// n / by and n % by of numbers that are not negative.
inline Split split(int64_t n, int64_t by) {
  if (((n | by) >> 32) == 0) return {uint32_t(n) / uint32_t(by), uint32_t(n) % uint32_t(by)};
  return {n / by, n % by};
}

}  // namespace ct
