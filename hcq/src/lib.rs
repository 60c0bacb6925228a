//! Hardware command queues for NVIDIA GPUs without the CUDA runtime.
