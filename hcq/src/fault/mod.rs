//! Faults: what stopped the GPU, decoded, and the map that other programs explain it by.

pub(crate) mod decode;
pub(crate) mod map_file;
