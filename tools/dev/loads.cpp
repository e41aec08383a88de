// Loads the kernels' library as Python does, by name, and lets two workers of each tier turn a matrix: wheels.py runs it where
// it can run a program for the platform but no Python.
#include <cstdio>
#include <vector>
#include <windows.h>

#include "run/abi.h"

template <class F>
F* find(HMODULE library, const char* name) {
  return reinterpret_cast<F*>(reinterpret_cast<void*>(GetProcAddress(library, name)));
}
#define FIND(name) const auto name##_ = find<decltype(name)>(library, #name)

int main(int, char** words) {
  const HMODULE library = LoadLibraryA(words[1]);
  if (library == nullptr) return std::printf("%s cannot be loaded: error %lu\n", words[1], GetLastError()), 1;
  FIND(ct_abi_version);
  FIND(ct_best_tier);
  FIND(ct_workers_create);
  FIND(ct_run);
  FIND(ct_workers_destroy);
  if (!ct_abi_version_ || !ct_best_tier_ || !ct_workers_create_ || !ct_run_ || !ct_workers_destroy_)
    return std::puts("a function is missing"), 1;
  const int64_t side = 1500;
  for (int32_t tier = 0; tier <= ct_best_tier_(); ++tier) {
    std::vector<float> x(side * side), y(side * side);
    for (int64_t i = 0; i < side * side; ++i) x[i] = float(i);
    const ct_copy_args args = {x.data(), y.data(), {side, side}, {1, side}, {side, 1}, 2, 4};
    const ct_step step = {&args, CT_COPY};
    ct_workers* const workers = ct_workers_create_(2, tier);
    int64_t failed = -1;
    const int32_t status = ct_run_(workers, &step, 1, nullptr, &failed);
    ct_workers_destroy_(workers);
    int64_t wrong = 0;
    for (int64_t i = 0; i < side * side; ++i) wrong += y[i] != x[i % side * side + i / side];
    if (status != CT_OK || wrong) return std::printf("tier %d: status %d, %lld wrong\n", tier, status, (long long)wrong), 1;
  }
  std::printf("loads, ABI %08x; two workers in tiers 0 to %d\n", unsigned(ct_abi_version_()), ct_best_tier_());
}
