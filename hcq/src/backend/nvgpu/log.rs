//! The kernel log, where it can be read: the only place where the driver tells the address of an MMU fault.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Mutex;

use crate::backend::MmuError;
use crate::context::lock;

/// Fault types of the GMMU, by number, as the driver prints them.
const FAULT_TYPES: [&str; 16] = [
    "invalid pde",
    "invalid pde size",
    "invalid pte",
    "limit violation",
    "unbound inst block",
    "priv violation",
    "write, ro violation",
    "read, wo violation",
    "pitch mask violation",
    "work creation",
    "unsupported aperture",
    "compression failure",
    "unsupported kind",
    "region violation",
    "poison",
    "atomic violation",
];

/// Lines the driver has printed since this was made.
pub(crate) trait KernelLog: Send + Sync + fmt::Debug {
    /// The lines, oldest first; none where the log cannot be read.
    fn lines(&self) -> Vec<String>;
}

/// Nothing can be read.
#[derive(Debug)]
pub(crate) struct NoLog;

impl KernelLog for NoLog {
    fn lines(&self) -> Vec<String> {
        Vec::new()
    }
}

/// `/dev/kmsg`, from where it stood when it was opened.
#[derive(Debug)]
pub(crate) struct Kmsg(Mutex<Option<File>>);

impl Kmsg {
    /// Reads nothing where the log may not be opened (`dmesg_restrict`).
    pub fn open() -> Self {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg");
        let at_end = file.ok().and_then(|mut f| f.seek(SeekFrom::End(0)).ok().map(|_| f));
        Self(Mutex::new(at_end))
    }
}

impl KernelLog for Kmsg {
    fn lines(&self) -> Vec<String> {
        let mut file = lock(&self.0);
        let Some(file) = file.as_mut() else { return Vec::new() };
        let mut lines = Vec::new();
        let mut record = [0; 8192];
        // One read gives one record; an error means none is left, or some were overwritten.
        for _ in 0..4096 {
            match file.read(&mut record) {
                Ok(0) => break,
                Ok(len) => lines.extend(
                    message(&record[..len]).filter(|m| m.contains("nvgpu") || m.contains("NVRM: Xid")),
                ),
                Err(e) if e.raw_os_error() == Some(libc::EPIPE) => {}
                Err(_) => break,
            }
        }
        lines
    }
}

/// The text of a record: what follows the first semicolon, up to the end of the line.
fn message(record: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(record);
    let (_, message) = text.split_once(';')?;
    Some(message.lines().next()?.to_owned())
}

/// The last MMU fault in `lines`.
pub(super) fn mmu_fault(lines: &[String]) -> Option<MmuError> {
    lines.iter().rev().find_map(|line| {
        let rest = line.split_once("[MMU FAULT]")?.1.split_once("fault addr:")?.1.trim_start();
        let hex = rest.strip_prefix("0x")?;
        let digits = hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len());
        let va = u64::from_str_radix(&hex[..digits], 16).ok()?;
        // Two of the texts contain a comma, so the field ends at the next key.
        let kind = rest.split_once("fault type:").and_then(|(_, r)| r.split_once(", access type:"));
        let kind = kind.and_then(|(text, _)| FAULT_TYPES.iter().position(|t| *t == text.trim()));
        Some(MmuError { va, kind: kind.map(|k| k as u32), store: None })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mmu_fault_is_found_in_the_log() {
        let lines = [
            "nvgpu: 17000000.gpu gv11b_fb_mmu_fault_info_dump:297 [ERR]  [MMU FAULT] mmu engine id:  64, ch id:  511, fault addr: 0xdead000, fault addr aperture: 0, fault type: write, ro violation, access type: virt write, ".to_owned(),
            "nvgpu: 17000000.gpu gv11b_fb_mmu_fault_info_dump:305 [ERR]  [MMU FAULT] protected mode: 0, client type: gpc, ".to_owned(),
        ];
        assert_eq!(mmu_fault(&lines), Some(MmuError { va: 0xdead000, kind: Some(6), store: None }));
        assert_eq!(mmu_fault(&lines[1..]), None);
    }

    #[test]
    fn the_text_of_a_record_follows_its_header() {
        assert_eq!(message(b"3,1234,5678,-;nvgpu: hello\n SUBSYSTEM=x\n").as_deref(), Some("nvgpu: hello"));
        assert_eq!(message(b"garbage"), None);
    }
}
