//! The device suite's kernels, all exact.

use hcq::LaunchConfig;

use crate::conformance::case::Case;
use crate::conformance::cubins::cubins;
use crate::conformance::drive::Drive;

/// At least one case per kernel.
pub fn cases() -> Vec<Case> {
    let drive = |kernel: &str, config: LaunchConfig| {
        Drive::new("built in: suite", cubins!("../../kernels/suite"), kernel, config)
    };
    vec![
        drive("fill", LaunchConfig::new(5, 96)).room(480).u32(450).u32(0xffff_ff00).done(),
        drive("step", LaunchConfig::new(5, 96)).random(480).u32(450).u32(0x0019_660d).u32(0x3c6e_f35f).done(),
        drive("append", LaunchConfig::new(1, 1)).room(16).words(vec![7]).u32(99).done(),
        drive("reverse", LaunchConfig::new(3, 96).with_dynamic_shared(384)).random(288).room(288).done(),
        drive("local_table", LaunchConfig::new(3, 160)).random(256).room(480).done(),
        drive("load_at", LaunchConfig::new(1, 1)).random(1).room(1).done(),
        drive("store_at", LaunchConfig::new(1, 1)).room(1).u32(0x1234_5678).done(),
        drive("count", LaunchConfig::new(64, 128)).words(vec![0; 17]).done(),
    ]
}
