//! The cases of `tests/checker/cases.json`, and the lines that its sources mark.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// A file of the corpus.
pub fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("checker").join(name)
}

/// The contents of a buffer before the launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A buffer of so many bytes that nothing writes.
    Unwritten(u64),
    /// A buffer with these bytes.
    Bytes(Vec<u8>),
    /// A buffer of so many bytes that is freed before the launch.
    Freed(u64),
    /// A pointer to nothing.
    Null,
    /// A number.
    Word(u32),
}

/// `none 64`, `zero 64`, `ramp 64` (words that count from 0), `freed 64`, `words 1 -1`, `null` or `u32 5`.
fn argument(text: &str) -> Result<Argument, String> {
    let mut words = text.split(' ');
    let kind = words.next().unwrap_or_default();
    let numbers = words.map(str::parse).collect::<Result<Vec<i64>, _>>();
    let numbers = numbers.map_err(|error| format!("{text}: {error}"))?;
    let word = |number: i64| u32::try_from(number & 0xffff_ffff).expect("32 bits");
    let bytes = |words: Vec<u32>| Argument::Bytes(words.into_iter().flat_map(u32::to_le_bytes).collect());
    let size = || numbers.first().and_then(|&n| u64::try_from(n).ok()).ok_or(format!("{text}: no size"));
    match kind {
        "none" => size().map(Argument::Unwritten),
        "zero" => Ok(Argument::Bytes(vec![0; usize::try_from(size()?).expect("64 bits")])),
        "ramp" => Ok(bytes((0..u32::try_from(size()? / 4).expect("a small buffer")).collect())),
        "freed" => size().map(Argument::Freed),
        "words" => Ok(bytes(numbers.into_iter().map(word).collect())),
        "null" => Ok(Argument::Null),
        "u32" => numbers.first().map(|&n| Argument::Word(word(n))).ok_or(format!("{text}: no number")),
        _ => Err(format!("{text}: no such argument")),
    }
}

impl<'de> Deserialize<'de> for Argument {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        argument(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// One launch of one kernel.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Name of the kernel.
    pub kernel: String,
    /// Source file, without its extension.
    pub file: String,
    /// Whether nothing is wrong with it.
    pub right: bool,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared: u32,
    pub args: Vec<Argument>,
    /// Whether the launch may never end.
    #[serde(default)]
    pub hang: bool,
    /// The mistake; of a right kernel without a faulty twin, the pattern.
    #[serde(default)]
    pub text: String,
}

impl Case {
    /// All of the corpus.
    pub fn all() -> Vec<Case> {
        serde_json::from_slice(&fs::read(file("cases.json")).unwrap()).unwrap()
    }

    /// `memory`, `race`, `init` or `sync`; `right` for patterns without a faulty twin.
    pub fn class(&self) -> &str {
        self.file.split('_').next().expect("a first word")
    }
}

/// Lines of a kernel that its source marks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Those with `// BUG`.
    pub bug: Vec<u32>,
    /// Those with `// OTHER`: the other access of a race, or where the others wait.
    pub other: Vec<u32>,
}

/// The marks of each kernel of a source.
pub fn marks(source: &str) -> BTreeMap<String, Marks> {
    let (mut found, mut kernel) = (BTreeMap::<_, Marks>::new(), String::new());
    for (line, number) in source.lines().zip(1..) {
        if let Some((name, _)) = line.strip_prefix("__global__ void ").and_then(|rest| rest.split_once('(')) {
            kernel = name.to_owned();
            found.insert(kernel.clone(), Marks::default());
        }
        let Some(marks) = found.get_mut(&kernel) else { continue };
        if line.contains("// BUG") {
            marks.bug.push(number);
        } else if line.contains("// OTHER") {
            marks.other.push(number);
        }
    }
    found
}
