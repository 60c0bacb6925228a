//! One line of a record. The format is described at the head of `tools/nvgpu-oracle/sequences.c`.

use std::fmt;
use std::str::SplitWhitespace;

/// Answer of the driver or the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The call succeeded and brought back these numbers.
    Numbers(Vec<u64>),
    /// The errno.
    Refused(i32),
    /// The driver ran into BUG() in that function.
    Bug(String),
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Numbers(numbers) => write!(f, "{numbers:x?}"),
            Self::Refused(errno) => write!(f, "{:?}", nix::errno::Errno::from_raw(*errno)),
            Self::Bug(place) => write!(f, "BUG() in {place}"),
        }
    }
}

/// Arguments of `MAP_BUFFER_EX`.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    /// `None`: a descriptor that is no buffer's.
    pub buffer: Option<usize>,
    pub flags: u32,
    pub compr_kind: i16,
    pub incompr_kind: i16,
    pub offset: u64,
    pub buffer_offset: u64,
    pub mapping_size: u64,
    pub page_size: u32,
}

/// One operation of `REMAP`.
#[derive(Clone, Copy, Debug)]
pub struct Remap {
    pub flags: u32,
    pub compr_kind: i16,
    pub incompr_kind: i16,
    pub buffer: Handle,
    pub memory_page: u64,
    pub page: u64,
    pub pages: u64,
}

/// Handle in a remap operation.
#[derive(Clone, Copy, Debug)]
pub enum Handle {
    None,
    Bad,
    Buffer(usize),
}

#[derive(Clone, Debug)]
pub enum Request {
    Open { big_page_size: u32, flags: u32, start: u64, end: u64, split: u64 },
    AllocSpace { pages: u64, page_size: u32, flags: u32, offset: u64 },
    FreeSpace { offset: u64 },
    Map(Map),
    Unmap { offset: u64 },
    Modify { address: u64, offset: u64, size: u64, compr_kind: i16, incompr_kind: i16 },
    Remap(Vec<Remap>),
    Batch { unmaps: Vec<u64>, maps: Vec<Map> },
    SyncMap,
    Regions,
}

#[derive(Clone, Debug)]
pub enum Line {
    Tables,
    Buffer { bytes: u64, read_only: bool },
    Call { request: Request, answer: Answer },
}

/// Words of a line, read one after the other.
struct Words<'a>(SplitWhitespace<'a>);

impl Words<'_> {
    fn word(&mut self) -> Result<&str, String> {
        self.0.next().ok_or_else(|| "the line ends early".to_owned())
    }

    fn u64(&mut self) -> Result<u64, String> {
        let word = self.word()?;
        u64::from_str_radix(word, 16).map_err(|e| format!("`{word}`: {e}"))
    }

    fn u32(&mut self) -> Result<u32, String> {
        u32::try_from(self.u64()?).map_err(|e| e.to_string())
    }

    fn kind(&mut self) -> Result<i16, String> {
        Ok(u16::try_from(self.u64()?).map_err(|e| e.to_string())?.cast_signed())
    }

    fn handle(&mut self) -> Result<Handle, String> {
        Ok(match self.word()? {
            "x" => Handle::Bad,
            "-" => Handle::None,
            number => Handle::Buffer(usize::from_str_radix(number, 16).map_err(|e| e.to_string())?),
        })
    }

    fn map(&mut self) -> Result<Map, String> {
        let buffer = match self.handle()? {
            Handle::Buffer(number) => Some(number),
            _ => None,
        };
        Ok(Map {
            buffer,
            flags: self.u32()?,
            compr_kind: self.kind()?,
            incompr_kind: self.kind()?,
            offset: self.u64()?,
            buffer_offset: self.u64()?,
            mapping_size: self.u64()?,
            page_size: self.u32()?,
        })
    }

    fn remap(&mut self) -> Result<Remap, String> {
        Ok(Remap {
            flags: self.u32()?,
            compr_kind: self.kind()?,
            incompr_kind: self.kind()?,
            buffer: self.handle()?,
            memory_page: self.u64()?,
            page: self.u64()?,
            pages: self.u64()?,
        })
    }
}

impl Line {
    /// Reads one.
    pub fn parse(line: &str) -> Result<Self, String> {
        let (call, answer) =
            line.split_once('=').map_or((line, None), |(call, answer)| (call, Some(answer.trim())));
        let mut words = Words(call.split_whitespace());
        let request = match words.word()? {
            "T" => return Ok(Self::Tables),
            "B" => return Ok(Self::Buffer { bytes: words.u64()?, read_only: words.u64()? != 0 }),
            "N" => Request::Open {
                big_page_size: words.u32()?,
                flags: words.u32()?,
                start: words.u64()?,
                end: words.u64()?,
                split: words.u64()?,
            },
            "A" => Request::AllocSpace {
                pages: words.u64()?,
                page_size: words.u32()?,
                flags: words.u32()?,
                offset: words.u64()?,
            },
            "F" => Request::FreeSpace { offset: words.u64()? },
            "M" => Request::Map(words.map()?),
            "U" => Request::Unmap { offset: words.u64()? },
            "Y" => Request::Modify {
                address: words.u64()?,
                offset: words.u64()?,
                size: words.u64()?,
                compr_kind: words.kind()?,
                incompr_kind: words.kind()?,
            },
            "R" => {
                let count = words.u64()?;
                Request::Remap((0..count).map(|_| words.remap()).collect::<Result<_, _>>()?)
            }
            "C" => {
                let (unmaps, maps) = (words.u64()?, words.u64()?);
                Request::Batch {
                    unmaps: (0..unmaps).map(|_| words.u64()).collect::<Result<_, _>>()?,
                    maps: (0..maps).map(|_| words.map()).collect::<Result<_, _>>()?,
                }
            }
            "G" => Request::SyncMap,
            "V" => Request::Regions,
            other => return Err(format!("unknown line `{other}`")),
        };
        let answer = answer.ok_or("a call without an answer")?;
        let answer = match answer.strip_prefix('!') {
            Some(bug) if bug.starts_with("BUG") => Answer::Bug(bug[3..].trim().to_owned()),
            Some(errno) => Answer::Refused(errno.parse().map_err(|e| format!("{errno}: {e}"))?),
            None => {
                let mut words = Words(answer.split_whitespace());
                let mut numbers = Vec::new();
                while let Ok(number) = words.u64() {
                    numbers.push(number);
                }
                Answer::Numbers(numbers)
            }
        };
        Ok(Self::Call { request, answer })
    }
}
