"""The library behind its C ABI: structs, pools of threads, runs of bound kernels."""
