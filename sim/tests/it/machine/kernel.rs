//! Kernels of `tests/data`, above all `fill(out, base)`: `out[i] = base + i`.

use super::{Buffer, Channel, LOCAL_WINDOW, Machine, SHARED_WINDOW, inc};
use qmd::{ConstantBuffer, Launch, Release, Target};
use sass::Arch;

/// The kernel, loaded, with one constant bank and one launch descriptor.
pub struct Fill {
    pub program: Buffer,
    pub bank: Buffer,
    pub qmd: Buffer,
    pub target: Target,
    bank_len: usize,
    code_len: usize,
}

impl Fill {
    /// Loads the kernel that was compiled for the machine's SMs.
    pub fn load(machine: &Machine) -> Self {
        let cubin: &[u8] = match machine.sim.config().arch {
            Arch::Sm86 => include_bytes!("../../data/fill.sm_86.cubin"),
            Arch::Sm87 => include_bytes!("../../data/fill.sm_87.cubin"),
            Arch::Sm89 => include_bytes!("../../data/fill.sm_89.cubin"),
            Arch::Sm90 => include_bytes!("../../data/fill.sm_90.cubin"),
            _ => include_bytes!("../../data/fill.sm_80.cubin"),
        };
        Self::of(machine, cubin, "fill")
    }

    /// Loads `wait_flag(flag, out)`, which waits for a flag and stores its value; for the SMs of a ga10b.
    pub fn waiting(machine: &Machine) -> Self {
        assert_eq!(machine.sim.config().arch, Arch::Sm87);
        Self::of(machine, include_bytes!("../../data/waits.sm_87.cubin"), "wait_flag")
    }

    fn of(machine: &Machine, cubin: &[u8], name: &str) -> Self {
        let (offset, code_len) = section(cubin, &format!(".text.{name}"));
        let (_, bank_len) = section(cubin, &format!(".nv.constant0.{name}"));
        let program = machine.buffer(0x4000);
        program.write(0, &cubin[offset..offset + code_len]);
        let target = Target::from_sm(machine.sim.config().arch.sm()).unwrap();
        Self { program, bank: machine.buffer(4096), qmd: machine.buffer(4096), target, bank_len, code_len }
    }

    /// A launch of one warp of a kernel with two pointers.
    pub fn describe_pointers(&self, first: u64, second: u64) -> Launch {
        let launch = self.describe(first, 0, 1).block([32, 1, 1]);
        self.bank.write(0x168, &second.to_le_bytes());
        launch
    }

    /// A launch of `blocks` blocks of 256 threads, to be changed further.
    pub fn describe(&self, out: u64, base: u32, blocks: u32) -> Launch {
        let (grid, block) = ([blocks, 1, 1], [256, 1, 1]);
        self.bank.write(0, &launch_constants(self.bank_len, block, grid));
        self.bank.write(0x160, &out.to_le_bytes());
        self.bank.write(0x168, &base.to_le_bytes());
        Launch::new(self.target)
            .program(self.program.va, self.code_len as u64)
            .grid(grid)
            .block(block)
            .registers(32)
            .constant_buffer(0, ConstantBuffer::new(self.bank.va, self.bank_len as u32).invalidated())
    }

    /// Launches, with a release of 64 bits at `signal`.
    pub fn launch(&self, channel: &mut Channel<'_>, launch: &Launch, signal: u64, value: u64) {
        let release = Release::new_u64(signal, value).with_timestamp();
        self.qmd.write(0, launch.clone().release(0, release).build().unwrap().as_bytes());
        self.kick(channel);
    }

    /// Launches the descriptor in memory.
    pub fn kick(&self, channel: &mut Channel<'_>) {
        channel.submit(&[inc(1, 0x2b4, 1), (self.qmd.va >> 8) as u32, inc(1, 0x2c0, 1), 9]);
    }
}

/// File offset and size of an ELF section.
fn section(elf: &[u8], name: &str) -> (usize, usize) {
    let u16_at = |at: usize| u16::from_le_bytes([elf[at], elf[at + 1]]) as usize;
    let u64_at = |at: usize| u64::from_le_bytes(elf[at..at + 8].try_into().unwrap()) as usize;
    let (table, entry, count, names) = (u64_at(0x28), u16_at(0x3a), u16_at(0x3c), u16_at(0x3e));
    let strings = u64_at(table + names * entry + 0x18);
    let found = (0..count).map(|i| table + i * entry).find(|&header| {
        let at = strings + u32::from_le_bytes(elf[header..header + 4].try_into().unwrap()) as usize;
        elf[at..].starts_with(name.as_bytes()) && elf[at + name.len()] == 0
    });
    let header = found.unwrap();
    (u64_at(header + 0x18), u64_at(header + 0x20))
}

/// Bank 0 with the constants that the compiler's code reads from its start.
fn launch_constants(len: usize, block: [u32; 3], grid: [u32; 3]) -> Vec<u8> {
    let mut bank = vec![0; len];
    for (i, value) in block.into_iter().chain(grid).enumerate() {
        bank[i * 4..i * 4 + 4].copy_from_slice(&value.to_le_bytes());
    }
    bank[0x18..0x20].copy_from_slice(&SHARED_WINDOW.to_le_bytes());
    bank[0x20..0x28].copy_from_slice(&LOCAL_WINDOW.to_le_bytes());
    bank[0x28..0x2c].copy_from_slice(&0x00ff_fdc0_u32.to_le_bytes());
    bank
}
