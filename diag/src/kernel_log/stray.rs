//! Lines without the frame of a GPU driver that are about a GPU: copied by hand, cut at their head, or of a
//! release that prints another frame.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

/// Evidence of an error in such a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// Words that only an error has.
    Error,
    /// The name of a driver.
    Name,
}

/// Words of errors, and names of drivers.
const ERRORS: [&str; 9] = [
    "[ERR]",
    "hww_",
    "mmu fault",
    "MMU fault",
    "MMU FAULT",
    "MISALIGNED_ADDR",
    "OOR_ADDR",
    "INVALID_ADDR_SPACE",
    "ILLEGAL_INSTR",
];
/// The first of them that is a code of an SM.
const CODES: usize = 5;
const NAMES: [&str; 8] = ["nvgpu", "gk20a", "NVRM", "nvmap", "NvMap", "host1x", "arm-smmu", "tegra-mc"];
/// Beside the desktop driver's name these make an error; it prints failures of calls on healthy machines, too.
const FAILED: [&str; 5] =
    ["fallen off the bus", "critical error", "rm_init_adapter", "RmInitAdapter", "not responding"];

/// A line without one of these is not about a GPU.
pub(super) fn words() -> impl Iterator<Item = &'static str> {
    ERRORS.into_iter().chain(NAMES)
}

/// Whether a line of the desktop driver says that a GPU is lost or was not started.
pub(crate) fn says_failure(line: &str) -> bool {
    FAILED.iter().any(|word| line.contains(word))
}

/// Returns a line's evidence of a GPU error, `None` if it has none. Words of errors count beside the name of a
/// driver, those of an SM's registers beside a number: any program may print the others.
pub(super) fn of_gpu(line: &str) -> Option<Says> {
    static WORDS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| AhoCorasick::new(words()).ok());
    let (mut errors, mut is_named, mut is_code) = (0u32, false, line.contains("hww_"));
    for hit in WORDS.as_ref()?.find_iter(line) {
        match hit.pattern().as_usize() {
            word @ 0..9 => {
                errors += 1;
                is_code |= word >= CODES && line.contains("0x");
            }
            _ => is_named = true,
        }
    }
    let failed = line.contains("NVRM") && says_failure(line);
    match is_named {
        true if errors > 0 || failed => Some(Says::Error),
        true => Some(Says::Name),
        false => is_code.then_some(Says::Error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_errors_and_names_of_drivers_are_told_apart() {
        for (line, says) in [
            ("hww_warp_esr 16 again", Some(Says::Error)),
            ("my note: 0x10 (MISALIGNED_ADDR)", Some(Says::Error)),
            ("self-test of MISALIGNED_ADDR passed", None),
            ("renderer: software mmu fault counter reset", None),
            ("gk20a 57000000.gpu: mmu fault on engine 0", Some(Says::Error)),
            ("17000000.gpu nvgpu_x [ERR] bad", Some(Says::Error)),
            ("NVRM: rm_init_adapter failed", Some(Says::Error)),
            ("NVRM: gpumgrGetSomeGpu: Failed to retrieve pGpu - Too early call!.", Some(Says::Name)),
            ("NVRM: loading NVIDIA UNIX Open Kernel Module", Some(Says::Name)),
            ("nvgpu: module license taints kernel", Some(Says::Name)),
            ("app[1]: [ERR] no such file", None),
            ("usb 1-1: new device", None),
        ] {
            assert_eq!(of_gpu(line), says, "{line}");
        }
    }
}
