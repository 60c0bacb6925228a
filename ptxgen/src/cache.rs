//! Compiled kernels on disk, found again by what went into them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::manifest::sha256;
use crate::ptxas::{Ptxas, file};
use crate::target::Target;

/// A folder of cubins named by the hash of their PTX, target, flags and ptxas version.
///
/// Several processes may use it at once: files appear whole, by renaming, and never change afterwards.
#[derive(Clone, Debug)]
pub struct KernelCache {
    dir: PathBuf,
}

impl KernelCache {
    /// The user's cache: `$XDG_CACHE_HOME/ptxgen`, else `~/.cache/ptxgen`. `None` if neither is known.
    pub fn of_user() -> Option<Self> {
        let base = std::env::var_os("XDG_CACHE_HOME")
            .filter(|p| Path::new(p).is_absolute())
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
        Some(Self::at(base.join("ptxgen")))
    }

    /// A cache in `dir`, created when first written.
    pub fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The cubin of `ptx`: from the cache, or compiled and kept. A cache that cannot be written costs only
    /// the keeping.
    ///
    /// # Errors
    /// As [`Ptxas::compile`].
    pub fn compile(&self, ptxas: &Ptxas, ptx: &str, target: Target) -> Result<Vec<u8>, Error> {
        let path = self.dir.join(format!("{}.cubin", key(ptxas, ptx, target)));
        match fs::read(&path) {
            Ok(cubin) if cubin.starts_with(b"\x7fELF") => return Ok(cubin),
            _ => {}
        }
        let cubin = ptxas.compile(ptx, target)?;
        if let Err(error) = self.keep(&path, &cubin) {
            tracing::warn!(%error, "compiled kernel is not cached");
        }
        Ok(cubin)
    }

    fn keep(&self, path: &Path, cubin: &[u8]) -> Result<(), Error> {
        fs::create_dir_all(&self.dir).map_err(file("cannot create", &self.dir))?;
        let mut temporary =
            tempfile::NamedTempFile::new_in(&self.dir).map_err(file("cannot write in", &self.dir))?;
        temporary.write_all(cubin).map_err(file("cannot write", temporary.path()))?;
        temporary.persist(path).map_err(|e| e.error).map_err(file("cannot create", path))?;
        Ok(())
    }
}

fn key(ptxas: &Ptxas, ptx: &str, target: Target) -> String {
    sha256(format!("{}\n{target}\n{}\n{ptx}", ptxas.version(), Ptxas::FLAGS.join(" ")).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kernel, Module};

    #[test]
    fn a_second_compilation_comes_from_the_cache_and_damage_is_noticed() {
        let ptxas = match Ptxas::find() {
            Ok(ptxas) => ptxas,
            Err(error) => return ga10b_oracles::missing("ptxas", error),
        };
        let dir = tempfile::tempdir().unwrap();
        let cache = KernelCache::at(dir.path().join("kernels"));
        let mut module = Module::new(Target::Sm87);
        module.add(Kernel::new("nothing"));
        let first = cache.compile(&ptxas, &module.text(), Target::Sm87).unwrap();
        let path = cache.dir.join(format!("{}.cubin", key(&ptxas, &module.text(), Target::Sm87)));
        assert_eq!(fs::read(&path).unwrap(), first);
        fs::write(&path, b"\x7fELF and no more").unwrap();
        assert_eq!(cache.compile(&ptxas, &module.text(), Target::Sm87).unwrap(), b"\x7fELF and no more");
        fs::write(&path, b"").unwrap();
        assert_eq!(cache.compile(&ptxas, &module.text(), Target::Sm87).unwrap(), first);
    }
}
