//! How much stack a kernel needs, where the compiler's records do not say.
//!
//! ptxas 12 writes a minimum of 0 for kernels whose need it does not know: recursion, indirect calls,
//! `alloca`. The code itself shows them: it has calls, or reaches local memory without a frame.

/// Stack bytes for kernels whose need is unknown: CUDA's default.
const UNKNOWN: u32 = 1024;

/// What the code of a kernel does with its stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct StackUse {
    /// It calls functions.
    calls: bool,
    /// It reaches local memory.
    local: bool,
}

fn scan(arch: sass::Arch, code: &[u8]) -> StackUse {
    let mut found = StackUse::default();
    for word in code.chunks_exact(sass::WORD_BYTES) {
        let Ok(bytes) = word.try_into() else { continue };
        // What cannot be decoded faults when it runs, not here.
        let Ok(instruction) = sass::decode(arch, sass::Word::from_bytes(bytes)) else { continue };
        let name = instruction.opcode.mnemonic();
        found.calls |= name.starts_with("CALL");
        found.local |= name.starts_with("LDL") || name.starts_with("STL");
    }
    found
}

/// Stack bytes per thread: `frame` and `minimum` as the compiler recorded them for the kernel (`u32::MAX` is
/// its word for unknown), `callees` the sum of the frames of the functions beside it.
pub(super) fn bytes(sm: u32, code: &[u8], frame: u32, minimum: Option<u32>, callees: u32) -> u32 {
    let unknown = frame.saturating_add(callees).saturating_add(UNKNOWN);
    let known = match minimum {
        Some(u32::MAX) => return unknown,
        Some(minimum) => minimum.max(frame),
        None => frame,
    };
    let Some(arch) = sass::Arch::from_sm(sm) else { return known };
    // A known need that covers the frames of what is called is believed.
    if known > frame && known >= callees {
        return known;
    }
    let used = scan(arch, code);
    if used.calls || (used.local && known == 0) { unknown.max(known) } else { known }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_compiler_knows_is_believed() {
        assert_eq!(bytes(87, &[], 0, Some(0), 0), 0);
        assert_eq!(bytes(87, &[], 256, Some(256), 0), 256);
        assert_eq!(bytes(87, &[], 64, Some(512), 80), 512);
        assert_eq!(bytes(87, &[], 64, None, 0), 64);
    }

    #[test]
    fn what_it_does_not_know_gets_the_default() {
        assert_eq!(bytes(87, &[], 64, Some(u32::MAX), 0), 64 + UNKNOWN);
        assert_eq!(bytes(87, &[], u32::MAX, Some(u32::MAX), 80), u32::MAX);
    }
}
