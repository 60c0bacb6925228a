//! A cubin in GPU memory, and what can be read out of it about its code.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::address::GpuVa;
use crate::backend::ChannelId;
use crate::cubin::error::CubinError;
use crate::cubin::loader::{Cubin, KernelInfo};
use crate::cubin::relocated::relocated;
use crate::error::Error;
use crate::memory::manager::Piece;
use crate::submission::limbo::{Keep, Limbo};
use crate::submission::uses::Uses;

/// A cubin in GPU memory; freed when the submissions that name its kernels have completed.
pub(crate) struct Image {
    cubin: Cubin,
    /// Compute capability of the GPU that it is loaded on.
    device_sm: u32,
    /// The file it was read from, where a core dump may have to hold it.
    file: Option<Box<[u8]>>,
    /// The code as loaded, to name instructions by.
    content: Vec<u8>,
    memory: Arc<Piece>,
    /// Of each kernel.
    uses: Vec<Uses>,
    /// Of each kernel, once that was asked: whether it waits for the grids before it.
    grid_waits: Vec<OnceLock<bool>>,
    limbo: Arc<Limbo>,
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} kernels for sm_{} at {}", self.cubin.kernels.len(), self.cubin.sm, self.base())
    }
}

impl Image {
    /// The image of `cubin` for `memory`, which holds as many bytes as it takes, on an sm_`device_sm`. Nothing
    /// is written yet.
    pub fn new(
        cubin: Cubin,
        file: Option<Box<[u8]>>,
        device_sm: u32,
        memory: Piece,
        limbo: &Arc<Limbo>,
    ) -> Result<Self, Error> {
        let content = cubin.image(memory.va().raw())?;
        let uses = cubin.kernels.iter().map(|_| Uses::default()).collect();
        let grid_waits = cubin.kernels.iter().map(|_| OnceLock::new()).collect();
        Ok(Self {
            cubin,
            file,
            device_sm,
            content,
            memory: Arc::new(memory),
            uses,
            grid_waits,
            limbo: limbo.clone(),
        })
    }

    /// Its memory.
    pub fn memory(&self) -> &Piece {
        &self.memory
    }

    /// Its bytes as loaded.
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    /// The file it was read from; `None` where it was not kept.
    pub fn file(&self) -> Option<&[u8]> {
        self.file.as_deref()
    }

    /// That file with the addresses of what is loaded.
    pub fn relocated_file(&self) -> Option<Result<Vec<u8>, CubinError>> {
        self.file().map(|file| relocated(file, &self.cubin, self.base().raw()))
    }

    /// The requirements of its kernels, in the order of the symbol table.
    pub fn kernels(&self) -> &[KernelInfo] {
        &self.cubin.kernels
    }

    /// The submissions that use a kernel.
    pub fn uses(&self, index: usize) -> &Uses {
        &self.uses[index]
    }

    /// The GPU address.
    pub fn base(&self) -> GpuVa {
        self.memory.va()
    }

    /// Compute capability of its code, 87 for 8.7.
    pub fn sm(&self) -> u32 {
        self.cubin.sm
    }

    /// Compute capability of the GPU, the same or a later minor version than that of the code.
    pub fn device_sm(&self) -> u32 {
        self.device_sm
    }

    /// Whether `pc` is in this image.
    pub fn contains(&self, pc: u64) -> bool {
        (self.base().raw()..self.base().raw() + self.cubin.len()).contains(&pc)
    }

    /// The function that contains `pc`, and the offset of `pc` in it.
    pub fn function_at(&self, pc: u64) -> Option<(&str, u64)> {
        let offset = pc.checked_sub(self.base().raw())?;
        let (start, (name, len)) = self.cubin.functions.range(..=offset).next_back()?;
        (offset - start < *len).then_some((name, offset - start))
    }

    /// Its functions: name, offset and length.
    pub fn functions(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        self.cubin.functions.iter().map(|(offset, (name, len))| (name.as_str(), *offset, *len))
    }

    /// Numbers of the kernels that submissions of `channel` from the one that signals `value` on name.
    pub fn kernels_after(&self, channel: ChannelId, value: u64) -> impl Iterator<Item = usize> {
        (0..self.uses.len()).filter(move |i| self.uses[*i].name_after(channel, value))
    }

    /// Name of a kernel.
    pub fn kernel_name(&self, index: usize) -> Option<&str> {
        self.cubin.kernels.get(index).map(|k| k.name.as_str())
    }

    /// The program counter of the only instruction of a kernel that accesses global memory in a way that
    /// `fits`; `None` if there are several or none, or if the program has functions the kernel might call.
    pub fn only_access(&self, index: usize, fits: impl Fn(sass::Access) -> bool) -> Option<u64> {
        if self.cubin.functions.len() > self.cubin.kernels.len() {
            return None;
        }
        let arch = sass::Arch::from_sm(self.cubin.sm)?;
        let code = &self.cubin.kernels.get(index)?.code;
        let (start, end) = (code.offset as usize, (code.offset + code.len) as usize);
        let mut found = None;
        for (i, word) in self.content.get(start..end)?.as_chunks::<16>().0.iter().enumerate() {
            let instruction = sass::decode(arch, sass::Word::from_bytes(*word)).ok()?;
            let global = instruction.memory_access().filter(|access| {
                matches!(access.space, sass::Space::Global | sass::Space::Generic) && fits(access.access)
            });
            if global.is_some() && found.replace(self.base().raw() + (start + 16 * i) as u64).is_some() {
                return None;
            }
        }
        found
    }

    /// Whether the code of a kernel has an instruction that waits for the grids before it.
    pub fn has_grid_wait(&self, index: usize) -> bool {
        let find = || {
            let arch = sass::Arch::from_sm(self.cubin.sm)?;
            let code = &self.cubin.kernels.get(index)?.code;
            let bytes = self.content.get(code.offset as usize..(code.offset + code.len) as usize)?;
            let words = bytes.as_chunks::<16>().0.iter();
            let mut decoded = words.filter_map(|word| sass::decode(arch, sass::Word::from_bytes(*word)).ok());
            Some(decoded.any(|instruction| instruction.opcode == sass::Opcode::Acqbulk))
        };
        self.grid_waits.get(index).is_some_and(|known| *known.get_or_init(|| find().unwrap_or(false)))
    }

    /// The instruction at `pc`, in words.
    pub fn instruction_at(&self, pc: u64) -> Option<String> {
        let offset = usize::try_from(pc.checked_sub(self.base().raw())?).ok()?;
        let bytes = self.content.get(offset..offset.checked_add(16)?)?.try_into().ok()?;
        let arch = sass::Arch::from_sm(self.cubin.sm)?;
        Some(match sass::decode(arch, sass::Word::from_bytes(bytes)) {
            Ok(instruction) => instruction.text(pc),
            Err(error) => error.to_string(),
        })
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if !self.memory.manager().process().is_current() {
            return;
        }
        let all = Uses::default();
        self.uses.iter().for_each(|uses| all.absorb(uses));
        self.limbo.retire(all, [self.memory.clone() as Keep]);
    }
}
