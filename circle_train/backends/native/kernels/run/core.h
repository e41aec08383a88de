// Which core a thread is on. Where every core is busy, the scheduler wakes a worker on the core it was last on, even if its
// caller has that one, and moves neither away before long: both then share one core, though each could have its own.
#pragma once

#include <thread>

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

namespace ct {

#if defined(__linux__)

inline int this_core() { return sched_getcpu(); }

// The worker may be on any core that the calling thread may be on, but for this one; where that leaves none, nothing changes.
inline void keep_off(std::thread& worker, int core) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  CPU_CLR(core, &allowed);
  if (CPU_COUNT(&allowed) > 0) pthread_setaffinity_np(worker.native_handle(), sizeof allowed, &allowed);
}

#else

inline int this_core() { return -1; }
inline void keep_off(std::thread&, int) {}

#endif

}  // namespace ct
