//! A PTX module: target, version and kernels as one text.

use std::fmt::{self, Write};

use crate::builder::Kernel;

/// A GPU generation to compile for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Tegra ga10b (Orin).
    Sm87,
    /// Hopper (H100, H200).
    Sm90,
}

impl Target {
    /// All of them.
    pub const ALL: [Target; 2] = [Target::Sm87, Target::Sm90];

    /// As ptxas spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Target::Sm87 => "sm_87",
            Target::Sm90 => "sm_90",
        }
    }

    /// The first PTX version that knows it.
    const fn since(self) -> Version {
        match self {
            Target::Sm87 => Version::new(7, 4),
            Target::Sm90 => Version::new(7, 8),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A PTX language version. The default is 7.0, which has all that every kernel uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    major: u8,
    minor: u8,
}

impl Version {
    /// `major.minor`.
    pub const fn new(major: u8, minor: u8) -> Self {
        Self { major, minor }
    }
}

impl Default for Version {
    fn default() -> Self {
        Self::new(7, 0)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Kernels for one target.
#[derive(Debug)]
pub struct Module {
    target: Target,
    kernels: Vec<Kernel>,
}

impl Module {
    /// An empty module.
    pub fn new(target: Target) -> Self {
        Self { target, kernels: Vec::new() }
    }

    /// The target.
    pub fn target(&self) -> Target {
        self.target
    }

    /// Adds a finished kernel.
    pub fn add(&mut self, kernel: Kernel) -> &mut Self {
        self.kernels.push(kernel);
        self
    }

    /// The kernels, in order.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// The whole PTX text. The version stated is the lowest that has the target and everything the kernels use, so that
    /// the oldest drivers and tools accept it.
    pub fn text(&self) -> String {
        let version = self.kernels.iter().map(Kernel::version).fold(self.target.since(), Version::max);
        let mut out = String::new();
        let _ = write!(out, ".version {version}\n.target {}\n.address_size 64\n", self.target);
        for kernel in &self.kernels {
            out.push('\n');
            kernel.render(&mut out);
        }
        out
    }
}
