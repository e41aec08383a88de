#include "run/processor.h"

#include <cstdint>

#if defined(CT_X86)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace ct {
namespace {

#if defined(CT_X86)
bool has(uint32_t word, int bit) { return (word >> bit & 1) != 0; }

// Which registers the operating system saves: vectors of 256 bits and of 512 count only where it does.
uint32_t saved_registers() {
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

Processor ask() {
  Processor found;
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, 27) || !has(c, 28) || !has(c, 12)) return found;
  const uint32_t saved = saved_registers();
  if ((saved & 0x6) != 0x6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;
  const uint32_t more = a;
  found.avx2 = has(b, 5);
  found.avx512 = found.avx2 && (saved & 0xe0) == 0xe0 && has(b, 16) && has(b, 17) && has(b, 30) && has(b, 31);
  found.avx512_vnni = found.avx512 && has(c, 11);
  if (found.avx512 && more >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) found.avx512_bf16 = has(a, 5);
  return found;
}
#elif defined(__aarch64__) && defined(__linux__)
Processor ask() {
  Processor found;
  found.neon_dot = (getauxval(AT_HWCAP) >> 20 & 1) != 0;
  return found;
}
#elif defined(__ARM_FEATURE_DOTPROD)
Processor ask() {
  Processor found;
  found.neon_dot = true;
  return found;
}
#else
Processor ask() { return {}; }
#endif

}  // namespace

const Processor& processor() {
  static const Processor found = ask();
  return found;
}

const bool rounds_at_once = processor().avx512_bf16;

}  // namespace ct
