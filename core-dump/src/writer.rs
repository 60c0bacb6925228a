//! A dump to the bytes of a file.

use object::Endianness;
use object::elf::{ET_CORE, SHT_STRTAB};
use object::write::elf::{FileHeader, SectionHeader, Writer};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromZeros, Immutable, IntoBytes};

use crate::error::Error;
use crate::model::{Block, Context, CoreDump, Device, Grid, Lane, Sm, Warp};
use crate::rows::{
    BlockRow, CallRow, ContextRow, DeviceRow, GRID_ACTIVE, GridRow, KERNEL_APPLICATION, LaneRow, MetadataRow,
    ModuleRow, SmRow, WarpRow, sht, words,
};

/// `e_machine` of CUDA objects.
pub(crate) const EM_CUDA: u16 = 190;
/// `ELFOSABI_CUDA` and the only ABI version that cuda-gdb's `libcudacore/common.h` takes.
const ABI: (u8, u8) = (0x33, 7);
/// Alignment of a section in the file: rows are read in place.
const ALIGN: usize = 8;

/// A section to be written.
struct Section {
    name: String,
    kind: u32,
    address: u64,
    /// The table and the row that it belongs to.
    parent: (u32, u32),
    row_bytes: u64,
    data: Vec<u8>,
}

/// The table and the row that a section belongs to, and the end of its name.
struct Parent<'a> {
    table: u32,
    row: usize,
    suffix: &'a str,
}

/// The sections, numbered from 1 on.
#[derive(Default)]
struct Sections {
    all: Vec<Section>,
    strings: Vec<u8>,
}

impl CoreDump {
    /// The dump as a file. Global memory is left out.
    ///
    /// # Errors
    /// [`Error::Unwritable`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let mut sections = Sections { strings: vec![0], ..Sections::default() };
        sections.dump(self);
        sections.write().map_err(|error| Error::Unwritable { reason: error.to_string() })
    }
}

impl Sections {
    /// Adds a section and returns its number.
    fn add(&mut self, name: &str, kind: u32, parent: &Parent<'_>, row_bytes: usize, data: Vec<u8>) -> u32 {
        let name = format!(".cudbg.{name}{}", parent.suffix);
        let parent = (parent.table, parent.row as u32);
        self.all.push(Section { name, kind, address: 0, parent, row_bytes: row_bytes as u64, data });
        self.all.len() as u32
    }

    /// Adds a table, if it has rows.
    fn table<T: IntoBytes + Immutable>(&mut self, name: &str, kind: u32, at: &Parent<'_>, rows: &[T]) -> u32 {
        if rows.is_empty() {
            return 0;
        }
        self.add(name, kind, at, size_of::<T>(), rows.as_bytes().to_vec())
    }

    /// Adds contents that are no table, if there are any.
    fn content(&mut self, name: &str, kind: u32, at: &Parent<'_>, data: &[u8]) {
        if !data.is_empty() {
            self.add(name, kind, at, 0, data.to_vec());
        }
    }

    fn words(&mut self, name: &str, kind: u32, at: &Parent<'_>, words: impl Iterator<Item = u32>) {
        let data: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        if !data.is_empty() {
            self.add(name, kind, at, size_of::<u32>(), data);
        }
    }

    fn string(&mut self, text: &str) -> U64 {
        if text.is_empty() {
            return U64::new(0);
        }
        let at = self.strings.len() as u64;
        // A name ends at the first zero.
        self.strings.extend(text.bytes().take_while(|byte| *byte != 0).chain([0]));
        U64::new(at)
    }

    fn dump(&mut self, dump: &CoreDump) {
        let top = Parent { table: 0, row: 0, suffix: "" };
        if let Some(generator) = &dump.generator {
            let row = MetadataRow {
                generator: self.string(&generator.name),
                driver: words(generator.driver),
                cuda: words(generator.cuda),
                flags: U32::new(0),
                time: U32::new(generator.time),
            };
            self.table("meta", sht::METADATA, &top, &[row]);
        }
        let rows: Vec<_> = dump.devices.iter().map(|device| self.device_row(device)).collect();
        let table = self.table("devtbl", sht::DEVICES, &top, &rows);
        for (row, device) in dump.devices.iter().enumerate() {
            let suffix = format!(".dev{row}");
            let at = Parent { table, row, suffix: &suffix };
            self.contexts(&device.contexts, &at);
            self.grids(&device.grids, &at);
            self.sms(&device.sms, &at);
        }
    }

    fn device_row(&mut self, device: &Device) -> DeviceRow {
        DeviceRow {
            name: self.string(&device.name),
            chip: self.string(&device.chip),
            sm_type: self.string(&device.sm_type),
            id: U32::new(device.id),
            pci: words(device.pci),
            sm_count: U32::new(device.sm_count),
            warps_per_sm: U32::new(device.warps_per_sm),
            lanes_per_warp: U32::new(device.lanes_per_warp),
            registers_per_lane: U32::new(device.registers_per_lane),
            predicates_per_lane: U32::new(device.predicates_per_lane),
            capability: words(device.capability),
            instruction_bytes: U32::new(device.instruction_bytes),
            uniform_registers: U32::new(device.uniform_registers),
            uniform_predicates: U32::new(device.uniform_predicates),
            ..DeviceRow::new_zeroed()
        }
    }

    fn contexts(&mut self, contexts: &[Context], at: &Parent<'_>) {
        let row = |context: &Context| ContextRow {
            id: U64::new(context.id),
            shared_window: U64::new(context.shared_window),
            local_window: U64::new(context.local_window),
            global_window: U64::new(context.global_window),
            device: U32::new(at.row as u32),
            thread: U32::new(context.thread),
        };
        let rows: Vec<_> = contexts.iter().map(row).collect();
        let table = self.table("ctxtbl", sht::CONTEXTS, at, &rows);
        for (row, context) in contexts.iter().enumerate() {
            let suffix = format!("{}.ctx{row}", at.suffix);
            let rows: Vec<_> =
                context.modules.iter().map(|m| ModuleRow { handle: U64::new(m.handle) }).collect();
            let at = Parent { table, row, suffix: &suffix };
            let modules = self.table("modtbl", sht::MODULES, &at, &rows);
            for (row, module) in context.modules.iter().enumerate() {
                let at = Parent { table: modules, row, suffix: &suffix };
                if let Some(image) = &module.original {
                    self.add("elfimg", sht::ELF_IMAGE, &at, 0, image.clone());
                }
                if let Some(image) = &module.relocated {
                    self.add("relfimg", sht::RELOCATED_IMAGE, &at, 0, image.clone());
                }
            }
        }
    }

    fn grids(&mut self, grids: &[Grid], at: &Parent<'_>) {
        let row = |grid: &Grid| GridRow {
            id: U64::new(grid.id),
            context: U64::new(grid.context),
            function: U64::new(grid.function),
            entry: U64::new(grid.entry),
            module: U64::new(grid.module),
            parent: U64::new(grid.parent),
            parameter_offset: U64::new(grid.parameter_offset),
            kind: U32::new(KERNEL_APPLICATION),
            status: U32::new(GRID_ACTIVE),
            registers: U32::new(grid.registers),
            grid: words(grid.grid),
            block: words(grid.block),
            ..GridRow::new_zeroed()
        };
        let rows: Vec<_> = grids.iter().map(row).collect();
        let table = self.table("gridtbl", sht::GRIDS, at, &rows);
        for (row, grid) in grids.iter().enumerate() {
            let suffix = format!("{}.grid{row}", at.suffix);
            let at = Parent { table, row, suffix: &suffix };
            self.content("param", sht::PARAMETERS, &at, &grid.parameters);
        }
    }

    fn sms(&mut self, sms: &[Sm], at: &Parent<'_>) {
        let row = |sm: &Sm| SmRow {
            id: U32::new(sm.id),
            exception: U32::new(sm.exception.0),
            has_pc: U32::new(sm.error_pc.is_some().into()),
            pc: U64::new(sm.error_pc.unwrap_or(0)),
            ..SmRow::new_zeroed()
        };
        let rows: Vec<_> = sms.iter().map(row).collect();
        let table = self.table("smtbl", sht::SMS, at, &rows);
        for (row, sm) in sms.iter().enumerate() {
            let suffix = format!("{}.sm{row}", at.suffix);
            self.blocks(&sm.blocks, &Parent { table, row, suffix: &suffix });
        }
    }

    fn blocks(&mut self, blocks: &[Block], at: &Parent<'_>) {
        let row = |block: &Block| BlockRow {
            grid: U64::new(block.grid),
            index: words(block.index),
            ..BlockRow::new_zeroed()
        };
        let rows: Vec<_> = blocks.iter().map(row).collect();
        let table = self.table("ctatbl", sht::BLOCKS, at, &rows);
        for (row, block) in blocks.iter().enumerate() {
            let suffix = format!("{}.cta{row}", at.suffix);
            let at = Parent { table, row, suffix: &suffix };
            self.content("shared", sht::SHARED_MEMORY, &at, &block.shared);
            self.warps(&block.warps, &at);
        }
    }

    fn warps(&mut self, warps: &[Warp], at: &Parent<'_>) {
        let row = |warp: &Warp| WarpRow {
            pc: U64::new(warp.error_pc.unwrap_or(0)),
            id: U32::new(warp.id),
            valid: U32::new(warp.valid),
            active: U32::new(warp.active),
            is_broken: U32::new(warp.is_broken.into()),
            has_pc: U32::new(warp.error_pc.is_some().into()),
            padding: U32::new(0),
        };
        let rows: Vec<_> = warps.iter().map(row).collect();
        let table = self.table("wptbl", sht::WARPS, at, &rows);
        for (row, warp) in warps.iter().enumerate() {
            let suffix = format!("{}.wp{row}", at.suffix);
            let at = Parent { table, row, suffix: &suffix };
            self.words("uregs", sht::UNIFORM_REGISTERS, &at, warp.uniform_registers.iter().copied());
            let predicates = warp.uniform_predicates.iter().map(|p| u32::from(*p));
            self.words("upred", sht::UNIFORM_PREDICATES, &at, predicates);
            self.lanes(&warp.lanes, &at);
        }
    }

    fn lanes(&mut self, lanes: &[Lane], at: &Parent<'_>) {
        let row = |lane: &Lane| LaneRow {
            pc: U64::new(lane.pc),
            offset: U64::new(lane.offset),
            lane: U32::new(lane.lane),
            thread: words(lane.thread),
            exception: U32::new(lane.exception.0),
            depth: U32::new(lane.depth),
            ..LaneRow::new_zeroed()
        };
        let rows: Vec<_> = lanes.iter().map(row).collect();
        let table = self.table("lntbl", sht::LANES, at, &rows);
        for (row, lane) in lanes.iter().enumerate() {
            let suffix = format!("{}.ln{row}", at.suffix);
            let at = Parent { table, row, suffix: &suffix };
            self.words("regs", sht::REGISTERS, &at, lane.registers.iter().copied());
            self.words("pred", sht::PREDICATES, &at, lane.predicates.iter().map(|p| u32::from(*p)));
            if let Some(local) = &lane.local {
                self.add("local", sht::LOCAL_MEMORY, &at, 0, local.bytes.clone());
                self.all.last_mut().expect("it was just added").address = local.address;
            }
            let row = |call: &crate::model::Call| CallRow {
                offset: U64::new(call.offset),
                return_pc: U64::new(call.return_pc),
                level: U32::new(call.level),
                padding: U32::new(0),
            };
            let rows: Vec<_> = lane.calls.iter().map(row).collect();
            self.table("bt", sht::BACKTRACE, &at, &rows);
        }
    }

    /// Lays the file out: header, contents, names, section table.
    fn write(mut self) -> object::write::Result<Vec<u8>> {
        let strings = std::mem::take(&mut self.strings);
        self.all.push(Section {
            name: ".strtab".to_owned(),
            kind: SHT_STRTAB,
            address: 0,
            parent: (0, 0),
            row_bytes: 0,
            data: strings,
        });
        let mut bytes = Vec::new();
        let mut file = Writer::new(Endianness::Little, true, &mut bytes);
        file.reserve_file_header();
        file.reserve_null_section_index();
        let place = |file: &mut Writer<'_>, section: &Section| file.reserve(section.data.len(), ALIGN);
        let mut placed = Vec::with_capacity(self.all.len());
        for section in &self.all {
            file.reserve_section_index();
            placed.push((file.add_section_name(section.name.as_bytes()), place(&mut file, section)));
        }
        file.reserve_shstrtab_section_index();
        file.reserve_shstrtab();
        file.reserve_section_headers();
        file.write_file_header(&FileHeader {
            os_abi: ABI.0,
            abi_version: ABI.1,
            e_type: ET_CORE,
            e_machine: EM_CUDA,
            e_entry: 0,
            e_flags: 0,
        })?;
        for section in &self.all {
            file.write_align(ALIGN);
            file.write(&section.data);
        }
        file.write_shstrtab();
        file.write_null_section_header();
        for (section, (name, offset)) in self.all.iter().zip(placed) {
            file.write_section_header(&SectionHeader {
                name: Some(name),
                sh_type: section.kind,
                sh_flags: 0,
                sh_addr: section.address,
                sh_offset: offset as u64,
                sh_size: section.data.len() as u64,
                sh_link: section.parent.0,
                sh_info: section.parent.1,
                sh_addralign: ALIGN as u64,
                sh_entsize: section.row_bytes,
            });
        }
        file.write_shstrtab_section_header();
        Ok(bytes)
    }
}
