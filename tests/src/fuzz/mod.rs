//! Fuzzers: parsers, decoders and the software ga10b on inputs that no compiler, driver or program made.
//!
//! Plain loops without instrumentation, so they need no tool but Cargo. A case is a function of the target's
//! name, the seed and the case's number; `hcq-fuzz --case N` runs one of them again.

mod corpus;
mod decoders;
mod guest;
mod ioctls;
mod loader;
mod logs;
mod machine;
mod machine_code;
pub mod mutate;
mod page_tables;
pub mod program;
mod runner;
pub mod target;

pub use runner::{Cases, Failure, Outcome, run};
pub use target::Target;

/// All targets.
pub fn targets() -> &'static [Target] {
    &[
        decoders::SASS,
        loader::CUBIN,
        decoders::QMD,
        decoders::PUSHBUFFER,
        logs::LOG,
        page_tables::PAGE_WALK,
        machine_code::CODE,
        ioctls::IOCTL,
    ]
}
