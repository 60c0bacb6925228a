//! Many tokens of one prompt at once, on the tensor cores.

pub mod attention;
pub mod chunk;
pub mod dequantize;
pub mod gemm;
pub mod shares;
pub mod squares;
pub mod tile;
pub mod vector;
pub mod warpgroups;
