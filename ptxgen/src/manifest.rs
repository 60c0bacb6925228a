//! Sources of committed cubins, and whether the cubins still match them.

use std::fmt::Write;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fmt, fs, thread};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::module::Module;
use crate::ptxas::{Ptxas, file};
use crate::target::Target;

/// The SHA-256 of `bytes` in lower-case hex.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// `manifest.json` of a folder of cubins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// `ptxgen.manifest/1`.
    pub schema: String,
    /// Version of the ptxas that made the cubins.
    pub ptxas: String,
    /// Its flags, besides `-arch`.
    pub flags: Vec<String>,
    /// The cubins, sorted by file name.
    pub cubins: Vec<Cubin>,
}

/// One committed cubin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cubin {
    /// File name in the manifest's folder: `MODULE.sm_87.cubin`.
    pub file: String,
    /// `sm_87`.
    pub target: String,
    /// Names of its kernels.
    pub kernels: Vec<String>,
    /// Hash of the PTX it was compiled from.
    pub ptx_sha256: String,
    /// Hash of the file itself.
    pub cubin_sha256: String,
}

/// A module and the name of its file.
#[derive(Debug)]
pub struct Named {
    /// First part of the file name.
    pub name: String,
    /// The module in it.
    pub module: Module,
}

/// A way in which committed cubins differ from their manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// A module has no cubin.
    Missing(String),
    /// A cubin belongs to no module.
    Extra(String),
    /// The PTX has changed since the cubin was made.
    Ptx(String),
    /// The file is not the one that the manifest describes.
    File(String),
    /// The same ptxas makes other bytes from the same PTX.
    Recompiled(String),
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::Missing(name) => write!(f, "{name}: not committed"),
            Mismatch::Extra(name) => write!(f, "{name}: made from no kernel that exists"),
            Mismatch::Ptx(name) => write!(f, "{name}: its PTX has changed"),
            Mismatch::File(name) => write!(f, "{name}: not the file that the manifest describes"),
            Mismatch::Recompiled(name) => write!(f, "{name}: compiles to other bytes"),
        }
    }
}

const SCHEMA: &str = "ptxgen.manifest/1";
const FILE: &str = "manifest.json";

fn file_name(name: &str, target: Target) -> String {
    format!("{name}.{target}.cubin")
}

impl Manifest {
    /// Compiles `modules` into `dir`, writes the manifest beside them and removes cubins that belong to no
    /// module. A cubin that the same ptxas has made of the same PTX stays.
    ///
    /// # Errors
    /// As [`Ptxas::compile`]; [`Error::File`].
    pub fn generate(dir: &Path, modules: &[Named], ptxas: &Ptxas) -> Result<Self, Error> {
        fs::create_dir_all(dir).map_err(file("cannot create", dir))?;
        let same = |m: &Self| m.ptxas == ptxas.version() && m.flags == Ptxas::FLAGS;
        let before = Self::read(dir).ok().filter(same).map_or_else(Vec::new, |manifest| manifest.cubins);
        let mut cubins = Vec::new();
        for Named { name, module } in modules {
            let ptx = module.text();
            let name = file_name(name, module.target());
            let path = dir.join(&name);
            let made = before.iter().find(|c| c.file == name && c.ptx_sha256 == sha256(ptx.as_bytes()));
            let intact = |c: &&Cubin| fs::read(&path).is_ok_and(|bytes| sha256(&bytes) == c.cubin_sha256);
            if let Some(cubin) = made.filter(intact) {
                cubins.push(cubin.clone());
                continue;
            }
            let cubin = ptxas.compile(&ptx, module.target())?;
            fs::write(&path, &cubin).map_err(file("cannot write", &path))?;
            cubins.push(Cubin {
                file: name,
                target: module.target().to_string(),
                kernels: module.kernels().iter().map(|k| k.name().to_owned()).collect(),
                ptx_sha256: sha256(ptx.as_bytes()),
                cubin_sha256: sha256(&cubin),
            });
        }
        cubins.sort_by(|a, b| a.file.cmp(&b.file));
        let manifest = Self {
            schema: SCHEMA.to_owned(),
            ptxas: ptxas.version().to_owned(),
            flags: Ptxas::FLAGS.map(str::to_owned).to_vec(),
            cubins,
        };
        for extra in manifest.extra(dir)? {
            let path = dir.join(&extra);
            fs::remove_file(&path).map_err(file("cannot remove", &path))?;
        }
        let path = dir.join(FILE);
        let mut text = serde_json::to_string_pretty(&manifest)
            .map_err(|source| Error::Manifest { path: path.clone(), source })?;
        text.push('\n');
        fs::write(&path, text).map_err(file("cannot write", &path))?;
        Ok(manifest)
    }

    /// Reads `dir`'s manifest.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Manifest`].
    pub fn read(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(FILE);
        let text = fs::read(&path).map_err(file("cannot read", &path))?;
        serde_json::from_slice(&text).map_err(|source| Error::Manifest { path, source })
    }

    /// Cubin files in `dir` that the manifest does not list.
    fn extra(&self, dir: &Path) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir).map_err(file("cannot list", dir))? {
            let name = entry.map_err(file("cannot list", dir))?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".cubin") && self.cubins.iter().all(|c| c.file != name) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Compares `dir` and its manifest with `modules`; with a ptxas of the manifest's version also
    /// recompiles.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Manifest`], and [`Error::Refused`] if the PTX no longer compiles.
    pub fn check(dir: &Path, modules: &[Named], ptxas: Option<&Ptxas>) -> Result<Vec<Mismatch>, Error> {
        let manifest = Self::read(dir)?;
        let ptxas = ptxas.filter(|p| p.version() == manifest.ptxas && manifest.flags == Ptxas::FLAGS);
        let mut wrong: Vec<Mismatch> = manifest.extra(dir)?.into_iter().map(Mismatch::Extra).collect();
        let mut intact = Vec::new();
        for Named { name, module } in modules {
            let name = file_name(name, module.target());
            let Some(cubin) = manifest.cubins.iter().find(|c| c.file == name) else {
                wrong.push(Mismatch::Missing(name));
                continue;
            };
            let ptx = module.text();
            if sha256(ptx.as_bytes()) != cubin.ptx_sha256 {
                wrong.push(Mismatch::Ptx(name));
                continue;
            }
            let path = dir.join(&name);
            let committed = fs::read(&path).map_err(file("cannot read", &path))?;
            if sha256(&committed) != cubin.cubin_sha256 {
                wrong.push(Mismatch::File(name));
            } else {
                intact.push(Intact { name, ptx, target: module.target(), committed });
            }
        }
        if let Some(ptxas) = ptxas {
            wrong.extend(recompile(&intact, ptxas)?);
        }
        let known = |c: &&Cubin| modules.iter().any(|n| file_name(&n.name, n.module.target()) == c.file);
        wrong.extend(manifest.cubins.iter().filter(|c| !known(c)).map(|c| Mismatch::Extra(c.file.clone())));
        Ok(wrong)
    }
}

/// A file that is the one its manifest describes, and its sources.
struct Intact {
    name: String,
    ptx: String,
    target: Target,
    committed: Vec<u8>,
}

/// Those of `files` that compile to other bytes, by as many compilers at once as there are cores.
fn recompile(files: &[Intact], ptxas: &Ptxas) -> Result<Vec<Mismatch>, Error> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut wrong = Vec::new();
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            if ptxas.compile(&file.ptx, file.target)? != file.committed {
                wrong.push(Mismatch::Recompiled(file.name.clone()));
            }
        }
        Ok(wrong)
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        let found = workers.into_iter().map(|worker| worker.join().unwrap_or_else(|p| resume_unwind(p)));
        found.collect::<Result<Vec<_>, _>>().map(|wrong| wrong.concat())
    })
}
