//! Tests of the crate, one module per subject.

mod arch;
mod bring_up;
mod concurrency;
mod driver;
mod faults;
mod links;
mod machine;
mod memory;
mod oracle;
mod order;
mod preemption;
mod robustness;
mod sm;
mod time;
mod tool_nodes;
mod traps;
mod what_if;
