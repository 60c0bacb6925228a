//! Requirements of a kernel, from the attributes that the compiler left.

use super::attributes::{self, Record};
use super::error::CubinError;
use super::file::{File, Function, constant_bank};

/// Requirements of a kernel. Where the compiler writes "unknown" a number is `u32::MAX`.
#[derive(Debug, Default)]
pub struct Resources {
    /// Registers per thread.
    pub registers: Option<u32>,
    /// Barriers of a block.
    pub barriers: u32,
    /// Size of its shared section. On sm_90 it counts CUDA's reserved KiB.
    pub shared_bytes: u64,
    /// Stack frame of the kernel itself, per thread.
    pub frame_bytes: Option<u32>,
    /// Stack per thread that it needs with everything it calls.
    pub min_stack_bytes: Option<u32>,
    /// The sum of the frames of functions that are called in this file.
    pub callee_frame_bytes: u32,
    /// Most threads of a block it was compiled for.
    pub max_threads: Option<[u32; 3]>,
    /// The exact block it was compiled for.
    pub required_block: Option<[u32; 3]>,
    /// Offset of the parameters in constant bank 0, and their length in bytes.
    pub parameter_area: Option<(u16, u16)>,
    /// Its parameters, in order.
    pub parameters: Vec<Parameter>,
    /// Its constant banks, by number.
    pub banks: Vec<Bank>,
    /// The reason attributes were left out.
    pub damage: Option<CubinError>,
}

/// A kernel parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Parameter {
    /// Position in the parameter list.
    pub ordinal: u16,
    /// Offset from the start of the parameters.
    pub offset: u16,
    /// Its size in bytes.
    pub size_bytes: u32,
}

/// A constant bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bank {
    /// Its number.
    pub number: u32,
    /// The section of its content.
    pub section: usize,
    /// Its size in bytes.
    pub size_bytes: u64,
}

/// The halves of a word.
const fn halves(word: u32) -> (u16, u16) {
    (word as u16, (word >> 16) as u16)
}

fn triple(record: &Record<'_>) -> Option<[u32; 3]> {
    Some([record.word(0)?, record.word(1)?, record.word(2)?])
}

/// The records of the section of that name, if there is one.
fn records<'a>(
    file: &File<'a>,
    name: &str,
    damage: &mut Option<CubinError>,
) -> Result<Vec<Record<'a>>, CubinError> {
    let Some(section) = file.section(name) else { return Ok(Vec::new()) };
    let (records, broken) = attributes::records(file.content(&section)?);
    *damage = damage.take().or(broken);
    Ok(records)
}

impl File<'_> {
    /// The requirements of a kernel.
    ///
    /// # Errors
    /// [`CubinError::Truncated`] if the file ends before its sections do. Damage to attributes is reported in
    /// [`Resources::damage`].
    pub fn resources(&self, kernel: &Function<'_>) -> Result<Resources, CubinError> {
        Resources::read(self, kernel)
    }
}

impl Resources {
    fn read(file: &File<'_>, kernel: &Function<'_>) -> Result<Self, CubinError> {
        let mut needs = Self::default();
        // Up to ABI 7 the flags of the section count barriers, later an attribute does.
        if file.abi() < 8 {
            needs.barriers = (kernel.section.flags >> 20) as u32 & 0x7f;
        }
        let of_file = records(file, ".nv.info", &mut needs.damage)?;
        let own = records(file, &format!(".nv.info.{}", kernel.name), &mut needs.damage)?;
        for record in of_file.iter().chain(&own) {
            needs.note_function(file, kernel, record);
        }
        own.iter().for_each(|record| needs.note(record));
        let in_section = (kernel.section.info >> 24) & 0xff;
        needs.registers = needs.registers.or(Some(in_section).filter(|n| *n != 0));
        needs.parameters.sort();
        needs.shared_bytes = file.section(&format!(".nv.shared.{}", kernel.name)).map_or(0, |s| s.size);
        needs.banks = file
            .sections()
            .filter_map(|section| {
                let (number, owner) = constant_bank(section.name)?;
                owner.is_none_or(|owner| owner == kernel.name).then_some(Bank {
                    number,
                    section: section.index,
                    size_bytes: section.size,
                })
            })
            .collect();
        needs.banks.sort();
        Ok(needs)
    }

    /// Attributes that name the function they are about by its symbol.
    fn note_function(&mut self, file: &File<'_>, kernel: &Function<'_>, record: &Record<'_>) {
        let (Some(symbol), Some(value)) = (record.word(0), record.word(1)) else { return };
        let place = match record.code {
            attributes::REGCOUNT => &mut self.registers,
            attributes::FRAME_SIZE => &mut self.frame_bytes,
            attributes::MIN_STACK_SIZE => &mut self.min_stack_bytes,
            _ => return,
        };
        if file.symbol(symbol) == Some(kernel.name) {
            place.get_or_insert(value);
        } else if record.code == attributes::FRAME_SIZE && file.is_callee(symbol) {
            // Functions that are not entry points lie in the section of the kernel that calls them.
            self.callee_frame_bytes = self.callee_frame_bytes.saturating_add(value);
        }
    }

    /// Attributes of the kernel's own section.
    fn note(&mut self, record: &Record<'_>) {
        match record.code {
            attributes::MAX_THREADS => self.max_threads = triple(record),
            attributes::REQNTID => self.required_block = triple(record),
            // The halfword of a byte-sized record holds the byte in its lower half.
            attributes::NUM_BARRIERS => self.barriers = u32::from(record.value & 0xff),
            attributes::PARAM_CBANK => self.parameter_area = record.word(1).map(halves),
            attributes::KPARAM_INFO | attributes::KPARAM_INFO_V2 => {
                let (Some(place), Some(layout)) = (record.word(1), record.word(2)) else { return };
                let (ordinal, offset) = halves(place);
                let size_bytes = if record.code == attributes::KPARAM_INFO { layout >> 18 } else { layout };
                self.parameters.push(Parameter { ordinal, offset, size_bytes });
            }
            _ => {}
        }
    }
}
