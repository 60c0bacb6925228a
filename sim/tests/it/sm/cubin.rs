//! Kernels of the corpus cubins, placed in guest memory the way a driver places them.

use std::collections::HashMap;
use std::path::PathBuf;

use ga10b_sim::sm::{ConstBank, Launch};
use goblin::elf::Elf;
use sass::Arch;

use super::guest::{BANK0, CODE, Guest, WINDOWS, launch};

const BANK2: u64 = 0x21_0000;
const BANK3: u64 = 0x22_0000;
const BANK4: u64 = 0x23_0000;
const GLOBALS: u64 = 0x24_0000;
/// Bytes of stack needed above the kernel's own frames.
const STACK_TOP: u32 = 0x240;
const R_CUDA_64: u32 = 2;

/// Returns the offset of kernel parameters in bank 0.
fn parameters(arch: Arch) -> usize {
    if arch == Arch::Sm90 { 0x210 } else { 0x160 }
}

/// A kernel in guest memory.
pub struct Kernel {
    pub guest: Guest,
    pub launch: Launch,
    parameters: Vec<u8>,
}

impl Kernel {
    /// Loads a kernel of a corpus file, for example `01_vecadd` and `vadd_f32`.
    pub fn load(file: &str, name: &str) -> Kernel {
        Self::from_path(&format!("../sass/tests/data/cubin/{file}.sm_87.cubin"), name)
    }

    /// Loads a kernel of a cubin at a path relative to this crate.
    pub fn from_path(file: &str, name: &str) -> Kernel {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file);
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let elf = Elf::parse(&bytes).unwrap();
        let mut guest = Guest::default();
        guest.map_with(CODE, 0x8_0000, false);
        for bank in [BANK0, BANK2, BANK3, BANK4, GLOBALS] {
            guest.map(bank, 0x1_0000);
        }
        let arch = if file.contains("sm_90") { Arch::Sm90 } else { Arch::Sm87 };
        let mut l = launch(arch);
        l.shared_bytes = 0;
        l.barriers = 16;
        l.local_bytes = STACK_TOP + 4096;
        let section = |i: usize| elf.shdr_strtab.get_at(elf.section_headers[i].sh_name).unwrap_or("");
        // Executable sections one after the other, and the data that code refers to by address.
        let (mut at, mut places) = (CODE, HashMap::new());
        for (i, s) in elf.section_headers.iter().enumerate() {
            let data = s.file_range().map_or(&[][..], |r| &bytes[r]);
            let title = section(i);
            if title.starts_with(".text.") {
                guest.write(at, data);
                places.insert(i, at);
                if title == format!(".text.{name}") {
                    l.program = at;
                    // For sm_90 it is in another section: enough for small kernels.
                    l.registers = if arch == Arch::Sm90 { 48 } else { s.sh_info >> 24 };
                }
                at += (data.len() as u64).next_multiple_of(128);
            } else if title == ".nv.global.init" || title == ".nv.global" {
                let to = GLOBALS + if title == ".nv.global" { 0x8000 } else { 0 };
                guest.write(to, data);
                places.insert(i, to);
            } else if title == format!(".nv.constant2.{name}") {
                guest.write(BANK2, data);
                l.banks[2] = Some(ConstBank { va: BANK2, len: 0x1_0000 });
            } else if title == ".nv.constant3" {
                guest.write(BANK3, data);
                places.insert(i, BANK3);
                l.banks[3] = Some(ConstBank { va: BANK3, len: data.len() as u32 });
            } else if title == ".nv.constant4" {
                places.insert(i, BANK4);
                l.banks[4] = Some(ConstBank { va: BANK4, len: 0x1_0000 });
            } else if title == format!(".nv.shared.{name}") {
                l.shared_bytes = s.sh_size as u32;
            }
        }
        assert_ne!(l.registers, 64, "{name} not found in {file}");
        for (_, relocations) in &elf.shdr_relocs {
            for r in relocations {
                let Some(symbol) = elf.syms.get(r.r_sym) else { continue };
                let Some(base) = places.get(&symbol.st_shndx) else { continue };
                let value = base + symbol.st_value + r.r_addend.unwrap_or(0) as u64;
                if r.r_type == R_CUDA_64 {
                    let target = relocated(&elf, relocations, &places);
                    if let Some(to) = target {
                        guest.write(to + r.r_offset, &value.to_le_bytes());
                    }
                }
            }
        }
        Kernel { guest, launch: l, parameters: Vec::new() }
    }

    /// Sets the grid and the block.
    pub fn shape(mut self, grid: [u32; 3], block: [u32; 3]) -> Self {
        (self.launch.grid, self.launch.block) = (grid, block);
        self
    }

    /// Appends a parameter at its natural alignment.
    pub fn param(mut self, bytes: &[u8]) -> Self {
        let aligned = self.parameters.len().next_multiple_of(bytes.len());
        self.parameters.resize(aligned, 0);
        self.parameters.extend(bytes);
        self
    }

    pub fn u64(self, x: u64) -> Self {
        self.param(&x.to_le_bytes())
    }

    pub fn u32(self, x: u32) -> Self {
        self.param(&x.to_le_bytes())
    }

    pub fn f32(self, x: f32) -> Self {
        self.param(&x.to_le_bytes())
    }

    /// Maps memory and fills it.
    pub fn data(mut self, va: u64, len: usize, words: &[u32]) -> Self {
        self.guest.map(va, len);
        self.guest.write_u32s(va, words);
        self
    }

    /// Writes bank 0.
    pub fn ready(mut self) -> Self {
        let mut bank = vec![0u8; parameters(self.launch.arch)];
        let mut put = |at: usize, bytes: &[u8]| bank[at..at + bytes.len()].copy_from_slice(bytes);
        for i in 0..3 {
            put(4 * i, &self.launch.block[i].to_le_bytes());
            put(0xc + 4 * i, &self.launch.grid[i].to_le_bytes());
        }
        put(0x18, &WINDOWS.shared_base.to_le_bytes());
        put(0x20, &WINDOWS.local_base.to_le_bytes());
        put(0x28, &0xff_fdc0u32.to_le_bytes());
        put(0x30, &self.launch.grid_id.to_le_bytes());
        put(0x50, &BANK3.to_le_bytes());
        bank.extend(&self.parameters);
        self.launch.banks[0] = Some(ConstBank { va: BANK0, len: bank.len() as u32 });
        self.guest.write(BANK0, &bank);
        self
    }
}

/// The guest address of the section that a relocation section is for.
fn relocated(
    elf: &Elf<'_>,
    relocations: &goblin::elf::RelocSection<'_>,
    places: &HashMap<usize, u64>,
) -> Option<u64> {
    let (index, _) = elf.shdr_relocs.iter().find(|(_, r)| std::ptr::eq(r, relocations))?;
    places.get(&(elf.section_headers[*index].sh_info as usize)).copied()
}
