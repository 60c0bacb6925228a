//! A PTX module: target, version and kernels as one text.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::builder::Kernel;
use crate::error::Error;
use crate::target::{Target, Version};

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
    ///
    /// # Panics
    /// As [`Module::try_add`] fails: a mistake in the program that writes the kernel.
    pub fn add(&mut self, kernel: Kernel) -> &mut Self {
        self.try_add(kernel).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Adds a finished kernel.
    ///
    /// # Errors
    /// [`Error::Lacking`] if the target lacks an instruction of the kernel's, which then is not added.
    ///
    /// # Panics
    /// If it has a table with the name of another one of the module: a mistake in the program that writes the kernel.
    pub fn try_add(&mut self, kernel: Kernel) -> Result<&mut Self, Error> {
        match kernel.needs() {
            Some((needs, instruction)) if self.target < needs => {
                let kernel = kernel.name().to_owned();
                Err(Error::Lacking { kernel, instruction, needs, target: self.target })
            }
            _ => {
                let known: BTreeMap<_, _> = self.kernels.iter().flat_map(Kernel::tables).collect();
                for (name, words) in kernel.tables() {
                    assert!(known.get(&name).is_none_or(|known| *known == words), "two tables {name}");
                }
                self.kernels.push(kernel);
                Ok(self)
            }
        }
    }

    /// The kernels, in order.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// The whole PTX text. The version stated is the lowest that has the target and everything the kernels
    /// use, so that the oldest drivers and tools accept it.
    pub fn text(&self) -> String {
        let (major, minor) = self.target.ptx_version();
        let since = Version::new(major, minor);
        let version = self.kernels.iter().map(Kernel::version).fold(since, Version::max);
        let mut out = String::new();
        let _ = write!(out, ".version {version}\n.target {}\n.address_size 64\n", self.target);
        for (name, words) in self.kernels.iter().flat_map(Kernel::tables).collect::<BTreeMap<_, _>>() {
            let words: Vec<String> = words.iter().map(u32::to_string).collect();
            let (len, words) = (words.len(), words.join(", "));
            let _ = write!(out, "\n.global .align 16 .u32 {name}[{len}] = {{{words}}};\n");
        }
        for kernel in &self.kernels {
            out.push('\n');
            kernel.render(&mut out);
        }
        out
    }
}
