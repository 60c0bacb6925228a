//! Quantized LLaMA decode on hcq: reference workload and benchmark.
