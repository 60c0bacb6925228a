//! PTX generator with alignment-safe memory access, ptxas driver and kernel cache.
