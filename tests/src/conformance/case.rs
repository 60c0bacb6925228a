//! One program with its inputs.

use hcq::{Device, LaunchConfig};
use sass::{Arch, Encoding};

use crate::conformance::tolerance::Tolerance;

/// An argument of a launch.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum Arg {
    /// The address of a buffer, some bytes into it.
    Buffer(usize, u64),
    U16(u16),
    U32(u32),
    U64(u64),
    F32(f32),
    F64(f64),
}

/// A buffer of a case, as an argument: from its beginning.
#[derive(Clone, Copy, Debug)]
pub struct BufferNumber(pub usize);

impl From<BufferNumber> for Arg {
    fn from(BufferNumber(number): BufferNumber) -> Self {
        Self::Buffer(number, 0)
    }
}

macro_rules! numbers {
    ($($ty:ty => |$v:ident| $arg:expr),*) => { $(
        impl From<$ty> for Arg {
            fn from($v: $ty) -> Self {
                $arg
            }
        }
    )* };
}
numbers! {
    u32 => |v| Self::U32(v), i32 => |v| Self::U32(v.cast_unsigned()), f32 => |v| Self::F32(v),
    u64 => |v| Self::U64(v), i64 => |v| Self::U64(v.cast_unsigned()), f64 => |v| Self::F64(v)
}

/// A launch of a graph.
#[derive(Clone, Debug)]
pub struct Link {
    /// The kernel.
    pub kernel: &'static str,
    /// Its arguments.
    pub args: Vec<Arg>,
    /// Numbers of the launches that it follows.
    pub after: Vec<usize>,
    /// It may begin before the only one that it follows has ended.
    pub early: bool,
}

/// Facts of an output word.
#[derive(Clone, Debug)]
pub struct Place {
    /// The operation or instruction that made it.
    pub what: String,
    /// Largest difference of devices in it.
    pub tolerance: Tolerance,
}

/// Of two results, what each of the first buffers may differ by in addition.
pub type Slack = dyn Fn(&[Vec<u32>], &[Vec<u32>]) -> Vec<f64>;

/// Work that launches by itself on a device: what its buffers hold afterwards.
pub type Work = dyn Fn(&Device) -> anyhow::Result<Vec<Vec<u32>>>;

/// A program, its inputs, and what may differ in its outputs.
pub struct Case {
    /// The row of the table it counts in.
    pub family: &'static str,
    /// Its name.
    pub program: String,
    /// Seed of its inputs.
    pub seed: u64,
    /// The module it is in, for sm_87 and sm_90.
    pub cubins: [&'static [u8]; 2],
    /// Its kernel in the module.
    pub kernel: String,
    /// Shape of every launch.
    pub config: LaunchConfig,
    /// On SM 9.0 in place of these two: another kernel of its module, and its shape.
    pub hopper: Option<(String, LaunchConfig)>,
    /// The arguments of each launch; launches may overlap.
    pub launches: Vec<Vec<Arg>>,
    /// In place of these, and of the kernel: the launches of a graph, which is replayed.
    pub links: Vec<Link>,
    /// The content of the buffers before. All of all buffers is compared after.
    pub buffers: Vec<Vec<u32>>,
    /// In place of all this: work that launches by itself, whose results are compared.
    pub work: Option<Box<Work>>,
    /// The right values, where they are known: per buffer and word.
    pub expected: Option<Vec<Vec<Option<u32>>>>,
    /// Results follow from how the architecture itself rounds: another one's differ from them.
    pub by_architecture: bool,
    /// Further difference of the numbers in each of the first buffers beyond that of their places, for the
    /// results of two devices in all of them.
    pub slack: Option<Box<Slack>>,
    /// The facts of a word of a buffer; `None` if the program stores there what it never set.
    pub place: Box<dyn Fn(usize, usize) -> Option<Place>>,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Case({} {}, seed {})", self.family, self.program, self.seed)
    }
}

impl Case {
    /// The values of most cases: no links, no work, nothing known, the same on every architecture.
    pub fn blank() -> Self {
        Self {
            family: "",
            program: String::new(),
            seed: 0,
            cubins: [&[]; 2],
            kernel: String::new(),
            config: LaunchConfig::new(1, 1),
            hopper: None,
            launches: Vec::new(),
            links: Vec::new(),
            buffers: Vec::new(),
            work: None,
            expected: None,
            by_architecture: false,
            slack: None,
            place: Box::new(|_, _| None),
        }
    }

    /// The kernel for an instruction set, and the shape of its launches.
    pub fn kernel(&self, arch: Arch) -> (&str, LaunchConfig) {
        match (&self.hopper, arch.encoding()) {
            (Some((kernel, config)), Encoding::Sm9x) => (kernel, *config),
            _ => (&self.kernel, self.config),
        }
    }

    /// The module for an instruction set.
    pub fn cubin(&self, arch: Arch) -> &'static [u8] {
        match arch.encoding() {
            Encoding::Sm8x => self.cubins[0],
            Encoding::Sm9x => self.cubins[1],
        }
    }
}
