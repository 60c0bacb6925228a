//! Encodes launches from QMDs that were built before: checked, and lacking only what differs from launch to
//! launch.

use std::sync::{Arc, Weak};

use crate::address::GpuVa;
use crate::constant_bank::{set_grid, set_grid_id};
use crate::core::Core;
use crate::error::{Error, LaunchError};
use crate::info::Info;
use crate::launch::target::LaunchTarget;
use crate::memory::manager::Piece;
use crate::program::image::Image;
use crate::program::kernel::Kernel;
use crate::shape::LaunchConfig;

/// Alignment of a QMD, and of the bank that follows it.
pub(crate) const ALIGN: u64 = 256;
/// Banks are written in whole lines of the CPU's write-combining buffers: a part of a line costs more than
/// all of it.
const LINE: usize = 64;

/// A launch.
#[derive(Clone, Copy)]
pub(crate) struct Launch<'a> {
    pub kernel: &'a Kernel,
    pub config: LaunchConfig,
    pub parameters: &'a [u8],
}

/// A launch encoded in memory, but for its QMD: the recorder writes that when it knows what follows.
#[derive(Debug)]
pub(crate) struct Encoded {
    /// GPU address of the QMD.
    pub va: GpuVa,
    pub qmd: qmd::Qmd,
    /// Offset of the parameters in the memory.
    pub parameters_at: u64,
}

/// A kernel in blocks of one shape.
#[derive(Debug)]
pub(crate) struct Template {
    /// Keeps the image's place in memory, not the image: its address names this one as long as this exists.
    image: Weak<Image>,
    index: usize,
    /// The shape; the grid is that of the last launch.
    config: LaunchConfig,
    /// Blocks for which an SM sets shared memory apart.
    apart: u32,
    target: LaunchTarget,
    /// The descriptor, without the bank's address.
    qmd: qmd::Qmd,
    /// The bank, in whole lines.
    bank: Vec<u8>,
    /// Offset of the parameters in the bank, and their length.
    parameters: usize,
    parameter_bytes: usize,
    /// Bytes of local memory per thread.
    pub local_per_thread: u32,
    /// The submission that the image was last marked with.
    pub marked: Option<u64>,
}

impl Template {
    fn new(target: &LaunchTarget, kernel: &Kernel, config: LaunchConfig) -> Result<Self, Error> {
        let (base, parameter_bytes) = (kernel.info().param_base, kernel.param_bytes() as usize);
        let mut bank = target.bank.content(&config, base);
        let apart = kernel.blocks_apart(&config, target.bank.sm_count);
        let mut qmd = kernel.descriptor(target.qmd, &config, apart)?;
        target.conserve(&mut qmd).map_err(|source| Error::qmd(kernel.name(), source))?;
        bank.resize((base as usize + parameter_bytes).next_multiple_of(LINE), 0);
        Ok(Self {
            image: Arc::downgrade(kernel.image()),
            index: kernel.index(),
            config,
            apart,
            target: *target,
            qmd,
            bank,
            parameters: base as usize,
            parameter_bytes,
            local_per_thread: kernel.local_per_thread(),
            marked: None,
        })
    }

    /// Whether launches of this kernel in this shape are made from it, whatever their grid, with the same
    /// number of its blocks on an SM.
    fn fits(&self, kernel: &Kernel, config: &LaunchConfig) -> bool {
        Weak::as_ptr(&self.image) == Arc::as_ptr(kernel.image())
            && self.index == kernel.index()
            && self.config == LaunchConfig { grid: self.config.grid, ..*config }
            && (self.config.grid == config.grid
                || self.apart == kernel.blocks_apart(config, self.target.bank.sm_count))
    }

    /// Bytes of the bank that a kernel may read.
    fn bank_len(&self) -> u32 {
        (self.parameters + self.parameter_bytes).next_multiple_of(16) as u32
    }

    /// Bytes of memory that a launch takes, a multiple of [`ALIGN`].
    pub fn len(&self) -> u64 {
        self.target.qmd_stride() + u64::from(self.bank_len()).next_multiple_of(ALIGN)
    }

    /// Encodes a launch for the [`len`](Self::len) bytes at `offset` in `memory`, a multiple of [`ALIGN`].
    /// `launch.parameters` are as many bytes as the kernel takes.
    pub fn encode(
        &mut self,
        launch: &Launch<'_>,
        grid_id: u64,
        memory: &Piece,
        offset: u64,
    ) -> Result<Encoded, Error> {
        let named = |source| Error::qmd(launch.kernel.name(), source);
        if self.config.grid != launch.config.grid {
            self.qmd.set_grid(launch.config.grid).map_err(named)?;
            set_grid(&mut self.bank, launch.config.grid);
            self.config.grid = launch.config.grid;
        }
        set_grid_id(&mut self.bank, grid_id);
        let place = self.parameters..self.parameters + launch.parameters.len();
        self.bank[place].copy_from_slice(launch.parameters);
        let bank_at = offset + self.target.qmd_stride();
        memory.write(bank_at, &self.bank)?;
        let mut qmd = self.qmd.clone();
        self.target.set_bank(&mut qmd, memory.at(bank_at), self.bank_len()).map_err(named)?;
        let parameters_at = bank_at + self.parameters as u64;
        Ok(Encoded { va: memory.at(offset), qmd, parameters_at })
    }
}

/// Templates by kernel and shape.
#[derive(Debug)]
pub(crate) struct QmdCache {
    target: LaunchTarget,
    templates: Vec<Template>,
    /// Most templates.
    limit: usize,
    /// The one that was used last, where the next search starts.
    last: usize,
    /// The one to be replaced next, once there are as many as may be.
    oldest: usize,
}

impl QmdCache {
    /// An empty cache that holds at most `limit` templates.
    pub fn new(target: LaunchTarget, limit: usize) -> Self {
        Self { target, templates: Vec::new(), limit, last: 0, oldest: 0 }
    }

    /// The number of the template for a launch, which is checked where it is the first of its kind. Numbers
    /// are valid until the cache is full.
    pub fn number(&mut self, core: &Core, launch: &Launch<'_>) -> Result<usize, Error> {
        let Launch { kernel, config, parameters } = launch;
        let (later, earlier) = (self.last..self.templates.len(), 0..self.last);
        let found = later.chain(earlier).find(|i| self.templates[*i].fits(kernel, config));
        if let Some(found) = found
            && self.templates[found].parameter_bytes == parameters.len()
        {
            self.last = found;
            return Ok(found);
        }
        if !Arc::ptr_eq(kernel.image().memory().manager(), core.memory()) {
            return Err(Error::ForeignDevice { what: "kernel" });
        }
        check(core.info(), launch)?;
        let template = Template::new(&self.target, kernel, *config)?;
        if self.templates.len() < self.limit {
            self.last = self.templates.len();
            self.templates.push(template);
        } else {
            self.last = self.oldest;
            self.templates[self.last] = template;
            self.oldest = (self.oldest + 1) % self.limit;
        }
        Ok(self.last)
    }

    /// The template for a launch.
    pub fn template(&mut self, core: &Core, launch: &Launch<'_>) -> Result<&mut Template, Error> {
        let number = self.number(core, launch)?;
        Ok(&mut self.templates[number])
    }

    /// The templates, by their numbers.
    pub fn templates(&mut self) -> &mut [Template] {
        &mut self.templates
    }
}

/// Refuses a launch that the hardware would refuse, or hang on, or with other bytes of arguments than the
/// kernel takes.
fn check(info: &Info, launch: &Launch<'_>) -> Result<(), Error> {
    let Launch { kernel, config, parameters } = launch;
    let name = || kernel.name().to_owned();
    let limit = |what, value: u64, limit: u64| match value <= limit {
        true => Ok(()),
        false => Err(Error::Launch(LaunchError::Limit { kernel: name(), what, value, limit })),
    };
    let threads = config.block.iter().fold(1u64, |a, b| a.saturating_mul((*b).into()));
    limit("threads per block", threads, kernel.max_threads().into())?;
    if let Some(required) = kernel.info().required_block
        && required != config.block
    {
        return Err(Error::Launch(LaunchError::BlockShape { kernel: name(), required, given: config.block }));
    }
    let shared = u64::from(kernel.static_shared()) + u64::from(config.dynamic_shared);
    limit("shared memory per block in bytes", shared, info.max_shared_per_block)?;
    let (expected, given) = (kernel.param_bytes(), parameters.len() as u32);
    if expected != given {
        return Err(Error::Launch(LaunchError::Arguments { kernel: name(), expected, given }));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::MemoryKind;
    use crate::backend::tests::Books;
    use crate::objects::program::Program;
    use crate::objects::shared::Shared;
    use crate::observer::Unobserved;
    use crate::options::DeviceOptions;

    const VECADD: &[u8] = include_bytes!("../../tests/data/01_vecadd.sm_87.cubin");
    /// Bytes of its parameters, and where they lie in its bank.
    const PARAMETERS: usize = 28;
    const BASE: u64 = 0x160;

    fn device() -> (Arc<Shared>, Kernel) {
        let books = Books::new(usize::MAX);
        let shared = Shared::new(books, Arc::new(Unobserved), DeviceOptions::default()).unwrap();
        let kernel = Program::load(&shared, VECADD.into()).unwrap().kernel("vadd_f32").unwrap();
        (shared, kernel)
    }

    fn bytes(piece: &Piece, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        piece.read(offset, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_template_is_for_a_kernel_in_one_shape_and_the_oldest_gives_way() {
        let (shared, kernel) = device();
        let other = Program::load(&shared, VECADD.into()).unwrap().kernel("vadd_f32").unwrap();
        let mut cache = QmdCache::new(shared.target, 3);
        let mut number = |kernel: &Kernel, config: LaunchConfig| {
            let launch = Launch { kernel, config, parameters: &[0; PARAMETERS] };
            cache.number(&shared.core, &launch).unwrap()
        };
        let shape = |grid: u32, threads: u32| LaunchConfig::new(grid, threads);
        // Grids that have as many blocks on an SM.
        assert_eq!([1, 2, 1, 3].map(|grid| number(&kernel, shape(grid, 32))), [0; 4]);
        assert_eq!(number(&kernel, shape(1, 64)), 1);
        assert_eq!(number(&other, shape(1, 32)), 2, "the same code elsewhere");
        assert_eq!(number(&kernel, shape(1, 32)), 0);
        assert_eq!(number(&other, shape(1, 32)), 2);
        // Each of these is new, and takes the place of the oldest.
        let new = [96, 128, 160, 192].map(|threads| number(&kernel, shape(1, threads)));
        assert_eq!(new, [0, 1, 2, 0]);
        assert_eq!([128, 160, 192].map(|threads| number(&kernel, shape(1, threads))), [1, 2, 0]);
        assert_eq!(number(&kernel, shape(1, 64).with_dynamic_shared(256)), 1);
        assert_eq!(number(&kernel, shape(1, 64)), 2, "without that memory");
    }

    #[test]
    fn launches_from_a_template_are_as_if_each_had_its_own() {
        let (shared, kernel) = device();
        let memory = shared.alloc(1 << 16, MemoryKind::Command, "test").unwrap();
        let mut cache = QmdCache::new(shared.target, 4);
        let mut offset = 0;
        let grids = [[7, 1, 1], [7, 1, 1], [5, 3, 2], [7, 1, 1], [1000, 2, 1]];
        for (id, grid) in (0x1_0000_0002..).zip(grids) {
            let parameters: Vec<u8> = (0..PARAMETERS).map(|i| (i as u64 * id) as u8 | 1).collect();
            let launch =
                Launch { kernel: &kernel, config: LaunchConfig::new(grid, (32, 2)), parameters: &parameters };
            let template = cache.template(&shared.core, &launch).unwrap();
            let mut own = Template::new(&shared.target, &kernel, launch.config).unwrap();
            let len = template.len();
            // A QMD of 256 bytes, and a bank of 0x160 + 28 bytes.
            assert_eq!(len, 256 + 512);
            let made = template.encode(&launch, id, &memory, offset).unwrap();
            let all = bytes(&memory, offset + 256, 512);
            assert_eq!(bytes(&memory, made.parameters_at, PARAMETERS), parameters);
            assert_eq!(made.parameters_at, offset + 256 + BASE);
            assert_eq!((made.va, made.qmd.grid()), (memory.at(offset), grid));
            let bank = made.qmd.constant_buffer(0).expect("a bank");
            assert_eq!((bank.address, bank.invalidate), (memory.at(offset + 256).raw(), true));
            assert_eq!(u64::from(bank.len), (BASE + PARAMETERS as u64).next_multiple_of(16));
            let word = |at: usize| u32::from_le_bytes(all[at..at + 4].try_into().unwrap());
            assert_eq!([0, 4, 8, 12, 16, 20].map(word), [32, 2, 1, grid[0], grid[1], grid[2]]);
            assert_eq!((word(0x30), word(0x34)), (id as u32, 1));
            // The words that a template of its own writes over these are the same.
            let again = own.encode(&launch, id, &memory, offset).unwrap();
            assert_eq!(again.qmd.as_bytes(), made.qmd.as_bytes());
            assert_eq!(bytes(&memory, offset + 256, 512), all);
            offset += len;
        }
    }

    #[test]
    fn a_launch_that_the_kernel_or_the_part_cannot_run_makes_no_template() {
        let (shared, kernel) = device();
        let mut cache = QmdCache::new(shared.target, 4);
        let mut refused = |config: LaunchConfig, parameters: &[u8]| {
            let launch = Launch { kernel: &kernel, config, parameters };
            match cache.number(&shared.core, &launch) {
                Ok(_) => None,
                Err(Error::Launch(error)) => Some(error),
                Err(other) => panic!("{other}"),
            }
        };
        let right = [0; PARAMETERS];
        let most = kernel.max_threads();
        assert!(refused(LaunchConfig::new(1, most), &right).is_none());
        let threads = refused(LaunchConfig::new(1, (most, 2)), &right);
        let is_limit = |error: &LaunchError, name: &str, wanted: u64, most: u64| {
            matches!(error, LaunchError::Limit { what, value, limit, .. }
                if *what == name && *value == wanted && *limit == most)
        };
        assert!(threads.is_some_and(|e| is_limit(&e, "threads per block", 2 * u64::from(most), most.into())));
        let limit = shared.core.info().max_shared_per_block;
        let shared_memory = |bytes: u64| LaunchConfig::new(1, 32).with_dynamic_shared(bytes as u32);
        assert!(refused(shared_memory(limit), &right).is_none());
        let over = refused(shared_memory(limit + 1), &right).expect("too much");
        assert!(is_limit(&over, "shared memory per block in bytes", limit + 1, limit), "{over}");
        for parameters in [&[][..], &[0; PARAMETERS - 1], &[0; PARAMETERS + 1]] {
            let error = refused(LaunchConfig::new(1, 32), parameters).expect("another number of bytes");
            assert!(matches!(error, LaunchError::Arguments { expected: 28, .. }), "{error}");
        }
        let stranger = device().1;
        let launch = Launch { kernel: &stranger, config: LaunchConfig::new(1, 32), parameters: &right };
        let error = cache.number(&shared.core, &launch).unwrap_err();
        assert!(matches!(error, Error::ForeignDevice { what: "kernel" }), "{error}");
        assert_eq!(cache.templates().len(), 2, "those that can run");
    }
}
