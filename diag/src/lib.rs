//! Diagnostics for NVIDIA GPUs driven without CUDA.
