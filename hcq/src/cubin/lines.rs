//! Source lines of machine code: `.debug_line` as `ptxas -lineinfo` writes it.
//!
//! DWARF 2, one sequence per function, whose address is a relocation against the function's section. NVIDIA
//! adds the extended opcode 0x90 for code that was inlined: the number of the row of the call, counted from
//! 1 in its sequence, 0 for none, and the place of the callee's name in `.debug_str`
//! (`DW_LNE_NVIDIA_inlined_call` in LLVM's `Dwarf.def`).

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use gimli::{
    DebugLine, DebugLineOffset, EndianSlice, LineInstruction, LineProgramHeader, LineRow, LittleEndian,
    Relocate, RelocateReader,
};

use super::error::CubinError;
use super::file::{File, Function, Relocation, Section};

const DW_LNE_NVIDIA_INLINED_CALL: gimli::DwLne = gimli::DwLne(0x90);
/// Above this bit of a relocated address stands the section.
const SECTION_SHIFT: u32 = 40;
/// Calls within calls that are followed.
const DEEPEST: usize = 64;

/// A place in a source file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceLine {
    /// The file as the compiler was given it, its directory included.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// The function whose code was inlined here; `None` for the kernel's own lines.
    pub function: Option<String>,
}

/// `file:line`.
impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The source lines of a function's code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    rows: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    /// Offsets in the section of the code from here to the next row.
    code: Range<u64>,
    line: SourceLine,
    /// The row of the call, as an index.
    caller: Option<usize>,
}

impl Lines {
    /// Whether nothing is known: the code was compiled without `-lineinfo`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The source lines of the instruction at `offset` in the section of the function: its own line first, then
    /// the line of the call for each function it was inlined into.
    pub fn at(&self, offset: u64) -> impl Iterator<Item = &SourceLine> {
        // The last one: rows without code stand for calls alone.
        let row = self.rows.iter().rposition(|row| row.code.contains(&offset));
        let rows = std::iter::successors(row, |row| self.rows.get(*row)?.caller);
        rows.take(DEEPEST).filter_map(|row| self.rows.get(row)).map(|row| &row.line)
    }

    /// The files that are named, each once.
    #[must_use]
    pub fn files(&self) -> BTreeSet<&str> {
        self.rows.iter().map(|row| row.line.file.as_str()).collect()
    }

    /// Offsets where the line changes, ascending, each with `file:line` of the code from there on, and of the
    /// calls it was inlined by: what a tool needs that knows addresses alone.
    #[must_use]
    pub fn table(&self) -> Vec<(u64, String)> {
        let place = |row: &Row| {
            let chain: Vec<String> = self.at(row.code.start).map(SourceLine::to_string).collect();
            (row.code.start, chain.join(", inlined at "))
        };
        let mut table: Vec<_> = self.rows.iter().filter(|row| !row.code.is_empty()).map(place).collect();
        table.sort_by_key(|(offset, _)| *offset);
        table.dedup_by(|next, before| next.1 == before.1);
        table
    }
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Header<'a> = LineProgramHeader<RelocateReader<Slice<'a>, &'a Places>>;

/// The relocations of `.debug_line`.
#[derive(Debug)]
struct Places(Vec<Relocation>);

impl Relocate for &Places {
    fn relocate_address(&self, offset: usize, value: u64) -> gimli::Result<u64> {
        let place = self.0.iter().find(|place| place.offset == offset as u64);
        let Some((section, start)) = place.and_then(|place| place.target) else { return Ok(value) };
        let addend = place.and_then(|place| place.addend);
        let address = start.wrapping_add(addend.map_or(value, i64::cast_unsigned));
        Ok(address & ((1 << SECTION_SHIFT) - 1) | (section as u64) << SECTION_SHIFT)
    }

    fn relocate_offset(&self, _: usize, value: usize) -> gimli::Result<usize> {
        Ok(value)
    }
}

impl<'a> File<'a> {
    /// The source lines of the code in the section of `function`; empty if the file has none.
    ///
    /// # Errors
    /// [`CubinError::Lines`] if `.debug_line` is damaged, [`CubinError::Truncated`].
    pub fn lines(&self, function: &Function<'_>) -> Result<Lines, CubinError> {
        let Some(section) = self.section(".debug_line") else { return Ok(Lines::default()) };
        let names = self.section(".debug_str").map(|names| self.content(&names)).transpose()?.unwrap_or(&[]);
        let content = self.content(&section)?;
        let code = function.section;
        let places = match code.address {
            0 => self.relocations().filter(|place| place.section == section.index).collect(),
            // The addresses are there.
            _ => Vec::new(),
        };
        let mut lines = Lines::default();
        read(content, &Places(places), names, code, &mut lines.rows)
            .map_err(|error| CubinError::Lines { reason: error.to_string() })?;
        Ok(lines)
    }
}

/// Reads the rows of all programs of a section that are of `wanted`.
fn read<'n>(
    content: &[u8],
    places: &Places,
    names: &'n [u8],
    wanted: Section<'n>,
    rows: &mut Vec<Row>,
) -> gimli::Result<()> {
    let reader = RelocateReader::new(EndianSlice::new(content, LittleEndian), places);
    let debug_line = DebugLine::from(reader);
    let mut offset = 0;
    while offset < content.len() {
        let program = debug_line.program(DebugLineOffset(offset), 8, None, None)?;
        let header = program.header().clone();
        let length = header.unit_length();
        let mut sequence = Sequence { names, wanted, call: None, all: Vec::new() };
        sequence.run(program, &header, rows)?;
        // The length itself is 4 bytes, or 12 in the 64-bit format.
        offset += length + usize::from(header.format().initial_length_size());
    }
    Ok(())
}

/// The state while a line program runs.
struct Sequence<'n> {
    names: &'n [u8],
    /// The section of the code.
    wanted: Section<'n>,
    /// The row of the call and the name of what was inlined, for the next rows.
    call: Option<(u64, Option<String>)>,
    /// For each row of the sequence, its index among the rows kept.
    all: Vec<Option<usize>>,
}

impl Sequence<'_> {
    fn run<'a>(
        &mut self,
        mut program: gimli::IncompleteLineProgram<RelocateReader<Slice<'a>, &'a Places>>,
        header: &Header<'a>,
        rows: &mut Vec<Row>,
    ) -> gimli::Result<()> {
        let mut state = LineRow::new(header);
        let mut instructions = header.instructions();
        // The open row: it ends where the next one begins.
        let mut open: Option<usize> = None;
        while let Some(instruction) = instructions.next_instruction(header)? {
            if let LineInstruction::UnknownExtended(DW_LNE_NVIDIA_INLINED_CALL, operands) = &instruction {
                let mut operands = operands.clone();
                let row = gimli::Reader::read_uleb128(&mut operands)?;
                let name = gimli::Reader::read_uleb128(&mut operands)?;
                self.call = (row != 0).then(|| (row, self.name(name)));
                continue;
            }
            if !state.execute(instruction, &mut program)? {
                continue;
            }
            let (is_wanted, address) = self.place(state.address());
            if let Some(row) = open.take().and_then(|row| rows.get_mut(row)) {
                row.code.end = address.max(row.code.start);
            }
            if state.end_sequence() {
                self.call = None;
                self.all.clear();
            } else {
                let kept = is_wanted.then_some(rows.len());
                self.all.push(kept);
                if kept.is_some() {
                    rows.push(self.row(header, &state, address));
                }
                open = kept;
            }
            state.reset(header);
        }
        Ok(())
    }

    /// Whether an address of the program is in the section of the code, and its offset there.
    fn place(&self, address: u64) -> (bool, u64) {
        let Section { index, address: start, size, .. } = self.wanted;
        match start {
            0 => (address >> SECTION_SHIFT == index as u64, address & ((1 << SECTION_SHIFT) - 1)),
            _ => (address.wrapping_sub(start) < size, address.wrapping_sub(start)),
        }
    }

    fn row(&self, header: &Header<'_>, state: &LineRow, address: u64) -> Row {
        let call = self.call.as_ref();
        let caller = call.and_then(|(row, _)| usize::try_from(*row).ok()?.checked_sub(1));
        Row {
            code: address..address,
            line: SourceLine {
                file: file_name(header, state),
                line: state.line().map_or(0, std::num::NonZero::get),
                function: call.and_then(|(_, name)| name.clone()),
            },
            caller: caller.and_then(|row| self.all.get(row).copied().flatten()),
        }
    }

    fn name(&self, offset: u64) -> Option<String> {
        let bytes = self.names.get(usize::try_from(offset).ok()?..)?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }
}

/// The file of a row with its directory.
fn file_name(header: &Header<'_>, row: &LineRow) -> String {
    let text = |value: gimli::AttributeValue<RelocateReader<Slice<'_>, &Places>>| match value {
        gimli::AttributeValue::String(text) => {
            gimli::Reader::to_string_lossy(&text).ok().map(|t| t.into_owned())
        }
        _ => None,
    };
    let Some(file) = row.file(header) else { return "?".to_owned() };
    let name = text(file.path_name()).unwrap_or_else(|| "?".to_owned());
    // Directory 0 is where the compiler ran, which is not in the file.
    let directory = Some(file).filter(|file| file.directory_index() != 0);
    match directory.and_then(|file| file.directory(header)).and_then(text) {
        Some(directory) if !name.starts_with('/') => format!("{directory}/{name}"),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ptxas -O3 -lineinfo` of `tests/data/lines.ptx`: two kernels, one with an inlined function.
    const CUBIN: &[u8] = include_bytes!("../../tests/data/lines.sm_87.cubin");

    fn lines_of(kernel: &str) -> Lines {
        let file = File::parse(CUBIN).expect("a cubin");
        let kernel = file.kernels().find(|k| k.name == kernel).expect("the kernel");
        file.lines(&kernel).expect("lines")
    }

    fn at(lines: &Lines, offset: u64) -> Vec<String> {
        lines.at(offset).map(|line| line.to_string()).collect()
    }

    #[test]
    fn an_instruction_names_its_line_and_the_calls_it_was_inlined_by() {
        let lines = lines_of("scale");
        assert_eq!(at(&lines, 0x1c0), ["kernels/square.h:2", "kernels/scale.cu:5"]);
        assert_eq!(lines.at(0x1c0).next().and_then(|line| line.function.as_deref()), Some("square"));
        assert_eq!(at(&lines, 0x1d0), ["kernels/scale.cu:5"]);
        assert_eq!(at(&lines, 0x160), ["kernels/scale.cu:4"]);
        assert!(at(&lines, 0x1_0000).is_empty());
    }

    #[test]
    fn each_kernel_has_its_own_lines() {
        let lines = lines_of("store");
        assert!(!lines.is_empty());
        assert!(lines.table().iter().all(|(_, line)| line.starts_with("kernels/store.cu:")), "{lines:?}");
    }

    #[test]
    fn the_table_names_the_line_of_each_stretch_of_code() {
        let table = lines_of("scale").table();
        assert!(table.is_sorted_by_key(|(offset, _)| *offset));
        assert!(
            table.contains(&(0x1c0, "kernels/square.h:2, inlined at kernels/scale.cu:5".to_owned())),
            "{table:?}"
        );
        assert!(table.contains(&(0x1d0, "kernels/scale.cu:5".to_owned())), "{table:?}");
    }

    #[test]
    fn a_cubin_without_line_information_has_no_lines() {
        let bytes = include_bytes!("../../tests/data/01_vecadd.sm_87.cubin");
        let file = File::parse(bytes).expect("a cubin");
        let kernel = file.kernels().next().expect("a kernel");
        assert!(file.lines(&kernel).expect("no lines").is_empty());
    }

    #[test]
    fn damaged_line_information_is_an_error_or_read_and_never_a_panic() {
        let file = File::parse(CUBIN).expect("a cubin");
        let section = file.section(".debug_line").expect("lines");
        let start = usize::try_from(section.offset.expect("in the file")).expect("fits");
        for at in 0..usize::try_from(section.size).expect("fits") {
            for value in [0, 1, 0x7f, 0x80, 0x90, 0xff] {
                let mut bytes = CUBIN.to_vec();
                bytes[start + at] = value;
                let file = File::parse(&bytes).expect("the tables are whole");
                for kernel in file.kernels() {
                    if let Ok(lines) = file.lines(&kernel) {
                        (0..0x400)
                            .step_by(16)
                            .for_each(|offset| assert!(lines.at(offset).count() <= DEEPEST));
                    }
                }
            }
        }
    }
}
