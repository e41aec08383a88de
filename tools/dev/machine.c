// What this machine can do at most, for tools/dev/limits.py: cc -O3 -march=native -pthread machine.c && ./a.out THREADS
// Prints GFLOP/s of fused products, GB/s of reading, of copying and of adding two arrays into a third (every array counted once) in arrays
// larger than the last cache and in small ones, and the nanoseconds in which a cache line goes to another core and comes back.
// Arrays lie on huge pages, as those of a training step do; threads stay alive between measurements, each the best of many.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
#define SUMS 12 /* enough that no product waits for the one before */
#define HUGE ((size_t)1 << 21)

typedef float vector __attribute__((vector_size(LANES * sizeof(float))));
enum kind { PRODUCTS, READ, COPY, ADD, ECHO };

static int threads;
static size_t floats;       /* of one array */
static int repeats;         /* of one measurement */
static float* arrays[3];
static atomic_int round_number, at_work, ball;
static enum kind work_kind;
static volatile float kept; /* so that nothing is optimised away */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void products(void) {
  vector sum[SUMS], factor, summand;
  for (int l = 0; l < LANES; ++l) factor[l] = 0.5f, summand[l] = 1.0f;
  for (int i = 0; i < SUMS; ++i) sum[i] = summand * (float)i;
  for (int r = 0; r < repeats; ++r)
    for (int i = 0; i < SUMS; ++i) sum[i] = sum[i] * factor + summand;
  for (int i = 1; i < SUMS; ++i) sum[0] += sum[i];
  kept = sum[0][0];
}

static void traffic(enum kind kind, size_t begin, size_t end) {
  const vector* a = (const vector*)arrays[0];
  const vector* b = (const vector*)arrays[1];
  vector* c = (vector*)arrays[2];
  vector sum[4] = {{0}};
  for (size_t i = begin; i < end; i += 4)
    for (size_t j = 0; j < 4; ++j) {
      if (kind == READ) sum[j] += a[i + j];
      else c[i + j] = kind == COPY ? a[i + j] : a[i + j] + b[i + j];
    }
  kept = sum[0][0] + sum[1][0] + sum[2][0] + sum[3][0];
}

/* A number is passed back and forth between the first two threads. */
static void echo(int thread) {
  if (thread > 1) return;
  for (int r = 0; r < repeats; ++r) {
    while (atomic_load(&ball) != 2 * r + thread) {}
    atomic_store(&ball, 2 * r + thread + 1);
  }
}

static void work(int thread) {
  const size_t part = floats / LANES / threads / 4 * 4;
  if (work_kind == PRODUCTS) return products();
  if (work_kind == ECHO) return echo(thread);
  for (int r = 0; r < repeats; ++r) {
    traffic(work_kind, thread * part, (thread + 1) * part);
    __asm__ volatile("" ::: "memory"); /* each repeat is work of its own */
  }
}

static void* serve(void* number) {
  for (int seen = 0;;) {
    while (atomic_load(&round_number) == seen) {}
    seen = atomic_load(&round_number);
    work((int)(intptr_t)number);
    atomic_fetch_sub(&at_work, 1);
  }
  return NULL;
}

/* The least seconds of one measurement. */
static double least(enum kind kind, size_t bytes, int count, int tries) {
  double best = 1e9;
  work_kind = kind, floats = bytes / sizeof(float), repeats = count;
  for (int t = 0; t < tries; ++t) {
    atomic_store(&ball, 0);
    atomic_store(&at_work, threads - 1);
    const double begun = now();
    atomic_fetch_add(&round_number, 1);
    work(0);
    while (atomic_load(&at_work) > 0) {}
    const double spent = now() - begun;
    if (spent < best) best = spent;
  }
  return best;
}

static double rate(size_t bytes, int count, int tries) {
  double best = 0;
  for (enum kind kind = READ; kind <= ADD; ++kind) {
    const double moved = (double)(kind - READ + 1) * bytes * count / least(kind, bytes, count, tries) / 1e9;
    if (moved > best) best = moved;
  }
  return best;
}

int main(int count, char** words) {
  const size_t large = (size_t)192 << 20, small = (size_t)2 << 20;
  threads = count > 1 ? atoi(words[1]) : 1;
  for (int i = 0; i < 3; ++i) {
    arrays[i] = aligned_alloc(HUGE, large);
    madvise(arrays[i], large, MADV_HUGEPAGE);
    memset(arrays[i], 0, large);
  }
  for (intptr_t i = 1; i < threads; ++i) {
    pthread_t thread;
    pthread_create(&thread, NULL, serve, (void*)i);
  }
  const int loops = 200000;
  const double seconds = least(PRODUCTS, 0, loops, 200);
  printf("{\"gflops\": %.1f, ", 2.0 * threads * loops * SUMS * LANES / seconds / 1e9);
  printf("\"memory\": %.1f, \"cache\": %.1f, ", rate(large, 1, 20), rate(small, 20, 30));
  printf("\"round_trip\": %.0f}\n", threads > 1 ? least(ECHO, 0, 2000, 20) / 2000 * 1e9 : 0.0);
  return 0;
}
