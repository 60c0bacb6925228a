//! Finds `ptxas` and runs it.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::target::Target;

/// The assembler from PTX to machine code, and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ptxas {
    path: PathBuf,
    version: String,
}

impl fmt::Display for Ptxas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ptxas {} ({})", self.version, self.path.display())
    }
}

impl Ptxas {
    /// The flags of every compilation.
    pub const FLAGS: [&str; 1] = ["-O3"];

    /// Searches `PTXAS`, `PATH`, CUDA installations (`CUDA_HOME`, `CUDA_PATH`, `/usr/local/cuda*`,
    /// `/opt/cuda`) and the Python wheel `nvidia-cuda-nvcc-cu12` (under `VIRTUAL_ENV`, the user's and the
    /// system's site-packages), in this order.
    ///
    /// # Errors
    /// [`Error::NoPtxas`] names the places; [`Error::NotPtxas`] if `PTXAS` names something else.
    pub fn find() -> Result<Self, Error> {
        if let Some(path) = std::env::var_os("PTXAS").filter(|p| !p.is_empty()) {
            return Self::at(PathBuf::from(path));
        }
        let mut searched = vec!["PTXAS".to_owned(), "PATH".to_owned()];
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut candidates: Vec<PathBuf> =
            std::env::split_paths(&path).map(|dir| dir.join("ptxas")).collect();
        for root in cuda_roots() {
            searched.push(root.display().to_string());
            candidates.push(root.join("bin/ptxas"));
        }
        for lib in python_roots() {
            searched.push(lib.join("python3*/site-packages").display().to_string());
            candidates.extend(wheels(&lib));
        }
        candidates
            .into_iter()
            .filter(|path| path.is_file())
            .find_map(|path| Self::at(path).ok())
            .ok_or(Error::NoPtxas { searched })
    }

    /// The `ptxas` at `path`.
    ///
    /// # Errors
    /// [`Error::NotPtxas`] if it does not start or does not print a version.
    pub fn at(path: PathBuf) -> Result<Self, Error> {
        let not = |what: String| Error::NotPtxas { path: path.clone(), what };
        let output = Command::new(&path).arg("--version").output().map_err(|e| not(e.to_string()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        // "Cuda compilation tools, release 12.6, V12.6.85"
        let version = text
            .split_whitespace()
            .find_map(|word| word.strip_prefix('V').filter(|v| v.starts_with(|c: char| c.is_ascii_digit())))
            .ok_or_else(|| not("no version in what it printed".to_owned()))?
            .to_owned();
        Ok(Self { path, version })
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its version, as `12.6.85`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Compiles PTX to a cubin, with [`Ptxas::FLAGS`].
    ///
    /// # Errors
    /// [`Error::Refused`] with the message and the lines it names; [`Error::File`] if the temporary files
    /// cannot be used.
    pub fn compile(&self, ptx: &str, target: Target) -> Result<Vec<u8>, Error> {
        let scratch =
            tempfile::tempdir().map_err(file("cannot create a folder in", &std::env::temp_dir()))?;
        let (source, cubin) = (scratch.path().join("kernel.ptx"), scratch.path().join("kernel.cubin"));
        fs::write(&source, ptx).map_err(file("cannot write", &source))?;
        let output = Command::new(&self.path)
            .args(Self::FLAGS)
            .arg(format!("-arch={target}"))
            .arg("-o")
            .arg(&cubin)
            .arg("kernel.ptx")
            .current_dir(scratch.path())
            .output()
            .map_err(|e| Error::NotPtxas { path: self.path.clone(), what: e.to_string() })?;
        if !output.status.success() {
            let mut message = String::from_utf8_lossy(&output.stderr).into_owned();
            message.push_str(&String::from_utf8_lossy(&output.stdout));
            let excerpt = excerpt(ptx, &message);
            return Err(Error::Refused { target: target.to_string(), message, excerpt });
        }
        fs::read(&cubin).map_err(file("cannot read", &cubin))
    }
}

/// Attaches the action and the file to an I/O error.
pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { action, path, source }
}

fn cuda_roots() -> Vec<PathBuf> {
    let named = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let mut installed: Vec<PathBuf> = entries(Path::new("/usr/local"), "cuda").collect();
    // The newest of several: "cuda" itself sorts first and is the one the user chose.
    installed.sort();
    named.chain(installed).chain([PathBuf::from("/opt/cuda")]).collect()
}

fn python_roots() -> Vec<PathBuf> {
    let env = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .into_iter()
        .filter_map(std::env::var_os)
        .map(|p| PathBuf::from(p).join("lib"));
    let home = std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".local/lib"));
    env.chain(home).chain([PathBuf::from("/usr/local/lib"), PathBuf::from("/usr/lib")]).collect()
}

fn wheels(lib: &Path) -> impl Iterator<Item = PathBuf> {
    entries(lib, "python3").flat_map(|python| {
        ["site-packages", "dist-packages"].map(|p| python.join(p).join("nvidia/cuda_nvcc/bin/ptxas"))
    })
}

fn entries<'a>(dir: &Path, prefix: &'a str) -> impl Iterator<Item = PathBuf> + use<'a> {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .filter(move |e| e.file_name().to_string_lossy().starts_with(prefix))
        .map(|e| e.path())
}

/// The lines that ptxas' message names ("line 12"), each once, with its number.
fn excerpt(ptx: &str, message: &str) -> String {
    let mut named: Vec<usize> = message
        .match_indices("line ")
        .filter_map(|(at, word)| {
            let rest = &message[at + word.len()..];
            rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())].parse().ok()
        })
        .collect();
    named.sort_unstable();
    named.dedup();
    let lines: Vec<&str> = ptx.lines().collect();
    named
        .into_iter()
        .filter_map(|n| lines.get(n.checked_sub(1)?).map(|line| format!("{n:>5} | {line}\n")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_shows_each_named_line_once() {
        let message =
            "ptxas kernel.ptx, line 2; error : a\nptxas kernel.ptx, line 2; error : b\nline 9; fatal";
        assert_eq!(excerpt("one\ntwo\nthree", message), "    2 | two\n");
    }

    #[test]
    fn a_program_that_is_not_ptxas_is_named() {
        let error = Ptxas::at(PathBuf::from("/nonexistent/ptxas")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/ptxas"), "{error}");
    }
}
