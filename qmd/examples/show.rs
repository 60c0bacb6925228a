//! Builds a launch for ga10b and prints it: `cargo run -p nv-qmd --example show`.

use qmd::{ConstantBuffer, Dependent, Invalidate, Launch, Membar, Release, SharedMemory, Target};

fn main() -> Result<(), qmd::Error> {
    let qmd = Launch::new(Target::Sm87)
        .program(0x12_3450_0080, 512)
        .grid([1000, 3, 2])
        .block([64, 4, 1])
        .registers(40)
        .shared(SharedMemory::new(0x1400, 0))
        .carve_out(64 * 1024)
        .local(0, 0x240)
        .invalidate(Invalidate::SHADER_DATA)
        .membar(Membar::System)
        .constant_buffer(0, ConstantBuffer::new(0x12_3456_7000, 0x190).invalidated())
        .dependent(0, Dependent::schedule(0x12_3456_9000).prefetched())
        .release(0, Release::new_u64(0x10_0000_1000, 6).with_timestamp())
        .build()?;
    print!("{qmd}");
    Ok(())
}
