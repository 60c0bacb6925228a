//! The few pushbuffer words of the first submissions.

use super::layout;

/// Subchannel of the compute class.
const COMPUTE: u32 = 1;
/// Subchannel of the copy class.
const COPY: u32 = 4;

/// Header of `count` words that go to consecutive methods.
const fn header(subchannel: u32, method: u32, count: u32) -> u32 {
    1 << 29 | count << 16 | subchannel << 13 | method >> 2
}

/// A host release of a 64-bit value with the time, after the engines are idle.
pub fn release(va: u64, value: u64) -> [u32; 6] {
    let method = header(0, 0x5c, 5);
    [method, va as u32, (va >> 32) as u32, value as u32, (value >> 32) as u32, 0x0310_0001]
}

/// Compute and copy class on their subchannels.
pub const fn set_classes(compute: u32, copy: u32) -> [u32; 4] {
    [header(COMPUTE, 0, 1), compute, header(COPY, 0, 1), copy]
}

/// Both memory windows.
pub const fn set_windows() -> [u32; 6] {
    const fn window(method: u32, base: u64) -> [u32; 3] {
        [header(COMPUTE, method, 2), (base >> 32) as u32, base as u32]
    }
    let [a, b, c] = window(0x2a0, layout::SHARED_WINDOW);
    let [d, e, f] = window(0x7b0, layout::LOCAL_WINDOW);
    [a, b, c, d, e, f]
}
