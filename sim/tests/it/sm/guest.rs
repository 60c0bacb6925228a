//! A guest memory for tests: separate regions, each with its own rights.

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;

use ga10b_sim::sm::{
    Access, Config, ConstBank, Counters, Executor, Fault, Launch, Memory, MemoryFault, Span, Windows,
};

/// One mapped range.
struct Region {
    va: u64,
    words: Box<[UnsafeCell<u128>]>,
    writable: bool,
}

/// Regions of guest memory.
#[derive(Default)]
pub struct Guest {
    regions: Vec<Region>,
}

// SAFETY: the interpreter accesses the cells through atomics; the tests only while no launch runs.
unsafe impl Sync for Guest {}

impl Guest {
    /// Maps `len` zero bytes at `va`.
    pub fn map(&mut self, va: u64, len: usize) {
        self.map_with(va, len, true);
    }

    /// Maps `len` zero bytes at `va`.
    pub fn map_with(&mut self, va: u64, len: usize, writable: bool) {
        let words = (0..len.div_ceil(16)).map(|_| UnsafeCell::new(0)).collect();
        self.regions.push(Region { va, words, writable });
    }

    fn at(&self, va: u64, len: usize) -> *mut u8 {
        let region =
            self.regions.iter().find(|r| va.wrapping_sub(r.va) < r.words.len() as u64 * 16).expect("mapped");
        let offset = (va - region.va) as usize;
        assert!(offset + len <= region.words.len() * 16);
        // SAFETY: inside the region, as just checked.
        unsafe { region.words.as_ptr().cast::<u8>().cast_mut().add(offset) }
    }

    pub fn write(&mut self, va: u64, bytes: &[u8]) {
        // SAFETY: `at` checked the range, and `&mut self` excludes a running launch.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(va, bytes.len()), bytes.len()) }
    }

    pub fn read(&mut self, va: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        // SAFETY: `at` checked the range, and `&mut self` excludes a running launch.
        unsafe { std::ptr::copy_nonoverlapping(self.at(va, len), bytes.as_mut_ptr(), len) };
        bytes
    }

    pub fn write_u32s(&mut self, va: u64, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.write(va, &bytes);
    }

    pub fn read_u32s(&mut self, va: u64, count: usize) -> Vec<u32> {
        let bytes = self.read(va, 4 * count);
        bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect()
    }

    pub fn read_f32s(&mut self, va: u64, count: usize) -> Vec<f32> {
        self.read_u32s(va, count).into_iter().map(f32::from_bits).collect()
    }

    pub fn write_code(&mut self, va: u64, words: &[u128]) {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.write(va, &bytes);
    }
}

// SAFETY: the regions live as long as the guest and never move; tests touch them only while no launch runs.
unsafe impl Memory for Guest {
    fn translate(&self, va: u64, access: Access) -> Result<Span, MemoryFault> {
        for r in &self.regions {
            let len = r.words.len() as u64 * 16;
            if va.wrapping_sub(r.va) < len {
                if !r.writable && matches!(access, Access::Write | Access::Atomic) {
                    return Err(MemoryFault { va, access, kind: 6 });
                }
                let host = NonNull::new(r.words.as_ptr().cast::<u8>().cast_mut()).expect("not null");
                return Ok(Span { va: r.va, len, host, writable: r.writable });
            }
        }
        Err(MemoryFault { va, access, kind: 2 })
    }

    fn generation(&self) -> u64 {
        0
    }
}

pub const CODE: u64 = 0x10_0000;
pub const BANK0: u64 = 0x20_0000;
pub const DATA: u64 = 0x4_0000_0000;
pub const WINDOWS: Windows = Windows { shared_base: 0xfe00_0000, local_base: 0xff00_0000 };

/// A launch of the code at [`CODE`], one block of 32 threads.
pub fn launch(arch: sass::Arch) -> Launch {
    let mut banks = [None; 8];
    banks[0] = Some(ConstBank { va: BANK0, len: 0x1000 });
    Launch {
        arch,
        program: CODE,
        grid: [1; 3],
        block: [32, 1, 1],
        registers: 64,
        shared_bytes: 0,
        local_bytes: 0,
        barriers: 1,
        banks,
        windows: WINDOWS,
        grid_id: 1,
        sm_count: 8,
        max_warps_per_sm: 48,
        shared_bytes_per_sm: 164 << 10,
    }
}

/// Runs with the given configuration.
pub fn run_with(config: Config, guest: &Guest, launch: &Launch) -> Result<Counters, Fault> {
    Executor::new(config).run(guest, launch, &AtomicBool::new(false))
}

/// Runs with one worker.
pub fn run(guest: &Guest, launch: &Launch) -> Result<Counters, Fault> {
    run_with(Config { workers: 1, ..Config::default() }, guest, launch)
}
