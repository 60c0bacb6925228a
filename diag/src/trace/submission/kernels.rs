//! Kernels of the cubins that a process holds in memory, found by their code.
//!
//! A program that loads a kernel has it in its memory: as a cubin, or packed in the fat binaries of its own
//! file and its libraries. The memory is searched when code comes that is not known yet, range by range, until
//! a cubin with that code is found.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use aho_corasick::AhoCorasick;
use ga10b_capture::MOST_CODE;
use goblin::elf::Elf;
use hcq::cubin::{self, ImageKind};
use sass::WORD_BYTES;

use crate::trace::submission::recorded::{Kernel, Submission};

/// First bytes of an ELF file of 64 bits, and of a fat binary.
const MAGICS: [&[u8]; 2] = [b"\x7fELF\x02\x01\x01", b"\x50\xed\x55\xba\x01\0"];
/// Bytes of the longer header, that of ELF.
const HEADER: usize = 64;
/// `e_machine` of cubins.
const EM_CUDA: u16 = 190;
/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;
/// Longest cubin or fat binary that is read.
const LONGEST: u64 = 256 << 20;
/// Bytes of a process that are searched and unpacked in all.
const MOST_SEARCHED: u64 = 4 << 30;
/// Kernels that are kept of a process.
const MOST_KERNELS: usize = 1 << 16;
/// Searches without a result after which a process is not searched again.
const MOST_MISSES: u32 = 8;

/// The kernels of traced processes.
#[derive(Debug, Default)]
pub struct Kernels(HashMap<i32, Process>);

#[derive(Debug, Default)]
struct Process {
    kernels: HashSet<Known>,
    /// Code that was looked up, by its address.
    loaded: HashMap<u64, (Vec<u8>, Option<Kernel>)>,
    /// Ranges of files, which do not change.
    searched: HashSet<Range<u64>>,
    bytes: u64,
    misses: u32,
}

/// A kernel of a cubin.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Known {
    kernel: Kernel,
    /// Its first instructions.
    code: Vec<u8>,
    /// Offsets of instructions that the loader changes.
    changed: Vec<u64>,
}

impl Kernels {
    /// Names the kernels of a submission's launches, while the process stands still or waits for a tracer.
    pub fn name(&mut self, pid: i32, submission: &mut Submission) {
        for launch in &mut submission.launches {
            let Some(qmd) = launch.bytes.as_ref().and_then(|bytes| qmd::Qmd::from_bytes(&bytes.0).ok())
            else {
                continue;
            };
            let process = self.0.entry(pid).or_default();
            launch.kernel = match launch.code.take() {
                Some(code) => process.kernel(pid, qmd.program_address(), code.0),
                None => process.loaded.get(&qmd.program_address()).and_then(|(_, kernel)| kernel.clone()),
            };
        }
    }
}

impl Process {
    fn kernel(&mut self, pid: i32, address: u64, code: Vec<u8>) -> Option<Kernel> {
        if let Some((_, kernel)) = self.loaded.get(&address).filter(|(known, _)| *known == code) {
            return kernel.clone();
        }
        let kernel = self.find(&code).or_else(|| self.search(pid, &code));
        self.loaded.insert(address, (code, kernel.clone()));
        kernel
    }

    /// The kernel that begins as the code does: of several the longest match.
    fn find(&self, code: &[u8]) -> Option<Kernel> {
        let matches = || self.kernels.iter().filter_map(|known| Some((known.matches(code)?, &known.kernel)));
        let longest = matches().map(|(length, _)| length).max()?;
        let mut fitting: Vec<&Kernel> =
            matches().filter(|(length, _)| *length == longest).map(|(_, kernel)| kernel).collect();
        fitting.sort_by_key(|kernel| &kernel.name);
        fitting.dedup();
        let mut names: Vec<&str> = fitting.iter().map(|kernel| kernel.name.as_str()).collect();
        names.dedup();
        let same = fitting.iter().all(|kernel| kernel.parameters == fitting[0].parameters);
        let parameters = if same { fitting[0].parameters.clone() } else { Vec::new() };
        Some(Kernel { name: names.join(" or "), parameters })
    }

    /// Searches the memory of the process until the code is found.
    fn search(&mut self, pid: i32, code: &[u8]) -> Option<Kernel> {
        if self.misses >= MOST_MISSES {
            return None;
        }
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
        let magics = AhoCorasick::new(MAGICS).ok()?;
        for (range, is_file) in maps.lines().filter_map(readable) {
            if is_file && !self.searched.insert(range.clone()) {
                continue;
            }
            let before = self.kernels.len();
            self.range(&memory, &magics, range);
            if let Some(found) = (self.kernels.len() > before).then(|| self.find(code)).flatten() {
                return Some(found);
            }
        }
        self.misses += 1;
        None
    }

    /// Adds the kernels in a range of memory.
    fn range(&mut self, memory: &File, magics: &AhoCorasick, range: Range<u64>) {
        let (mut at, mut chunk) = (range.start, vec![0; CHUNK]);
        while at < range.end && self.bytes < MOST_SEARCHED {
            let length = CHUNK.min((range.end - at) as usize);
            let read = memory.read_at(&mut chunk[..length], at).unwrap_or(0);
            if read < HEADER {
                return;
            }
            self.bytes += read as u64;
            // A header at the end of a chunk is whole in the next.
            let whole = read - HEADER;
            let mut next = at + whole as u64 + 1;
            let mut offset = 0;
            while let Some(found) = magics.find(&chunk[offset..read]).filter(|f| offset + f.start() <= whole)
            {
                let start = offset + found.start();
                let header = &chunk[start..start + HEADER];
                offset = start + found.len();
                let Some(length) =
                    length_of(header).filter(|length| (HEADER as u64..LONGEST).contains(length))
                else {
                    continue;
                };
                let mut object = vec![0; length as usize];
                if memory.read_exact_at(&mut object, at + start as u64).is_err() {
                    continue;
                }
                self.bytes += length;
                self.object(&object);
                next = next.max(at + start as u64 + length);
                offset = (start + length as usize).min(read);
            }
            at = next;
        }
    }

    /// Adds the kernels of a cubin or a fat binary; what cannot be read has none.
    fn object(&mut self, object: &[u8]) {
        let images = match cubin::images(object) {
            Ok(Some(images)) => images,
            Ok(None) => return self.cubin(object),
            Err(_) => return,
        };
        for image in images.iter().filter(|image| image.kind == ImageKind::Cubin) {
            if self.bytes >= MOST_SEARCHED {
                return;
            }
            self.bytes = self.bytes.saturating_add(image.size_bytes);
            if let Ok(content) = image.content() {
                self.cubin(&content);
            }
        }
    }

    fn cubin(&mut self, bytes: &[u8]) {
        let Ok(file) = cubin::File::parse(bytes) else { return };
        for function in file.kernels() {
            let (Ok(code), Ok(needs)) = (file.content(&function.section), file.resources(&function)) else {
                continue;
            };
            let base = needs.parameter_area.map_or(0, |(base, _)| u32::from(base));
            let parameters = needs.parameters.iter().map(|p| (base + u32::from(p.offset), p.size_bytes));
            let kernel = Kernel { name: function.name.to_owned(), parameters: parameters.collect() };
            let changed = file.references(&function).iter().map(|place| place.offset).collect();
            let code = code[..code.len().min(MOST_CODE)].to_vec();
            if self.kernels.len() < MOST_KERNELS {
                self.kernels.insert(Known { kernel, code, changed });
            }
        }
    }
}

impl Known {
    /// Bytes in which the code is the same, apart from what a loader changes; `None` if it is other code.
    fn matches(&self, code: &[u8]) -> Option<usize> {
        let length = self.code.len().min(code.len());
        let mut pairs = self.code.chunks(WORD_BYTES).zip(code.chunks(WORD_BYTES)).zip(0u64..);
        let same = pairs.all(|((own, other), i)| {
            let length = own.len().min(other.len());
            own[..length] == other[..length] || self.changed.contains(&(i * WORD_BYTES as u64))
        });
        (same && length > 0).then_some(length)
    }
}

/// Length of a cubin or a fat binary by its header; `None` for other ELF files.
fn length_of(header: &[u8]) -> Option<u64> {
    if header.starts_with(MAGICS[1]) {
        let length = u64::from_le_bytes(*header[8..].first_chunk()?);
        return length.checked_add(u16::from_le_bytes(*header[6..].first_chunk()?).into());
    }
    let elf = Elf::parse_header(header).ok().filter(|elf| elf.e_machine == EM_CUDA)?;
    let end = |offset: u64, size: u16, count: u16| offset.checked_add(u64::from(size) * u64::from(count));
    let sections = end(elf.e_shoff, elf.e_shentsize, elf.e_shnum)?;
    Some(sections.max(end(elf.e_phoff, elf.e_phentsize, elf.e_phnum)?))
}

/// The range of a line of `/proc/PID/maps`, and whether it is of a file that no program writes to; `None` for
/// memory that cannot be read, and for that of devices.
fn readable(line: &str) -> Option<(Range<u64>, bool)> {
    let mut words = line.split_ascii_whitespace();
    let (range, rights) = (words.next()?, words.next()?);
    let name = words.nth(3).unwrap_or_default();
    let skipped = ["/dev/", "/memfd:", "/dmabuf", "anon_inode:", "[v"];
    if !rights.starts_with('r') || skipped.iter().any(|start| name.starts_with(start)) {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    Some((address(start)?..address(end)?, name.starts_with('/') && !rights.contains('w')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex::Hex;
    use crate::trace::bytes::Bytes;
    use crate::trace::submission::recorded::Launch;

    const CUBIN: &[u8] = include_bytes!("../../../../hcq/tests/data/01_vecadd.sm_87.cubin");
    const PACKED: &[u8] = include_bytes!("../../../../hcq/tests/data/triple.zstd.fatbin");

    /// The first instructions of a kernel, as a loader puts them into memory.
    fn code_of(cubin: &[u8], name: &str) -> Vec<u8> {
        let file = cubin::File::parse(cubin).expect("a cubin");
        let kernel = file.kernels().find(|kernel| kernel.name == name).expect("the kernel");
        file.content(&kernel.section).expect("code").to_vec()
    }

    fn launch(code: Option<Vec<u8>>) -> Submission {
        let qmd = qmd::Launch::new(qmd::Target::Sm87).program(0x1000, 0).registers(16).build();
        let launch = Launch {
            address: Hex(0x1000),
            after: None,
            uploaded: false,
            bytes: Some(Bytes(qmd.expect("a QMD").as_bytes().to_vec())),
            code: code.map(Bytes),
            constants: None,
            kernel: None,
        };
        Submission { launches: vec![launch], ..Submission::default() }
    }

    #[test]
    fn code_is_named_by_the_cubins_of_the_process_itself() {
        let mut kernels = Kernels::default();
        let pid = std::process::id().cast_signed();
        let mut name = |code: Option<Vec<u8>>| {
            let mut submission = launch(code);
            kernels.name(pid, &mut submission);
            submission.launches[0].kernel.clone()
        };
        let unpacked = cubin::images(PACKED).expect("readable").expect("a fat binary");
        let image = unpacked.iter().find(|image| image.kind == ImageKind::Cubin).expect("a cubin");
        let packed = code_of(&image.content().expect("unpacks"), "_Z6triplePi");
        let vecadd = name(Some(code_of(CUBIN, "vadd_f32"))).expect("in the memory of this test");
        assert_eq!(vecadd.name, "vadd_f32");
        assert_eq!(vecadd.parameters, [(0x160, 8), (0x168, 8), (0x170, 8), (0x178, 4)]);
        // Later launches at the same place need not bring their code.
        assert_eq!(name(None), Some(vecadd));
        assert_eq!(name(Some(packed)).map(|kernel| kernel.name), Some("_Z6triplePi".to_owned()));
        assert_eq!(name(Some(vec![0x5a; 256])), None);
        assert_eq!(name(None), None);
    }

    #[test]
    fn what_a_loader_changes_and_only_that_may_differ() {
        let known = Known { kernel: Kernel::default(), code: vec![1; 64], changed: vec![16] };
        let mut code = vec![1; 128];
        assert_eq!(known.matches(&code), Some(64));
        code[20] = 9;
        assert_eq!(known.matches(&code), Some(64));
        code[40] = 9;
        assert_eq!(known.matches(&code), None);
        assert_eq!(known.matches(&[]), None);
    }

    #[test]
    fn headers_that_lie_are_no_cubins() {
        assert_eq!(length_of(&CUBIN[..HEADER]), Some(CUBIN.len() as u64));
        assert_eq!(length_of(&PACKED[..HEADER]), Some(PACKED.len() as u64));
        let mut header = CUBIN[..HEADER].to_vec();
        header[0x28..0x30].fill(0xff);
        assert_eq!(length_of(&header), None);
        header[18] = 62;
        assert_eq!(length_of(&header), None);
    }
}
