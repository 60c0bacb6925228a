//! `nvdiag` in a folder of its own, beside a script of `tests/llm-demo/` in place of `llm-demo`.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The script of that name.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/llm-demo").join(name)
}

/// `nvdiag` beside the script of that name, or beside none.
pub fn nvdiag(llm_demo: Option<&str>) -> PathBuf {
    static MADE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(env!("CARGO_CRATE_NAME"));
    let folder = folder.join(llm_demo.unwrap_or("no-llm-demo"));
    let program = folder.join("nvdiag");
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if made.insert(folder.clone()) {
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => panic!("{}: {error}", folder.display()),
            _ => fs::create_dir_all(&folder).expect("a folder"),
        }
        // The same file by another name: it is looked for beside that one.
        fs::hard_link(assert_cmd::cargo::cargo_bin!("nvdiag"), &program).expect("one file system");
        if let Some(name) = llm_demo {
            symlink(script(name), folder.join("llm-demo")).expect("a link");
        }
    }
    program
}
