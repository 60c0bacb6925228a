//! A dump from a file.

use std::collections::HashMap;

use object::elf::{ET_CORE, FileHeader64, SHT_NOBITS, SectionHeader64};
use object::read::elf::{FileHeader, SectionHeader, SectionTable};
use object::{LittleEndian, ReadRef};

use crate::error::Error;
use crate::exception::Exception;
use crate::model::{
    Block, Call, Context, CoreDump, Device, Generator, Grid, Lane, LocalMemory, MemoryRange, Module, Sm, Warp,
};
use crate::rows::{
    BlockRow, CallRow, ContextRow, DeviceRow, GridRow, LaneRow, MetadataRow, ModuleRow, SmRow, WarpRow,
    numbers, rows, sht,
};
use crate::writer::EM_CUDA;

/// Most bytes of sections that are read.
const MOST: u64 = 1 << 30;
/// Most rows of tables that are read: some times what the largest GPUs have lanes.
const MOST_ROWS: u64 = 1 << 22;
/// Bytes of `Elf64_Ehdr` and `Elf64_Shdr`.
const HEADER: u64 = 64;

type Header = SectionHeader64<LittleEndian>;

/// A place in the dump: rows of devices, SMs, blocks, warps and lanes, or devices, contexts and modules.
type Path = [usize; 5];

/// A section that is a table or belongs to one.
struct Part<'d> {
    number: usize,
    kind: u32,
    header: &'d Header,
    data: &'d [u8],
}

/// The tables that were read: their kind, and the place of their first row.
#[derive(Default)]
struct Tables(HashMap<u32, (u32, Path, usize)>);

/// A kind of sections: type, name, and the kind and name of the table that they belong to.
struct Kind {
    kind: u32,
    name: &'static str,
    of: (u32, &'static str),
}

const fn kind(kind: u32, name: &'static str, of: (u32, &'static str)) -> Kind {
    Kind { kind, name, of }
}

const DEVICES: (u32, &str) = (sht::DEVICES, "devices");
const CONTEXTS: (u32, &str) = (sht::CONTEXTS, "contexts");
const MODULES: (u32, &str) = (sht::MODULES, "modules");
const GRIDS: (u32, &str) = (sht::GRIDS, "grids");
const SMS: (u32, &str) = (sht::SMS, "SMs");
const BLOCKS: (u32, &str) = (sht::BLOCKS, "blocks");
const WARPS: (u32, &str) = (sht::WARPS, "warps");
const LANES: (u32, &str) = (sht::LANES, "lanes");

/// The kinds that belong to a table, each after that.
const KINDS: [Kind; 17] = [
    kind(sht::CONTEXTS, "contexts", DEVICES),
    kind(sht::GRIDS, "grids", DEVICES),
    kind(sht::SMS, "SMs", DEVICES),
    kind(sht::MODULES, "modules", CONTEXTS),
    kind(sht::BLOCKS, "blocks", SMS),
    kind(sht::WARPS, "warps", BLOCKS),
    kind(sht::LANES, "lanes", WARPS),
    kind(sht::ELF_IMAGE, "a cubin", MODULES),
    kind(sht::RELOCATED_IMAGE, "a relocated cubin", MODULES),
    kind(sht::PARAMETERS, "parameters", GRIDS),
    kind(sht::SHARED_MEMORY, "shared memory", BLOCKS),
    kind(sht::UNIFORM_REGISTERS, "uniform registers", WARPS),
    kind(sht::UNIFORM_PREDICATES, "uniform predicates", WARPS),
    kind(sht::REGISTERS, "registers", LANES),
    kind(sht::PREDICATES, "predicates", LANES),
    kind(sht::LOCAL_MEMORY, "local memory", LANES),
    kind(sht::BACKTRACE, "return addresses", LANES),
];

impl CoreDump {
    /// Reads a dump: a slice, or a file behind `object::ReadCache`, of which the contents of global memory are
    /// not read.
    ///
    /// # Errors
    /// One of [`Error`], but for [`Error::Unwritable`].
    pub fn read<'d>(file: impl ReadRef<'d>) -> Result<Self, Error> {
        let sections = open(file)?;
        let mut dump = Self::default();
        let mut parts: HashMap<u32, Vec<Part<'d>>> = HashMap::new();
        let mut strings: &[u8] = &[];
        for (index, header) in sections.enumerate() {
            let (number, kind) = (index.0, header.sh_type(LittleEndian));
            let (address, len) = (header.sh_addr(LittleEndian), header.sh_size(LittleEndian));
            if matches!(kind, sht::GLOBAL_MEMORY | sht::MANAGED_MEMORY) {
                let managed = kind == sht::MANAGED_MEMORY;
                dump.memory.push(MemoryRange { address, len, managed });
                continue;
            }
            let is_ours = kind > sht::GLOBAL_MEMORY && kind <= sht::METADATA;
            let is_names = sections.section_name(LittleEndian, header) == Ok(b".strtab");
            if is_ours || is_names {
                let data = header.data(LittleEndian, file).map_err(elf)?;
                parts.entry(kind).or_default().push(Part { number, kind, header, data });
                if is_names {
                    strings = data;
                }
            }
        }
        let mut tables = Tables::default();
        for part in parts.get(&sht::DEVICES).into_iter().flatten() {
            tables.add(part, [0; 5], dump.devices.len());
            dump.devices.extend(part.rows()?.into_iter().map(|row| device(&row, strings)));
        }
        for part in parts.get(&sht::METADATA).into_iter().flatten() {
            dump.generator = part.rows()?.first().map(|row| generator(row, strings));
        }
        for kind in &KINDS {
            for part in parts.get(&kind.kind).into_iter().flatten() {
                let path = tables.parent(part, kind)?;
                let placed = dump.place(part, path, &mut tables)?;
                placed.ok_or_else(|| part.orphan(kind))?;
            }
        }
        Ok(dump)
    }

    fn device(&mut self, path: Path) -> Option<&mut Device> {
        self.devices.get_mut(path[0])
    }

    fn context(&mut self, path: Path) -> Option<&mut Context> {
        self.device(path)?.contexts.get_mut(path[1])
    }

    fn module(&mut self, path: Path) -> Option<&mut Module> {
        self.context(path)?.modules.get_mut(path[2])
    }

    fn grid(&mut self, path: Path) -> Option<&mut Grid> {
        self.device(path)?.grids.get_mut(path[1])
    }

    fn sm(&mut self, path: Path) -> Option<&mut Sm> {
        self.device(path)?.sms.get_mut(path[1])
    }

    fn block(&mut self, path: Path) -> Option<&mut Block> {
        self.sm(path)?.blocks.get_mut(path[2])
    }

    fn warp(&mut self, path: Path) -> Option<&mut Warp> {
        self.block(path)?.warps.get_mut(path[3])
    }

    fn lane(&mut self, path: Path) -> Option<&mut Lane> {
        self.warp(path)?.lanes.get_mut(path[4])
    }

    /// Puts a section where it belongs; `None` if the dump has no such row.
    fn place(&mut self, part: &Part<'_>, path: Path, tables: &mut Tables) -> Result<Option<()>, Error> {
        macro_rules! table {
            ($parent:ident . $field:ident: $row:ty) => {{
                let Some(parent) = self.$parent(path) else { return Ok(None) };
                tables.add(part, path, parent.$field.len());
                parent.$field.extend(part.rows::<$row>()?.into_iter().map(Into::into));
            }};
        }
        match part.kind {
            sht::CONTEXTS => table!(device.contexts: ContextRow),
            sht::GRIDS => table!(device.grids: GridRow),
            sht::SMS => table!(device.sms: SmRow),
            sht::MODULES => table!(context.modules: ModuleRow),
            sht::BLOCKS => table!(sm.blocks: BlockRow),
            sht::WARPS => table!(block.warps: WarpRow),
            sht::LANES => table!(warp.lanes: LaneRow),
            sht::BACKTRACE => {
                let Some(lane) = self.lane(path) else { return Ok(None) };
                lane.calls.extend(part.rows::<CallRow>()?.into_iter().map(Call::from));
                lane.calls.sort_by_key(|call| call.level);
            }
            _ => return Ok(self.fill(part, path)),
        }
        Ok(Some(()))
    }

    /// Puts contents that are no table where they belong.
    fn fill(&mut self, part: &Part<'_>, path: Path) -> Option<()> {
        match part.kind {
            sht::ELF_IMAGE => self.module(path)?.original = Some(part.data.to_vec()),
            sht::RELOCATED_IMAGE => self.module(path)?.relocated = Some(part.data.to_vec()),
            sht::PARAMETERS => self.grid(path)?.parameters = part.data.to_vec(),
            sht::SHARED_MEMORY => self.block(path)?.shared = part.data.to_vec(),
            sht::UNIFORM_REGISTERS => self.warp(path)?.uniform_registers = part.words().collect(),
            sht::UNIFORM_PREDICATES => {
                self.warp(path)?.uniform_predicates = part.words().map(|word| word != 0).collect();
            }
            sht::REGISTERS => self.lane(path)?.registers = part.words().collect(),
            sht::PREDICATES => self.lane(path)?.predicates = part.words().map(|word| word != 0).collect(),
            sht::LOCAL_MEMORY => {
                let address = part.header.sh_addr(LittleEndian);
                self.lane(path)?.local = Some(LocalMemory { address, bytes: part.data.to_vec() });
            }
            _ => {}
        }
        Some(())
    }
}

impl Part<'_> {
    fn rows<T: crate::rows::Row>(&self) -> Result<Vec<T>, Error> {
        rows(self.number, self.data, self.header.sh_entsize(LittleEndian))
    }

    fn words(&self) -> impl Iterator<Item = u32> {
        self.data.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word))
    }

    fn orphan(&self, kind: &Kind) -> Error {
        Error::Orphan {
            section: self.number,
            name: kind.name,
            link: self.header.sh_link(LittleEndian),
            row: self.header.sh_info(LittleEndian),
            of: kind.of.1,
        }
    }
}

impl Tables {
    /// Notes a table that belongs to the row at `path`, whose first row will have number `first` there.
    fn add(&mut self, part: &Part<'_>, path: Path, first: usize) {
        self.0.insert(part.number as u32, (part.kind, path, first));
    }

    /// The place of the row that a section belongs to.
    fn parent(&self, part: &Part<'_>, kind: &Kind) -> Result<Path, Error> {
        let link = part.header.sh_link(LittleEndian);
        let table = self.0.get(&link).filter(|(of, ..)| *of == kind.of.0);
        let (_, mut path, first) = *table.ok_or_else(|| part.orphan(kind))?;
        let row = first + part.header.sh_info(LittleEndian) as usize;
        let depth = match kind.of.0 {
            sht::DEVICES => 0,
            sht::CONTEXTS | sht::GRIDS | sht::SMS => 1,
            sht::MODULES | sht::BLOCKS => 2,
            sht::WARPS => 3,
            _ => 4,
        };
        path[depth] = row;
        Ok(path)
    }
}

fn elf(error: object::read::Error) -> Error {
    Error::Elf { reason: error.to_string() }
}

/// The section table of a dump whose sections are all in the file.
fn open<'d, R: ReadRef<'d>>(file: R) -> Result<SectionTable<'d, FileHeader64<LittleEndian>, R>, Error> {
    let unreadable = || Error::Elf { reason: "the file cannot be read".to_owned() };
    let len = file.len().map_err(|()| unreadable())?;
    let truncated = |what: &str, end: u64| Error::Truncated { what: what.to_owned(), end, len };
    let magic = file.read_bytes_at(0, len.min(4)).map_err(|()| unreadable())?;
    if magic.len() < 4 || magic != b"\x7fELF" {
        let what = if len == 0 { "an empty file" } else { "no ELF object" };
        return Err(Error::Other { what: what.to_owned() });
    }
    if len < HEADER {
        return Err(truncated("the ELF header", HEADER));
    }
    let header = FileHeader64::<LittleEndian>::parse(file)
        .map_err(|_| Error::Other { what: "no ELF object of 64 bits with the low byte first".to_owned() })?;
    let (machine, kind) = (header.e_machine(LittleEndian), header.e_type(LittleEndian));
    let what = match (machine, kind) {
        (EM_CUDA, ET_CORE) => None,
        (EM_CUDA, _) => Some("a cubin: `nvdiag disasm` reads it".to_owned()),
        (_, ET_CORE) => Some(format!("a core dump of a processor (ELF machine {machine})")),
        _ => Some(format!("an ELF object of machine {machine}")),
    };
    if let Some(what) = what {
        return Err(Error::Other { what });
    }
    let table = header.e_shoff(LittleEndian);
    let first = table.saturating_add(HEADER);
    if first > len {
        return Err(truncated("the section table", first));
    }
    let count = header.shnum(LittleEndian, file).map_err(elf)? as u64;
    let end = table.saturating_add(count.saturating_mul(HEADER));
    if end > len {
        return Err(truncated("the section table", end));
    }
    let sections = header.sections(LittleEndian, file).map_err(elf)?;
    check_sizes(&sections, len)?;
    Ok(sections)
}

/// Refuses sections that are not in the file, and more of them than it has bytes: the same bytes must not be
/// read again and again.
fn check_sizes<'d, R: ReadRef<'d>>(
    sections: &SectionTable<'d, FileHeader64<LittleEndian>, R>,
    len: u64,
) -> Result<(), Error> {
    let (mut claimed, mut rows) = (0_u64, 0_u64);
    for (index, header) in sections.enumerate().filter(|(_, h)| h.sh_type(LittleEndian) != SHT_NOBITS) {
        if index.0 == 0 {
            continue;
        }
        let size = header.sh_size(LittleEndian);
        let end = header.sh_offset(LittleEndian).saturating_add(size);
        if end > len {
            let name = sections.section_name(LittleEndian, header).unwrap_or_default();
            let what = format!("section {} {}", index.0, String::from_utf8_lossy(name));
            return Err(Error::Truncated { what: what.trim_end().to_owned(), end, len });
        }
        if !matches!(header.sh_type(LittleEndian), sht::GLOBAL_MEMORY | sht::MANAGED_MEMORY) {
            claimed = claimed.saturating_add(size);
            let row = header.sh_entsize(LittleEndian);
            // Words of registers take no more memory than in the file.
            rows += if row > 4 { size / row } else { 0 };
        }
    }
    let most = len.min(MOST);
    if claimed > most {
        return Err(Error::TooLarge { claimed, most });
    }
    if rows > MOST_ROWS { Err(Error::TooManyRows { rows, most: MOST_ROWS }) } else { Ok(()) }
}

/// The name at a place in `.strtab`; empty where there is none.
fn string(strings: &[u8], at: u64) -> String {
    let rest = usize::try_from(at).ok().and_then(|at| strings.get(at..)).unwrap_or_default();
    let name = rest.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

fn generator(row: &MetadataRow, strings: &[u8]) -> Generator {
    Generator {
        name: string(strings, row.generator.get()),
        driver: numbers(row.driver),
        cuda: numbers(row.cuda),
        time: row.time.get(),
    }
}

fn device(row: &DeviceRow, strings: &[u8]) -> Device {
    Device {
        name: string(strings, row.name.get()),
        chip: string(strings, row.chip.get()),
        sm_type: string(strings, row.sm_type.get()),
        id: row.id.get(),
        pci: numbers(row.pci),
        sm_count: row.sm_count.get(),
        warps_per_sm: row.warps_per_sm.get(),
        lanes_per_warp: row.lanes_per_warp.get(),
        registers_per_lane: row.registers_per_lane.get(),
        predicates_per_lane: row.predicates_per_lane.get(),
        capability: numbers(row.capability),
        instruction_bytes: row.instruction_bytes.get(),
        uniform_registers: row.uniform_registers.get(),
        uniform_predicates: row.uniform_predicates.get(),
        ..Device::default()
    }
}

impl From<ContextRow> for Context {
    fn from(row: ContextRow) -> Self {
        Self {
            id: row.id.get(),
            shared_window: row.shared_window.get(),
            local_window: row.local_window.get(),
            global_window: row.global_window.get(),
            thread: row.thread.get(),
            modules: Vec::new(),
        }
    }
}

impl From<ModuleRow> for Module {
    fn from(row: ModuleRow) -> Self {
        Self { handle: row.handle.get(), ..Self::default() }
    }
}

impl From<GridRow> for Grid {
    fn from(row: GridRow) -> Self {
        Self {
            id: row.id.get(),
            context: row.context.get(),
            function: row.function.get(),
            entry: row.entry.get(),
            module: row.module.get(),
            parent: row.parent.get(),
            parameter_offset: row.parameter_offset.get(),
            registers: row.registers.get(),
            grid: numbers(row.grid),
            block: numbers(row.block),
            parameters: Vec::new(),
        }
    }
}

impl From<SmRow> for Sm {
    fn from(row: SmRow) -> Self {
        Self {
            id: row.id.get(),
            exception: Exception(row.exception.get()),
            error_pc: (row.has_pc.get() != 0).then(|| row.pc.get()),
            blocks: Vec::new(),
        }
    }
}

impl From<BlockRow> for Block {
    fn from(row: BlockRow) -> Self {
        Self { grid: row.grid.get(), index: numbers(row.index), ..Self::default() }
    }
}

impl From<WarpRow> for Warp {
    fn from(row: WarpRow) -> Self {
        Self {
            id: row.id.get(),
            valid: row.valid.get(),
            active: row.active.get(),
            is_broken: row.is_broken.get() != 0,
            error_pc: (row.has_pc.get() != 0).then(|| row.pc.get()),
            ..Self::default()
        }
    }
}

impl From<LaneRow> for Lane {
    fn from(row: LaneRow) -> Self {
        Self {
            lane: row.lane.get(),
            thread: numbers(row.thread),
            exception: Exception(row.exception.get()),
            pc: row.pc.get(),
            offset: row.offset.get(),
            depth: row.depth.get(),
            ..Self::default()
        }
    }
}

impl From<CallRow> for Call {
    fn from(row: CallRow) -> Self {
        Self { level: row.level.get(), return_pc: row.return_pc.get(), offset: row.offset.get() }
    }
}
