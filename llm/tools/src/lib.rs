//! What measures, predicts and compares the runs of `ga10b-llm`.

pub mod agreement;
pub mod bandwidth;
pub mod bench;
pub mod counted;
pub mod first_token;
pub mod power;
pub mod roofline;
pub mod trace;
