//! Measures, predicts, compares and traces the runs of [`ga10b_llm`].
//!
//! - [`bench`](mod@bench): tokens per second as llama-bench measures them; [`first_token`]: the time from the
//!   start of the process to the first token; [`bandwidth`]: the copy rate of a device; [`power`]: power mode
//!   and clocks of a Jetson; [`energy`]: what its sensors say
//! - [`batched`]: tokens per second of several sequences, as llama-batched-bench measures them
//! - [`counted`]: what the software ga10b counts for a token; [`roofline`]: the time that a GPU would take
//!   for it; [`chips`]: the constants of GPUs; [`measured`]: predictions beside measurements
//! - [`agreement`]: whether two engines choose the same tokens
//! - [`trace`]: what host and GPU did, for Perfetto
//!
//! These are no part of the library: a program that decodes needs neither them nor the software device, the
//! clocks and the subscriber that they depend on.
//!
//! # Layers
//! ```text
//! chips  chips counted measured  # figures of chips, counted and measured
//! tools  agreement bandwidth batched bench energy first_token power roofline trace  # observations of runs
//! ```

pub mod agreement;
pub mod bandwidth;
pub mod batched;
pub mod bench;
pub mod chips;
pub mod counted;
pub mod energy;
pub mod first_token;
pub mod measured;
pub mod power;
pub mod roofline;
pub mod trace;
