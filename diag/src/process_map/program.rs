//! Executables and shared libraries of CUDA programs: of their cubins for several architectures, those that a
//! device runs.

use std::collections::{BTreeMap, BTreeSet};

use hcq::CubinError;
use hcq::cubin::{Image, ImageKind, images};

use crate::cubin::Cubin;
use crate::process_map::code::Module;
use crate::process_map::loose::Loose;
use crate::source::Files;

/// Why a program could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file, or a cubin in it, could not be read.
    #[error(transparent)]
    Cubin(#[from] crate::cubin::Error),
    /// An image could not be unpacked.
    #[error("{source}; `cuobjdump -xelf all FILE` of the CUDA toolkit unpacks it, for --cubin")]
    Packed {
        /// Why not.
        source: CubinError,
    },
    /// It has no code that can be used.
    #[error(
        "it has no cubin{}; it has: {}; {}", sm.map_or(String::new(), |sm| format!(" that sm_{sm} runs")),
        available.join(", "), remedy(sm.unwrap_or(87))
    )]
    NoCode {
        /// The requested architecture.
        sm: Option<u32>,
        /// Architectures that it has.
        available: Vec<String>,
    },
}

/// A program, and the cubins in it.
#[derive(Clone, Debug)]
pub(super) struct Program {
    name: String,
    cubins: Vec<Loose>,
    /// The one kernel meant, and the address of its first instruction, where a user gave it.
    place: Option<(String, u64)>,
    /// Other contents, e.g. `sm_75 (code that nvdiag does not read)`.
    rest: BTreeSet<String>,
}

/// Whether code for `code` runs on a device of `sm`: later devices of the same generation run it.
const fn runs(code: u32, sm: u32) -> bool {
    code / 10 == sm / 10 && code <= sm
}

impl Program {
    /// Reads a program, or a cubin by itself. Of a program the cubins for `sm`, or all where it is not given.
    pub(super) fn read(
        name: &str,
        bytes: &[u8],
        kernel: Option<&str>,
        base: Option<u64>,
        sm: Option<u32>,
        files: &mut Files,
        read: &mut dyn FnMut(&str) -> Option<String>,
    ) -> Result<Self, Error> {
        let mut program = Self {
            name: name.to_owned(),
            cubins: Vec::new(),
            place: kernel.map(str::to_owned).zip(base),
            rest: BTreeSet::new(),
        };
        let images = images(bytes).map_err(crate::cubin::Error::from)?;
        let Some(images) = images else {
            program.add(bytes, kernel, files, read)?;
            return program.checked(sm);
        };
        let mut failed = None;
        for image in &images {
            let wanted = image.kind == ImageKind::Cubin && sm.is_none_or(|sm| runs(image.sm, sm));
            let added = match wanted {
                true => program.add_image(image, kernel, files, read),
                false => {
                    program.rest.insert(words(image));
                    continue;
                }
            };
            match added {
                Ok(()) => {}
                // Cubins of other kernels are no use here; those of other generations may be.
                Err(Error::Cubin(crate::cubin::Error::NoKernel { name, available })) => {
                    failed = Some(Error::Cubin(crate::cubin::Error::NoKernel { name, available }));
                }
                Err(Error::Cubin(crate::cubin::Error::Arch { sm })) => {
                    program.rest.insert(format!("sm_{sm} (code that nvdiag does not read)"));
                }
                Err(error) => return Err(error),
            }
        }
        match (program.cubins.is_empty(), failed) {
            (true, Some(error)) => Err(error),
            _ => program.checked(sm),
        }
    }

    /// The program, unless it has nothing for `sm`.
    fn checked(self, sm: Option<u32>) -> Result<Self, Error> {
        let is_usable = self.cubins.iter().any(|cubin| sm.is_none_or(|sm| runs(cubin.sm, sm)));
        match is_usable {
            true => Ok(self),
            false => Err(Error::NoCode { sm, available: self.contents() }),
        }
    }

    fn add_image(
        &mut self,
        image: &Image<'_>,
        kernel: Option<&str>,
        files: &mut Files,
        read: &mut dyn FnMut(&str) -> Option<String>,
    ) -> Result<(), Error> {
        let content = image.content().map_err(|source| Error::Packed { source })?;
        self.add(&content, kernel, files, read)
    }

    fn add(
        &mut self,
        cubin: &[u8],
        kernel: Option<&str>,
        files: &mut Files,
        read: &mut dyn FnMut(&str) -> Option<String>,
    ) -> Result<(), Error> {
        let cubin = Cubin::parse(cubin, kernel)?;
        let all = || cubin.kernels.iter().chain(&cubin.functions);
        all().for_each(|kernel| files.add(&kernel.lines, read));
        self.cubins.push(Loose::new(&self.name, "--exe", &cubin, all()));
        Ok(())
    }

    /// The cubins that a device of `sm` runs: of those that hold the same kernel, the ones for the latest
    /// architecture. Where `sm` is not known, all, if they are for one architecture.
    ///
    /// # Errors
    /// Why there are none, in words, with the remedy.
    pub(super) fn cubins_for(&self, sm: Option<u32>) -> Result<Vec<&Loose>, String> {
        let Some(sm) = sm else {
            let sms: BTreeSet<u32> = self.cubins.iter().map(|cubin| cubin.sm).collect();
            return match sms.len() {
                0 | 1 => Ok(self.cubins.iter().collect()),
                _ => Err(format!(
                    "{} has code for {}, and the log does not tell the GPU's architecture: give it with --sm",
                    self.name,
                    self.contents().join(", ")
                )),
            };
        };
        let mut by_sm: BTreeMap<u32, Vec<&Loose>> = BTreeMap::new();
        for cubin in self.cubins.iter().filter(|cubin| runs(cubin.sm, sm)) {
            by_sm.entry(cubin.sm).or_default().push(cubin);
        }
        if by_sm.is_empty() {
            return Err(format!(
                "{} has no code for sm_{sm}, the GPU of this log; it has {}: {}",
                self.name,
                self.contents().join(", "),
                remedy(sm)
            ));
        }
        let (mut chosen, mut named) = (Vec::new(), BTreeSet::new());
        for cubins in by_sm.into_values().rev() {
            let fresh: Vec<_> =
                cubins.into_iter().filter(|cubin| cubin.names().any(|name| !named.contains(name))).collect();
            named.extend(fresh.iter().flat_map(|cubin| cubin.names()));
            chosen.extend(fresh);
        }
        Ok(chosen)
    }

    /// The kernel whose address was given, in the code that a device of `sm` runs.
    pub(super) fn placed(&self, sm: Option<u32>) -> Option<Module> {
        let (kernel, base) = self.place.as_ref()?;
        self.cubins_for(sm).ok()?.into_iter().find_map(|cubin| cubin.at(kernel, *base))
    }

    /// Returns its contents, e.g. `sm_87 (cubin)`.
    fn contents(&self) -> Vec<String> {
        let cubins: BTreeSet<u32> = self.cubins.iter().map(|cubin| cubin.sm).collect();
        cubins.into_iter().map(|sm| format!("sm_{sm} (cubin)")).chain(self.rest.iter().cloned()).collect()
    }
}

fn words(image: &Image<'_>) -> String {
    let kind = match image.kind {
        ImageKind::Cubin => "cubin",
        ImageKind::Ptx => "PTX",
        _ => "an unknown kind",
    };
    format!("sm_{} ({kind})", image.sm)
}

/// Returns the way to get code for an architecture into a program, or the driver's code of its PTX out of it.
fn remedy(sm: u32) -> String {
    format!(
        "compile it with -gencode arch=compute_{sm},code=sm_{sm}; from PTX the driver compiles code that is in no file"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_runs_code_of_its_generation_that_is_not_newer() {
        let runs_on_87: Vec<u32> =
            [75, 80, 86, 87, 89, 90].into_iter().filter(|code| runs(*code, 87)).collect();
        assert_eq!(runs_on_87, [80, 86, 87]);
    }
}
