//! The device suite's kernels, all exact.

use hcq::LaunchConfig;
use ptxgen::{Ptr, kernel_params};

use crate::conformance::case::Case;
use crate::conformance::cubins::cubins;
use crate::conformance::drive::Drive;

kernel_params! {
    /// `fill`: each of `count` words becomes `value`.
    pub struct Fill { out: Ptr<u32, 4>, count: u32, value: u32 }
}
kernel_params! {
    /// `step`: each of `count` words is multiplied, and something is added.
    pub struct Step { data: Ptr<u32, 4>, count: u32, mul: u32, add: u32 }
}
kernel_params! {
    /// `append`: `tag` goes to the place in `log` that `counter` names.
    pub struct Append { log: Ptr<u32, 4>, counter: Ptr<u32, 4>, tag: u32 }
}
kernel_params! {
    /// `reverse`, `local_table` and `load_at`.
    pub struct CopyWords { input: Ptr<u32, 4>, out: Ptr<u32, 4> }
}
kernel_params! {
    /// `store_at`.
    pub struct Store { at: Ptr<u32, 4>, value: u32 }
}
kernel_params! {
    /// `count`.
    pub struct Count { counters: Ptr<u32, 4> }
}

/// At least one case per kernel.
pub fn cases() -> Vec<Case> {
    let drive = |kernel: &str, config: LaunchConfig| {
        Drive::new("built in: suite", cubins!("../../kernels/suite"), kernel, config)
    };
    let copies = |d: &mut Drive, words, room| CopyWords { input: d.random(words), out: d.room(room) };
    let step = |d: &mut Drive| Step { data: d.random(480), count: 450, mul: 0x0019_660d, add: 0x3c6e_f35f };
    vec![
        drive("fill", LaunchConfig::new(5, 96)).done(|d| Fill {
            out: d.room(480),
            count: 450,
            value: 0xffff_ff00,
        }),
        drive("step", LaunchConfig::new(5, 96)).done(step),
        drive("append", LaunchConfig::new(1, 1)).done(|d| Append {
            log: d.room(16),
            counter: d.words(vec![7]),
            tag: 99,
        }),
        drive("reverse", LaunchConfig::new(3, 96).with_dynamic_shared(384)).done(|d| copies(d, 288, 288)),
        drive("local_table", LaunchConfig::new(3, 160)).done(|d| copies(d, 256, 480)),
        drive("load_at", LaunchConfig::new(1, 1)).done(|d| copies(d, 1, 1)),
        drive("store_at", LaunchConfig::new(1, 1)).done(|d| Store { at: d.room(1), value: 0x1234_5678 }),
        drive("count", LaunchConfig::new(64, 128)).done(|d| Count { counters: d.words(vec![0; 17]) }),
    ]
}
