//! Programs: cubins loaded into GPU memory, and the kernels in them.

use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use crate::address::GpuVa;
use crate::backend::MemoryKind;
use crate::constant_bank::BankLayout;
use crate::context::{Context, lock};
use crate::cubin::CubinError;
use crate::error::Error;
use crate::launch::LaunchConfig;
use crate::memory::Piece;
use crate::scratch;
use crate::timeline::{Timeline, Uses};

mod loader;
mod stack;
#[cfg(test)]
mod tests;

pub(crate) use loader::{Cubin, KernelInfo};

/// Launch descriptors of one kernel that differ in all of a launch but the grid.
type Templates = Mutex<Vec<(LaunchConfig, qmd::Qmd)>>;

/// A cubin in GPU memory.
#[derive(Debug)]
pub(crate) struct Image {
    cubin: Cubin,
    /// The code as loaded, to name instructions by.
    content: Vec<u8>,
    /// `Some` until the image is dropped.
    piece: Option<Piece>,
    base: GpuVa,
    /// Of each kernel.
    uses: Vec<Uses>,
    templates: Vec<Templates>,
    context: Weak<Context>,
}

impl Image {
    fn load(context: &Arc<Context>, bytes: &[u8]) -> Result<Self, Error> {
        let cubin = Cubin::parse(bytes, |sm| BankLayout::of_sm(sm).map(|l| l.parameters))?;
        let device = context.backend().info().sm_number();
        if !runs_on(cubin.sm, device) {
            return Err(CubinError::WrongSm { code: cubin.sm, device }.into());
        }
        let piece = context.alloc(cubin.len(), MemoryKind::Device, "program")?;
        let base = piece.va();
        let templates = cubin.kernels.iter().map(|_| Mutex::default()).collect();
        let uses = cubin.kernels.iter().map(|_| Uses::default()).collect();
        let mut image = Self {
            cubin,
            content: Vec::new(),
            piece: None,
            base,
            uses,
            templates,
            context: Arc::downgrade(context),
        };
        let piece = image.piece.insert(piece);
        image.content = image.cubin.image(base.raw())?;
        let mut padded = image.content.clone();
        padded.resize(image.cubin.len() as usize, 0);
        context.upload(piece, 0, &padded)?;
        Ok(image)
    }

    /// Whether `pc` is in this image.
    pub fn contains(&self, pc: u64) -> bool {
        (self.base.raw()..self.base.raw() + self.cubin.len()).contains(&pc)
    }

    /// The function that contains `pc`, and the offset of `pc` in it.
    pub fn function_at(&self, pc: u64) -> Option<(&str, u64)> {
        let offset = pc.checked_sub(self.base.raw())?;
        let (start, (name, len)) = self.cubin.functions.range(..=offset).next_back()?;
        (offset - start < *len).then_some((name, offset - start))
    }

    /// Where it lies.
    pub fn base(&self) -> GpuVa {
        self.base
    }

    /// Compute capability of its code, 87 for 8.7.
    pub fn sm(&self) -> u32 {
        self.cubin.sm
    }

    /// Its functions: name, offset and length.
    pub fn functions(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        self.cubin.functions.iter().map(|(offset, (name, len))| (name.as_str(), *offset, *len))
    }

    /// Its bytes as loaded.
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    /// Numbers of the kernels that submissions of `timeline` from the one that signals `value` on name.
    pub fn kernels_after(&self, timeline: &Timeline, value: u64) -> impl Iterator<Item = usize> {
        (0..self.uses.len()).filter(move |i| self.uses[*i].name_after(timeline, value))
    }

    /// Name of a kernel.
    pub fn kernel_name(&self, index: usize) -> Option<&str> {
        self.cubin.kernels.get(index).map(|k| k.name.as_str())
    }

    /// The program counter of the only instruction of a kernel that accesses global memory in a way that `fits`; `None`
    /// if there are several or none, or if the program has functions the kernel might call.
    pub fn only_access(
        &self,
        arch: sass::Arch,
        index: usize,
        fits: impl Fn(sass::Access) -> bool,
    ) -> Option<u64> {
        if self.cubin.functions.len() > self.cubin.kernels.len() {
            return None;
        }
        let code = &self.cubin.kernels.get(index)?.code;
        let (start, end) = (code.offset as usize, (code.offset + code.len) as usize);
        let mut found = None;
        for (i, word) in self.content.get(start..end)?.as_chunks::<16>().0.iter().enumerate() {
            let instruction = sass::decode(arch, sass::Word::from_bytes(*word)).ok()?;
            let global = instruction.memory_access().filter(|access| {
                matches!(access.space, sass::Space::Global | sass::Space::Generic) && fits(access.access)
            });
            if global.is_some() && found.replace(self.base.raw() + (start + 16 * i) as u64).is_some() {
                return None;
            }
        }
        found
    }

    /// The instruction at `pc`.
    pub fn instruction_at(&self, pc: u64) -> Option<[u8; 16]> {
        let offset = usize::try_from(pc.checked_sub(self.base.raw())?).ok()?;
        self.content.get(offset..offset.checked_add(16)?)?.try_into().ok()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if let (Some(piece), Some(context)) = (self.piece.take(), self.context.upgrade()) {
            let all = Uses::default();
            self.uses.iter_mut().for_each(|uses| all.absorb(uses));
            context.retire(vec![piece], Vec::new(), all);
        }
    }
}

/// Code runs on its own SM version and on later ones of the same major version.
fn runs_on(code: u32, device: u32) -> bool {
    code / 10 == device / 10 && code % 10 <= device % 10
}

/// A loaded cubin. Cloning is cheap; the memory goes back when the last clone, the last [`Kernel`] and the last
/// submission that runs one are gone.
#[derive(Clone, Debug)]
pub struct Program {
    image: Arc<Image>,
}

impl Program {
    pub(crate) fn load(context: &Arc<Context>, cubin: &[u8]) -> Result<Self, Error> {
        context.alive()?;
        let image = Arc::new(Image::load(context, cubin)?);
        context.register(&image);
        Ok(Self { image })
    }

    /// The kernel of that name.
    ///
    /// # Errors
    /// [`Error::NoKernel`] lists the names there are.
    pub fn kernel(&self, name: &str) -> Result<Kernel, Error> {
        let kernels = &self.image.cubin.kernels;
        match kernels.iter().position(|k| k.name == name) {
            Some(index) => Ok(Kernel { image: self.image.clone(), index }),
            None => Err(Error::NoKernel {
                name: name.to_owned(),
                available: kernels.iter().map(|k| k.name.clone()).collect(),
            }),
        }
    }

    /// All kernels, in the order of the symbol table.
    pub fn kernels(&self) -> impl Iterator<Item = Kernel> {
        (0..self.image.cubin.kernels.len()).map(|index| Kernel { image: self.image.clone(), index })
    }
}

/// A kernel of a loaded program.
#[derive(Clone)]
pub struct Kernel {
    pub(crate) image: Arc<Image>,
    index: usize,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({} at {})", self.name(), self.address())
    }
}

impl Kernel {
    pub(crate) fn info(&self) -> &KernelInfo {
        &self.image.cubin.kernels[self.index]
    }

    pub(crate) fn uses(&self) -> &Uses {
        &self.image.uses[self.index]
    }

    /// Its number in the image.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Its name, mangled where the compiler mangled it.
    pub fn name(&self) -> &str {
        &self.info().name
    }

    /// Registers per thread.
    pub fn registers(&self) -> u32 {
        self.info().registers
    }

    /// Bytes of static shared memory per block. On sm_90 this includes the KiB that is reserved there.
    pub fn static_shared(&self) -> u32 {
        self.info().static_shared
    }

    /// Bytes of stack per thread.
    pub fn local_bytes(&self) -> u32 {
        self.info().stack
    }

    /// Bytes of parameters.
    pub fn param_bytes(&self) -> u32 {
        self.info().param_bytes
    }

    /// Most threads per block: what the code was compiled for, and what its registers leave room for.
    pub fn max_threads(&self) -> u32 {
        let sm = self.image.cubin.sm;
        let by_registers =
            qmd::Target::from_sm(sm).map_or(1024, |t| 32 * t.warps_by_registers(self.registers()));
        self.info().max_threads.min(by_registers)
    }

    /// How many blocks of `threads` threads with `dynamic_shared` bytes of shared memory beyond the static ones an SM
    /// holds at once. A grid whose blocks wait for each other must not be larger than that times the SMs.
    pub fn blocks_per_sm(&self, threads: u32, dynamic_shared: u32) -> u32 {
        self.occupancy(threads, dynamic_shared).map_or(0, |o| o.blocks_per_sm)
    }

    /// How full such blocks make an SM, and what limits them; `None` for an SM whose limits are not known.
    pub fn occupancy(&self, threads: u32, dynamic_shared: u32) -> Option<qmd::Occupancy> {
        let target = qmd::Target::from_sm(self.image.cubin.sm)?;
        let reserved = if self.image.cubin.sm >= 90 { qmd::RESERVED_SHARED_BYTES } else { 0 };
        let shared = self.static_shared().saturating_sub(reserved).saturating_add(dynamic_shared);
        Some(qmd::occupancy(target, threads, self.registers(), shared))
    }

    /// Where the code starts.
    pub fn address(&self) -> GpuVa {
        GpuVa::inside(self.image.base.raw() + self.info().code.offset)
    }

    /// Bytes of code.
    pub fn code_bytes(&self) -> u64 {
        self.info().code.len
    }

    /// Bytes of local memory per thread that the launch must provide.
    pub(crate) fn local_per_thread(&self) -> u32 {
        scratch::per_thread(self.info().stack)
    }

    /// The launch descriptor for `config`; grid and bank 0 are left open.
    pub(crate) fn template(&self, target: qmd::Target, config: LaunchConfig) -> Result<qmd::Qmd, Error> {
        let config = LaunchConfig { grid: [1; 3], ..config };
        let mut templates = lock(&self.image.templates[self.index]);
        if let Some((_, qmd)) = templates.iter().find(|(known, _)| *known == config) {
            return Ok(qmd.clone());
        }
        let k = self.info();
        let shared = qmd::SharedMemory::new(k.static_shared, config.dynamic_shared);
        let mut launch = qmd::Launch::new(target)
            .program(self.address().raw(), k.code.len)
            .block(config.block)
            .registers(k.registers)
            .barriers(k.barriers)
            .shared(shared)
            .local(0, self.local_per_thread())
            .invalidate(qmd::Invalidate::SHADER_DATA)
            .membar(qmd::Membar::System);
        if config.blocks_per_sm > 1 {
            // Each with the part that is kept back per block.
            let block = shared.bytes_on(target) + u64::from(qmd::RESERVED_SHARED_BYTES);
            let all = block.saturating_mul(config.blocks_per_sm.into()).min(target.max_shared_bytes().into());
            // Bounded by a number of 32 bits.
            launch = launch.carve_out(all as u32);
        }
        for (bank, extent) in &k.banks {
            let va = self.image.base.raw() + extent.offset;
            let len = extent.len.min(u64::from(qmd::CONSTANT_BUFFER_MAX)) as u32;
            launch = launch.constant_buffer(*bank, qmd::ConstantBuffer::new(va, len));
        }
        let qmd = launch.build().map_err(|source| Error::Qmd { kernel: k.name.clone(), source })?;
        // A kernel is launched in a handful of shapes; a program that varies without end shall not grow this list.
        if templates.len() >= 64 {
            templates.clear();
        }
        templates.push((config, qmd.clone()));
        Ok(qmd)
    }
}
