//! A file laid out word by word after `cudacoredump.h` (offsets and numbers), without the writer.

use core_dump::{CoreDump, Error, Exception};

/// A section: name, type, address, link, info, bytes of a row, contents.
pub type Section = (&'static str, u32, u64, u32, u32, u64, Vec<u8>);

/// An ELF core of CUDA with these sections, numbered from 1 on, and `.shstrtab` after them.
pub fn file(sections: &[Section]) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01\x33\x07\0\0\0\0\0\0\0".to_vec();
    for half in [4_u16, 190] {
        bytes.extend(half.to_le_bytes());
    }
    bytes.resize(64, 0);
    let mut headers = vec![[0_u8; 64]];
    let mut names = vec![0_u8];
    let strings = (".shstrtab", 3, 0, 0, 0, 0, Vec::new());
    for (name, kind, address, link, info, row, data) in sections.iter().chain([&strings]) {
        let name_at = names.len() as u32;
        names.extend(name.bytes().chain([0]));
        let data = if *name == ".shstrtab" { &names } else { data };
        let mut header = Vec::new();
        header.extend([name_at, *kind].into_iter().flat_map(u32::to_le_bytes));
        header.extend(
            [0, *address, bytes.len() as u64, data.len() as u64].into_iter().flat_map(u64::to_le_bytes),
        );
        header.extend([*link, *info].into_iter().flat_map(u32::to_le_bytes));
        header.extend([1, *row].into_iter().flat_map(u64::to_le_bytes));
        headers.push(header.try_into().expect("64 bytes"));
        bytes.extend(data);
    }
    let table = bytes.len() as u64;
    bytes[0x28..0x30].copy_from_slice(&table.to_le_bytes());
    bytes[0x34..0x36].copy_from_slice(&64_u16.to_le_bytes());
    bytes[0x3a..0x3c].copy_from_slice(&64_u16.to_le_bytes());
    bytes[0x3c..0x3e].copy_from_slice(&(headers.len() as u16).to_le_bytes());
    bytes[0x3e..0x40].copy_from_slice(&(headers.len() as u16 - 1).to_le_bytes());
    bytes.extend(headers.concat());
    bytes
}

fn row(longs: &[u64], words: &[u32]) -> Vec<u8> {
    longs.iter().flat_map(|l| l.to_le_bytes()).chain(words.iter().flat_map(|w| w.to_le_bytes())).collect()
}

/// Rows as a driver of r575 writes them: with all fields that were appended.
pub fn sections() -> Vec<Section> {
    const U: u32 = 0x8000_0000;
    let device = [0, 1, 4, 2, 48, 32, 256, 8, 8, 7, 16, 0, 63, 7, 16, 0];
    let device = row(&[1, 5, 11], &[[device[0], 1, 4].as_slice(), &device[3..]].concat());
    let sm = |id, exception| {
        [row(&[], &[id, 0, exception, u32::from(exception != 0)]), row(&[0x2000_0040], &[0; 4])].concat()
    };
    let grid = row(
        &[7, 0xc0, 0xf0, 0x2000_0000, 0xe0, 0, 0x160],
        &[2, 0, 2, 12, 10, 1, 1, 64, 2, 1, 0, 99, 1, 1, 1, 0, 1, 1, 1, 0],
    );
    let block = row(&[7], &[3, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0]);
    let warp = row(&[0x2000_0040], &[5, 0b11, 0b10, 0, 1, 0, 12, 0, 1024, 0, 0, 2, 0, 0]);
    let lane = |lane, exception| row(&[0x2000_0040, 0x40], &[lane, lane, 1, 0, exception, 1, 0, 0, 0, 0]);
    // The lanes stand before their warp: the order of sections is not that of the tables.
    vec![
        (".cudbg.lntbl.dev0.sm1.cta0.wp0", U + 15, 0, 2, 0, 56, [lane(0, 0), lane(1, 6)].concat()),
        (".cudbg.wptbl.dev0.sm1.cta0", U + 14, 0, 3, 0, 64, warp),
        (".cudbg.ctatbl.dev0.sm1", U + 13, 0, 4, 1, 56, block),
        (".cudbg.smtbl.dev0", U + 11, 0, 6, 0, 40, [sm(0, 0), sm(1, 6)].concat()),
        (".cudbg.gridtbl.dev0", U + 12, 0, 6, 0, 136, grid),
        (".cudbg.devtbl", U + 9, 0, 0, 0, 88, device),
        (".cudbg.ctxtbl.dev0", U + 10, 0, 6, 0, 40, row(&[0xc0, 0xfe00_0000, 0xff00_0000, 0], &[0, 99])),
        (".cudbg.modtbl.dev0.ctx0", U + 16, 0, 7, 0, 8, row(&[0xe0], &[])),
        (".cudbg.relfimg.dev0.ctx0", U + 7, 0, 8, 0, 0, b"cubin".to_vec()),
        (".cudbg.regs.dev0.sm1.cta0.wp0.ln1", U + 5, 0, 1, 1, 4, row(&[], &[0xaa, 0xbb, 0xcc])),
        (".cudbg.pred.dev0.sm1.cta0.wp0.ln1", U + 17, 0, 1, 1, 4, row(&[], &[1, 0, 1])),
        (".cudbg.bt.dev0.sm1.cta0.wp0.ln1", U + 8, 0, 1, 1, 24, row(&[0x90, 0x2000_1090], &[0, 0])),
        (".cudbg.local.dev0.sm1.cta0.wp0.ln1", U + 3, 0xff_ff00, 1, 1, 0, vec![1, 2, 3]),
        (".cudbg.uregs.dev0.sm1.cta0.wp0", U + 19, 0, 2, 0, 4, row(&[], &[4, 5])),
        (".cudbg.upred.dev0.sm1.cta0.wp0", U + 20, 0, 2, 0, 4, row(&[], &[1])),
        (".cudbg.shared.dev0.sm1.cta0", U + 4, 0, 3, 0, 0, vec![9; 16]),
        (".cudbg.param.dev0.grid0", U + 18, 0, 5, 0, 0, vec![7; 8]),
        (".cudbg.cbu_bar.dev0.sm1.cta0.wp0", U + 23, 0, 2, 0, 4, vec![0; 64]),
        (".cudbg.global.0", U + 2, 0x7000_0000, 0, 0, 0, vec![0; 32]),
        (".cudbg.meta", U + 22, 0, 0, 0, 32, row(&[17], &[575, 51, 12, 9, 0, 1_700_000_000])),
        (".strtab", 3, 0, 0, 0, 0, b"\0GPU\0gb10b\0sm_87\0CUDA\0".to_vec()),
    ]
}

#[test]
fn every_table_is_read_where_the_header_says() {
    let dump = CoreDump::read(file(&sections()).as_slice()).expect("a dump");
    let generator = dump.generator.as_ref().expect("a generator");
    assert_eq!((generator.name.as_str(), generator.driver, generator.cuda), ("CUDA", [575, 51], [12, 9]));
    assert_eq!((dump.memory.len(), dump.memory[0].address, dump.memory[0].len), (1, 0x7000_0000, 32));
    let [device] = dump.devices.as_slice() else { panic!("{dump:?}") };
    assert_eq!(
        (device.name.as_str(), device.chip.as_str(), device.sm_type.as_str()),
        ("GPU", "gb10b", "sm_87")
    );
    assert_eq!(
        (device.pci, device.sm_count, device.warps_per_sm, device.lanes_per_warp),
        ([1, 4], 2, 48, 32)
    );
    assert_eq!((device.registers_per_lane, device.capability), (256, [8, 7]));
    assert_eq!((device.uniform_registers, device.uniform_predicates, device.instruction_bytes), (63, 7, 16));
    let context = &device.contexts[0];
    assert_eq!((context.id, context.shared_window, context.thread), (0xc0, 0xfe00_0000, 99));
    assert_eq!(
        (context.modules[0].handle, context.modules[0].relocated.as_deref()),
        (0xe0, Some(&b"cubin"[..]))
    );
    let grid = &device.grids[0];
    assert_eq!((grid.id, grid.entry, grid.module, grid.parameter_offset), (7, 0x2000_0000, 0xe0, 0x160));
    assert_eq!((grid.grid, grid.block, grid.registers), ([10, 1, 1], [64, 2, 1], 12));
    assert_eq!(grid.parameters, [7; 8]);
    let [clean, sm] = device.sms.as_slice() else { panic!("{device:?}") };
    assert_eq!((clean.exception, clean.error_pc, clean.blocks.len()), (Exception::NONE, None, 0));
    assert_eq!((sm.exception, sm.error_pc), (Exception::WARP_MISALIGNED_ADDRESS, Some(0x2000_0040)));
    let block = &sm.blocks[0];
    assert_eq!((block.grid, block.index, block.shared.len()), (7, [3, 0, 0], 16));
    let warp = &block.warps[0];
    assert_eq!((warp.id, warp.valid, warp.active, warp.is_broken), (5, 3, 2, false));
    assert_eq!(warp.error_pc, Some(0x2000_0040));
    assert_eq!(
        (warp.uniform_registers.as_slice(), warp.uniform_predicates.as_slice()),
        (&[4, 5][..], &[true][..])
    );
    let lane = &warp.lanes[1];
    assert_eq!(
        (lane.lane, lane.thread, lane.exception.0, lane.pc, lane.offset),
        (1, [1, 1, 0], 6, 0x2000_0040, 0x40)
    );
    assert_eq!(
        (lane.registers.as_slice(), lane.predicates.as_slice()),
        (&[0xaa, 0xbb, 0xcc][..], &[true, false, true][..])
    );
    assert_eq!(
        lane.calls.iter().map(|c| (c.level, c.return_pc, c.offset)).collect::<Vec<_>>(),
        [(0, 0x2000_1090, 0x90)]
    );
    let local = lane.local.as_ref().expect("local memory");
    assert_eq!((local.address, local.bytes.as_slice()), (0xff_ff00, &[1, 2, 3][..]));
}

#[test]
fn rows_of_the_first_drivers_are_read() {
    let mut sections = sections();
    for (name, rows, bytes) in
        [(".cudbg.devtbl", 1, 72), (".cudbg.gridtbl.dev0", 1, 104), (".cudbg.smtbl.dev0", 2, 8)]
    {
        let section = sections.iter_mut().find(|section| section.0 == name).expect("the section");
        let cut =
            section.6.chunks(section.5 as usize).take(rows).flat_map(|row| row[..bytes].to_vec()).collect();
        (section.5, section.6) = (bytes as u64, cut);
    }
    let dump = CoreDump::read(file(&sections).as_slice()).expect("a dump");
    let device = &dump.devices[0];
    assert_eq!((device.instruction_bytes, device.uniform_registers), (16, 0));
    assert_eq!(
        (device.sms[1].id, device.sms[1].exception, device.sms[1].error_pc),
        (1, Exception::NONE, None)
    );
    assert_eq!(device.sms[1].blocks[0].warps[0].lanes[1].exception.0, 6);
}

#[test]
fn other_files_are_named() {
    let elf = |machine: u16, kind: u16| {
        let mut bytes = file(&sections());
        bytes[16..18].copy_from_slice(&kind.to_le_bytes());
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes
    };
    for (bytes, words) in [
        (Vec::new(), "an empty file"),
        (b"#!/bin/sh".to_vec(), "no ELF object"),
        (elf(190, 2), "a cubin: `nvdiag disasm` reads it"),
        (elf(183, 4), "a core dump of a processor"),
        (elf(62, 3), "an ELF object of machine 62"),
    ] {
        let error = CoreDump::read(bytes.as_slice()).expect_err("no dump");
        assert!(matches!(error, Error::Other { .. }) && error.to_string().contains(words), "{error}");
    }
}
