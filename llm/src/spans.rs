//! Names of the `tracing` spans that report what the host does.

/// Target of the spans around submitting, waiting, reading back, sampling, detokenizing and printing.
pub const HOST: &str = "ga10b_llm::host";
