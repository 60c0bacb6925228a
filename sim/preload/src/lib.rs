//! The software ga10b as an LD_PRELOAD library.
