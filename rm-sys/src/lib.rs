//! The part of the desktop GPU driver's ABI that hcq needs.
