//! State that the objects of an open device share above its core: programs, scratch memory, staged copies,
//! and deferred frees.

use std::sync::{Arc, Mutex};

use crate::address::GpuVa;
use crate::backend::{Backend, MemoryKind};
use crate::core::Core;
use crate::error::Error;
use crate::fault::map_file;
use crate::launch::target::LaunchTarget;
use crate::memory::manager::Piece;
use crate::objects::staging::Staging;
use crate::observer::Observer;
use crate::options::DeviceOptions;
use crate::program::image::Image;
use crate::program::kernel::Kernel;
use crate::program::registry::Registry;
use crate::program::scratch::ScratchPool;
use crate::submission::limbo::Limbo;
use crate::sync::lock;

/// The shared part of a device. Each object made from it holds it.
pub(crate) struct Shared {
    // Dropped in this order: the channel of staged copies, then memory that it and queues have used.
    staging: Mutex<Option<Arc<Staging>>>,
    /// Make large copies; the inner `None` where there is no code for the GPU.
    copy_kernels: Mutex<Option<Option<[Kernel; 2]>>>,
    pub scratch: ScratchPool,
    pub limbo: Arc<Limbo>,
    /// Loaded programs, to name the code a fault happened in.
    pub programs: Arc<Registry>,
    /// The encoding of launches.
    pub target: LaunchTarget,
    pub core: Arc<Core>,
}

impl Shared {
    /// A fresh address space with nothing in it.
    pub fn new(
        backend: Arc<dyn Backend>,
        observer: Arc<dyn Observer>,
        options: DeviceOptions,
    ) -> Result<Arc<Self>, Error> {
        let target = LaunchTarget::of(&*backend, options.has_conservative_descriptors())?;
        let programs = Arc::<Registry>::default();
        Ok(Arc::new(Self {
            staging: Mutex::default(),
            copy_kernels: Mutex::default(),
            scratch: ScratchPool::default(),
            limbo: Arc::default(),
            programs: programs.clone(),
            target,
            core: Core::new(backend, observer, options, programs),
        }))
    }

    /// Allocates memory; what became free meanwhile is given back first.
    pub fn alloc(&self, len: u64, kind: MemoryKind, what: &'static str) -> Result<Piece, Error> {
        self.core.here()?;
        self.limbo.collect();
        self.core.alloc(len, kind, what)
    }

    /// Allocates device memory at `va`; what became free meanwhile is given back first.
    pub fn alloc_at(&self, va: GpuVa, len: u64, what: &'static str) -> Result<Piece, Error> {
        self.core.here()?;
        self.limbo.collect();
        self.core.alloc_at(va, len, what)
    }

    /// A program was loaded.
    pub fn register(&self, image: &Arc<Image>) {
        self.programs.add(image);
        map_file::write(&self.core, &self.programs);
    }

    /// The kernels that make large copies; they are loaded on first use.
    pub fn copy_kernels(
        &self,
        load: impl FnOnce() -> Result<Option<[Kernel; 2]>, Error>,
    ) -> Result<Option<[Kernel; 2]>, Error> {
        let mut kernels = lock(&self.copy_kernels);
        if kernels.is_none() {
            *kernels = Some(load()?);
        }
        Ok(kernels.clone().flatten())
    }

    /// The channel of staged copies; it is created on first use.
    fn staging(&self) -> Result<Arc<Staging>, Error> {
        let mut staging = lock(&self.staging);
        match &*staging {
            Some(staging) => Ok(staging.clone()),
            None => Ok(staging.insert(Arc::new(Staging::new(&self.core, &self.limbo)?)).clone()),
        }
    }

    fn by_cpu(&self, piece: &Piece) -> bool {
        piece.is_mapped() && !self.core.options.staged_copies
    }

    /// Writes into memory that no submission uses.
    pub fn upload(&self, piece: &Piece, offset: u64, data: &[u8]) -> Result<(), Error> {
        if self.by_cpu(piece) {
            self.core.backend().before_cpu_access(piece.kind())?;
            self.core.observer().written(piece.at(offset), data);
            return piece.write(offset, data);
        }
        self.staging()?.upload(piece.at(offset), data)
    }

    /// Reads memory that no submission uses.
    pub fn download(&self, piece: &Piece, offset: u64, data: &mut [u8]) -> Result<(), Error> {
        if self.by_cpu(piece) {
            self.core.backend().before_cpu_access(piece.kind())?;
            self.core.observer().read(piece.at(offset), data.len() as u64);
            return piece.read(offset, data);
        }
        self.staging()?.download(piece.at(offset), data)
    }
}
