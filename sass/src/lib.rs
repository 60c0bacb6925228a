//! Decoder and printer of SM 8.x and 9.x machine code.
