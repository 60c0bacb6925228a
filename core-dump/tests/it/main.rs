//! Dumps built by hand from the header's facts, dumps that are written and read back, and hostile files.

mod hand_built;
mod hostile;
mod round_trip;
