//! The file that stores results, and the folder of kernels beside it.
//!
//! Files are written under another name and renamed, so that an interrupted search leaves the old content. A
//! result that cannot be used any more (the kernels have changed, a file is missing) is reported and skipped.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ptxgen::{Target, sha256};
use serde::{Deserialize, Serialize};

use crate::bounded;
use crate::error::{Error, Result};
use crate::kernels::choices::{Kernels, Tuning};
use crate::kernels::recipe::Recipe;
use crate::tuning::entry::{Entry, KernelFile, Method, Subject};

/// The file's first field. Added fields are compatible; any other change increases the number.
pub const SCHEMA: &str = "llm-demo.tuning/1";

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Document {
    schema: String,
    entries: Vec<Entry>,
}

/// The field that every version's file has.
#[derive(Debug, Deserialize)]
struct Header {
    schema: String,
}

/// Results in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    path: PathBuf,
}

/// A loaded result.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Shapes and kernels.
    pub tuning: Tuning,
    /// The stored result.
    pub entry: Entry,
    /// The parts that cannot be used, and why.
    pub problems: Vec<String>,
}

impl Store {
    /// The user's file: the one that `LLM_DEMO_TUNING` names, else `$XDG_CACHE_HOME/llm-demo/tuning.json`,
    /// else `~/.cache/llm-demo/tuning.json`. `None` if none of these is set.
    pub fn of_user() -> Option<Self> {
        let named = std::env::var_os("LLM_DEMO_TUNING").filter(|p| !p.is_empty()).map(PathBuf::from);
        let cache = || {
            let xdg = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
            let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
            xdg.or_else(home).map(|dir| dir.join("llm-demo/tuning.json"))
        };
        named.or_else(cache).map(Self::at)
    }

    /// The file `path`, created when first written. Kernels are in a folder beside it, with the same name and
    /// the extension `kernels`.
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All results; empty if there is no file.
    ///
    /// # Errors
    /// [`Error::Tuning`] and [`Error::TuningSchema`] for a damaged or foreign file; [`Error::File`].
    pub fn entries(&self) -> Result<Vec<Entry>> {
        let bytes = match File::open(&self.path).and_then(bounded::read) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(self.file("read", &self.path, source)),
        };
        let bad =
            |source: serde_json::Error| Error::Tuning { path: self.path.clone(), source: source.into() };
        let header: Header = serde_json::from_slice(&bytes).map_err(bad)?;
        if header.schema != SCHEMA {
            return Err(Error::TuningSchema {
                path: self.path.clone(),
                expected: SCHEMA,
                found: header.schema,
            });
        }
        let document: Document = serde_json::from_slice(&bytes).map_err(bad)?;
        Ok(document.entries)
    }

    /// The result for `subject`, with its kernels for `target`. Predicted results serve the software device
    /// alone.
    ///
    /// # Errors
    /// As [`Store::entries`].
    pub fn load(&self, subject: &Subject, method: Method, target: Target) -> Result<Option<Loaded>> {
        let entry = self.entries()?.into_iter().find(|e| e.subject == *subject && e.method == method);
        Ok(entry.map(|entry| self.ready(entry, target)))
    }

    fn ready(&self, entry: Entry, target: Target) -> Loaded {
        let mut tuning = Tuning::default();
        let mut problems = Vec::new();
        let mut usable = |what: String, recipe: Option<Recipe>| -> bool {
            let checked = match recipe {
                Some(recipe) => self.kernel(&entry, &recipe, target, &mut tuning.kernels),
                None => Err("this version has no kernel of that shape".to_owned()),
            };
            match checked {
                Ok(()) => true,
                Err(why) => {
                    problems.push(format!("{what}: {why}"));
                    false
                }
            }
        };
        for g in &entry.gemm {
            let what = format!("{} tokens, {} x {}", g.tokens, g.rows, g.cols);
            let runs = g.tuned.shape.takes(&g.product(), target.sm());
            if usable(what, g.recipe().filter(|_| runs)) {
                tuning.choices.gemm.insert(g.product(), (g.tuned.shape, g.shares));
            }
        }
        Loaded { tuning, entry, problems }
    }

    /// Adds the kernel of `recipe` to `kernels`, unless it is committed.
    fn kernel(
        &self,
        entry: &Entry,
        recipe: &Recipe,
        target: Target,
        kernels: &mut Kernels,
    ) -> Result<(), String> {
        let name = recipe.name();
        if recipe.is_committed() || kernels.contains_key(name.as_str()) {
            return Ok(());
        }
        let known = entry.kernels.iter().find(|k| k.name == name);
        let known = known.ok_or_else(|| format!("kernel {name} is not listed"))?;
        if sha256(recipe.ptx(target).as_bytes()) != known.ptx_sha256 {
            return Err(format!("kernel {name} is that of another version"));
        }
        let path = self.kernel_path(&known.cubin_sha256).ok_or("its hash is no hash")?;
        let cubin = File::open(&path)
            .and_then(bounded::read)
            .map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        if sha256(&cubin) != known.cubin_sha256 {
            return Err(format!("{} is damaged", path.display()));
        }
        kernels.insert(name.into(), cubin.into());
        Ok(())
    }

    /// Adds a result and its kernels. Parts that it lacks are taken from a stored result of the same subject
    /// and method.
    ///
    /// # Errors
    /// As [`Store::entries`]; [`Error::File`].
    pub fn save(&self, mut entry: Entry, kernels: &Kernels, target: Target) -> Result<()> {
        let dir = self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(dir).map_err(|e| self.file("create", dir, e))?;
        let lock_path = self.path.with_extension("lock");
        // Whatever lies there, or is linked there, is not changed.
        let lock = File::options().write(true).create(true).truncate(false).open(&lock_path);
        let lock = lock.map_err(|e| self.file("create", &lock_path, e))?;
        lock.lock().map_err(|e| self.file("lock", &lock_path, e))?;
        let mut entries = self.entries()?;
        let same = |e: &Entry| e.subject == entry.subject && e.method == entry.method;
        let old = entries.iter().position(same).map(|i| entries.remove(i));
        if let Some(old) = old {
            entry.keep(old);
        }
        let listed = |(name, recipe): (String, Recipe)| -> Result<Option<KernelFile>> {
            let Some(cubin) = kernels.get(name.as_str()) else {
                return Ok(entry.kernels.iter().find(|k| k.name == name).cloned());
            };
            let cubin_sha256 = sha256(cubin);
            if let Some(path) = self.kernel_path(&cubin_sha256).filter(|path| !path.exists()) {
                self.replace(&path, cubin)?;
            }
            let ptx_sha256 = sha256(recipe.ptx(target).as_bytes());
            Ok(Some(KernelFile { name, ptx_sha256, cubin_sha256 }))
        };
        let all: Result<Vec<_>> = entry.recipes().into_iter().map(listed).collect();
        entry.kernels = all?.into_iter().flatten().collect();
        entries.push(entry);
        let document = Document { schema: SCHEMA.to_owned(), entries };
        let mut text = serde_json::to_vec_pretty(&document)
            .map_err(|e| Error::Tuning { path: self.path.clone(), source: e.into() })?;
        text.push(b'\n');
        self.replace(&self.path, &text)
    }

    /// Path of the cubin with that hash; `None` if it is no hash.
    fn kernel_path(&self, sha256: &str) -> Option<PathBuf> {
        let is_hash = sha256.len() == 64 && sha256.bytes().all(|b| b.is_ascii_hexdigit());
        is_hash.then(|| self.path.with_extension("kernels").join(format!("{sha256}.cubin")))
    }

    /// Writes a complete file or none.
    fn replace(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let write = || -> io::Result<()> {
            fs::create_dir_all(dir)?;
            let mut file = tempfile::NamedTempFile::new_in(dir)?;
            file.write_all(bytes)?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            Ok(())
        };
        write().map_err(|source| self.file("write", path, source))
    }

    fn file(&self, action: &'static str, path: &Path, source: io::Error) -> Error {
        Error::File { action, path: path.to_owned(), source }
    }
}

impl Entry {
    /// Takes the parts of an older result that this one lacks.
    fn keep(&mut self, old: Entry) {
        for g in old.gemm {
            if !self.gemm.iter().any(|n| n.product() == g.product()) {
                self.gemm.push(g);
            }
        }
        for kernel in old.kernels {
            if !self.kernels.iter().any(|k| k.name == kernel.name) {
                self.kernels.push(kernel);
            }
        }
    }
}
