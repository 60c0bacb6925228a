//! A process that is followed by its calls alone: sequences of both drivers, on memory that the test maps
//! itself.

use std::ffi::c_void;
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ga10b_capture::{Content, Limits, Record, Watcher};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nvgpu_sys::{
    NVGPU_AS_IOCTL_BIND_CHANNEL, NVGPU_AS_IOCTL_MAP_BUFFER_EX, NVGPU_IOCTL_CHANNEL_SETUP_BIND,
    NVGPU_IOCTL_CHANNEL_SUBMIT_GPFIFO, nvgpu_as_bind_channel_args, nvgpu_as_map_buffer_ex_args,
    nvgpu_channel_setup_bind_args, nvgpu_submit_gpfifo_args,
};
use qmd::{Dependent, Launch, Target};
use rm_sys::{
    NV_CHANNEL_ALLOC_PARAMS, NV_ESC_RM_ALLOC, NV_ESC_RM_DUP_OBJECT, NV_ESC_RM_FREE, NV_ESC_RM_MAP_MEMORY,
    NV_ESC_RM_MAP_MEMORY_DMA, NVOS00_PARAMETERS, NVOS46_PARAMETERS, NVOS55_PARAMETERS, NVOS64_PARAMETERS,
    Release, nv_ioctl_nvos33_parameters_with_fd,
};

const LEN: usize = 16384;
const ENTRIES: u32 = 16;

/// Memory that "the driver" gave: mapped, and a descriptor of it.
struct Memory {
    fd: OwnedFd,
    at: NonNull<c_void>,
}

impl Memory {
    fn new() -> Self {
        let fd = memfd_create(c"memory", MFdFlags::MFD_CLOEXEC).unwrap();
        File::from(fd.try_clone().unwrap()).set_len(LEN as u64).unwrap();
        let (prot, len) = (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, NonZeroUsize::new(LEN).unwrap());
        // SAFETY: the kernel chooses the address.
        let at = unsafe { mmap(None, len, prot, MapFlags::MAP_SHARED, fd.as_fd(), 0) }.unwrap();
        Self { fd, at }
    }

    fn address(&self) -> usize {
        self.at.as_ptr().expose_provenance()
    }

    fn store(&self, offset: usize, words: &[u32]) {
        assert!(offset + words.len() * 4 <= LEN);
        for (i, word) in words.iter().enumerate() {
            // SAFETY: the range was checked above.
            unsafe { self.at.cast::<u32>().add(offset / 4 + i).write_volatile(*word) };
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`.
        unsafe { munmap(self.at, LEN) }.unwrap();
    }
}

/// A watcher, and the records it has found so far.
fn watcher() -> (Watcher, Arc<Mutex<Vec<Record>>>) {
    let found = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&found);
    let limits = Limits { entries: 40, segment_words: 64, launches: 8, interval: Duration::ZERO };
    let watcher = Watcher::new(limits, Some(Release::R580), move |record| {
        sink.lock().unwrap().push(record.clone());
    });
    (watcher, found)
}

fn taken(found: &Mutex<Vec<Record>>) -> Vec<Record> {
    std::mem::take(&mut *found.lock().unwrap())
}

fn tell<T>(watcher: &Watcher, fd: i32, request: u32, args: &T) {
    assert!(watcher.wants(fd, request));
    // SAFETY: the struct is that of the request, and addresses in it are of live structs.
    unsafe { watcher.request(fd, request, std::ptr::from_ref(args).cast()) };
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect()
}

fn entry(address: u64, count: u64) -> u64 {
    address | count << 42
}

/// Puts an entry into a ring at the start of `ring`, and publishes it in `userd`.
fn publish(ring: &Memory, userd: (&Memory, usize), index: u32, word: u64) {
    ring.store(index as usize % ENTRIES as usize * 8, &[word as u32, (word >> 32) as u32]);
    userd.0.store(userd.1 + 0x8c, &[(index + 1) % ENTRIES]);
}

/// Launches the QMD at `address`, and then dwords that mean nothing.
fn launch(address: u64) -> Vec<u32> {
    vec![0x2001_20ad, (address >> 8) as u32, 0x8009_20b0, 6 << 29]
}

#[test]
fn a_channel_of_nvgpu_is_read_through_dma_bufs() {
    let (watcher, found) = watcher();
    let [ring, userd, commands, secret] = [(); 4].map(|()| Memory::new());
    for memory in [&ring, &userd, &commands] {
        watcher.mapped(memory.fd.as_raw_fd(), memory.address(), LEN, 0);
    }
    let (space, channel, base) = (1000, 1001, 0x10_0000_0000u64);
    for (memory, address) in [(&commands, base), (&secret, base + LEN as u64)] {
        let args = nvgpu_as_map_buffer_ex_args {
            dmabuf_fd: memory.fd.as_raw_fd().cast_unsigned(),
            offset: address,
            ..Default::default()
        };
        tell(&watcher, space, NVGPU_AS_IOCTL_MAP_BUFFER_EX, &args);
    }
    let bind = nvgpu_as_bind_channel_args { channel_fd: 1001 };
    tell(&watcher, space, NVGPU_AS_IOCTL_BIND_CHANNEL, &bind);
    assert!(!watcher.has_channels());
    let setup = nvgpu_channel_setup_bind_args {
        num_gpfifo_entries: ENTRIES,
        userd_dmabuf_fd: userd.fd.as_raw_fd(),
        gpfifo_dmabuf_fd: ring.fd.as_raw_fd(),
        work_submit_token: 511,
        ..Default::default()
    };
    tell(&watcher, channel, NVGPU_IOCTL_CHANNEL_SETUP_BIND, &setup);
    assert!(watcher.has_channels());
    watcher.poll();
    assert_eq!(taken(&found), []);

    // Two QMDs of which the first names the second, which names the first.
    let qmd = |next| {
        let launch = Launch::new(Target::Sm87).program(base, 0).registers(16);
        launch.dependent(0, Dependent::schedule(next)).build().unwrap()
    };
    let (first, second) = (base + 0x1000, base + 0x1100);
    let (image, other) = (qmd(second), qmd(first));
    commands.store(0x1000, &words(image.as_bytes()));
    commands.store(0x1100, &words(other.as_bytes()));
    commands.store(0, &launch(first));
    publish(&ring, (&userd, 0), 0, entry(base, 4));
    publish(&ring, (&userd, 0), 1, entry(base + LEN as u64, 4));
    publish(&ring, (&userd, 0), 2, entry(0x7000, 4));
    watcher.poll();
    watcher.poll();
    let records = taken(&found);
    let [record] = records.as_slice() else { panic!("{records:?}") };
    assert_eq!((record.channel.handle, record.channel.ring_entries, record.not_seen), (511, ENTRIES, 0));
    let contents: Vec<_> = record.entries.iter().map(|e| &e.content).collect();
    let segment: Vec<u8> = launch(first).iter().flat_map(|w| w.to_le_bytes()).collect();
    // The program mapped neither the second buffer for its CPU nor the third address at all.
    assert_eq!(contents, [&Content::Bytes(segment), &Content::NotMapped, &Content::NotMapped]);
    let launches: Vec<_> = record.launches.iter().map(|l| (l.address, l.after, l.content.clone())).collect();
    let bytes = |image: &qmd::Qmd| Content::Bytes(image.as_bytes().to_vec());
    assert_eq!(launches, [(first, None, bytes(&image)), (second, Some(first), bytes(&other))]);

    // Entries published before the memory goes away are read before it goes away.
    publish(&ring, (&userd, 0), 3, entry(base, 4));
    watcher.unmap(commands.address(), LEN);
    // The channel lives until its last descriptor is closed.
    let copy = channel + 1;
    watcher.duplicated(channel, copy);
    watcher.close(channel);
    assert!(watcher.has_channels());
    publish(&ring, (&userd, 0), 4, entry(base, 4));
    watcher.close(copy);
    let contents: Vec<_> =
        taken(&found).into_iter().flat_map(|r| r.entries).map(|e| (e.index, e.content)).collect();
    assert!(matches!(contents.as_slice(), [(3, Content::Bytes(_)), (4, Content::NotMapped)]), "{contents:?}");
    assert!(!watcher.has_channels());
}

#[test]
fn entries_that_are_handed_to_nvgpu_are_read_in_the_call() {
    let (watcher, found) = watcher();
    let list = [entry(0x1000, 2), 0];
    let args = nvgpu_submit_gpfifo_args {
        gpfifo: list.as_ptr().expose_provenance() as u64,
        num_entries: 2,
        ..Default::default()
    };
    tell(&watcher, 1001, NVGPU_IOCTL_CHANNEL_SUBMIT_GPFIFO, &args);
    let records = taken(&found);
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].entries.iter().map(|e| e.word).collect::<Vec<_>>(), list);
    assert_eq!(records[0].entries[0].content, Content::NotMapped);
}

/// The calls by which a client of the desktop driver makes a channel, with USERD in memory that two channels
/// share.
struct Desktop {
    watcher: Watcher,
    found: Arc<Mutex<Vec<Record>>>,
    ring: Memory,
    userd: Memory,
    commands: Memory,
}

const CLIENT: u32 = 0xc1d0_0001;
const RING: u32 = 0x10;
const USERD: u32 = 0x11;
const COMMANDS: u32 = 0x12;
const COPY: u32 = 0x13;

impl Desktop {
    const RING_VA: u64 = 0x2_0000_0000;
    const COMMANDS_VA: u64 = 0x3_0000_0000;

    fn new() -> Self {
        let (watcher, found) = watcher();
        let [ring, userd, commands] = [(); 3].map(|()| Memory::new());
        Self { watcher, found, ring, userd, commands }
    }

    /// `RM_MAP_MEMORY`, and the mapping that follows it.
    fn map_cpu(&self, handle: u32, memory: &Memory, offset: u64) {
        let args = nv_ioctl_nvos33_parameters_with_fd {
            params_hClient: CLIENT,
            params_hMemory: handle,
            params_offset: offset,
            params_length: LEN as u64,
            fd: memory.fd.as_raw_fd(),
            ..Default::default()
        };
        tell(&self.watcher, 3, NV_ESC_RM_MAP_MEMORY, &args);
        self.watcher.mapped(memory.fd.as_raw_fd(), memory.address(), LEN, 0);
    }

    fn map_gpu(&self, handle: u32, address: u64) {
        let args = NVOS46_PARAMETERS {
            hClient: CLIENT,
            hMemory: handle,
            length: LEN as u64,
            dmaOffset: address,
            ..Default::default()
        };
        tell(&self.watcher, 3, NV_ESC_RM_MAP_MEMORY_DMA, &args);
    }

    fn channel(&self, object: u32, ring: u64, userd: u64) {
        let mut parameters =
            NV_CHANNEL_ALLOC_PARAMS { gpFifoOffset: ring, gpFifoEntries: ENTRIES, ..Default::default() };
        (parameters.hUserdMemory[0], parameters.userdOffset[0]) = (USERD, userd);
        let args = NVOS64_PARAMETERS {
            hRoot: CLIENT,
            hObjectNew: object,
            hClass: 0xc86f,
            pAllocParms: (&raw const parameters).expose_provenance() as u64,
            ..Default::default()
        };
        tell(&self.watcher, 3, NV_ESC_RM_ALLOC, &args);
    }
}

#[test]
fn channels_of_the_desktop_driver_are_read_through_its_memory_objects() {
    let desktop = Desktop::new();
    desktop.map_cpu(RING, &desktop.ring, 0);
    desktop.map_cpu(USERD, &desktop.userd, 0);
    // The GPU reaches the pushbuffer by another handle of the memory.
    let copied = NVOS55_PARAMETERS {
        hClient: CLIENT,
        hObject: COPY,
        hClientSrc: CLIENT,
        hObjectSrc: COMMANDS,
        ..Default::default()
    };
    tell(&desktop.watcher, 3, NV_ESC_RM_DUP_OBJECT, &copied);
    desktop.map_cpu(COMMANDS, &desktop.commands, 0);
    desktop.map_gpu(RING, Desktop::RING_VA);
    desktop.map_gpu(COPY, Desktop::COMMANDS_VA);
    desktop.channel(0x20, Desktop::RING_VA, 0x200);
    desktop.channel(0x21, Desktop::RING_VA + 0x1000, 0x400);

    // A QMD that is uploaded inline, and launched by a later segment.
    let image = Launch::new(Target::Sm90).program(0x1000, 0).registers(16).build().unwrap();
    let qmd = 0x4_0000_0100u64;
    let size = image.as_bytes().len() as u32;
    let mut upload = vec![0x2001_2000, 0xcbc0, 0x2004_2060, size, 1, (qmd >> 32) as u32, qmd as u32];
    upload.extend([0x2001_206c, 0x41, 3 << 29 | (size / 4) << 16 | 0x206d]);
    upload.extend(words(image.as_bytes()));
    assert!(upload.len() > 64, "longer than what is read");
    let (head, tail) = upload.split_at(60);
    desktop.commands.store(0, head);
    desktop.commands.store(0x400, &[tail, &launch(qmd)].concat());
    publish(&desktop.ring, (&desktop.userd, 0x200), 0, entry(Desktop::COMMANDS_VA, head.len() as u64));
    let rest = tail.len() as u64 + 4;
    publish(&desktop.ring, (&desktop.userd, 0x200), 1, entry(Desktop::COMMANDS_VA + 0x400, rest.min(64)));
    let left = rest.saturating_sub(64);
    if left > 0 {
        publish(&desktop.ring, (&desktop.userd, 0x200), 2, entry(Desktop::COMMANDS_VA + 0x500, left));
    }
    desktop.ring.store(0x1000, &[0, 0]);
    desktop.userd.store(0x400 + 0x8c, &[1]);
    desktop.watcher.poll();
    let mut records = taken(&desktop.found);
    records.sort_by_key(|record| record.channel.number);
    let [record, other] = records.as_slice() else { panic!("{records:?}") };
    assert_eq!((record.channel.class, record.channel.handle, other.channel.handle), (0xc86f, 0x20, 0x21));
    assert!(record.entries.iter().all(|e| matches!(e.content, Content::Bytes(_))), "{record:?}");
    let launches: Vec<_> =
        record.launches.iter().map(|l| (l.address, l.uploaded, l.content.clone())).collect();
    assert_eq!(launches, [(qmd, true, Content::Bytes(image.as_bytes().to_vec()))]);
    assert_eq!((other.entries.len(), &other.entries[0].content), (1, &Content::None));

    // The client ends, and its channels with it.
    let free = NVOS00_PARAMETERS { hRoot: CLIENT, hObjectOld: CLIENT, ..Default::default() };
    tell(&desktop.watcher, 3, NV_ESC_RM_FREE, &free);
    assert!(!desktop.watcher.has_channels());
}

#[test]
fn without_a_known_mapping_the_equal_address_of_the_cpu_is_read() {
    let desktop = Desktop::new();
    desktop.map_cpu(RING, &desktop.ring, 0);
    desktop.map_cpu(USERD, &desktop.userd, 0);
    desktop.map_cpu(COMMANDS, &desktop.commands, 0);
    let va = desktop.commands.address() as u64;
    desktop.channel(0x20, desktop.ring.address() as u64, 0);
    desktop.commands.store(0, &[0, 0]);
    // Entries have 40 bits; those above come with a control entry.
    publish(&desktop.ring, (&desktop.userd, 0), 0, 4 << 32 | va >> 40 << 8);
    publish(&desktop.ring, (&desktop.userd, 0), 1, entry(va & 0xff_ffff_ffff, 2));
    desktop.watcher.poll();
    let contents: Vec<_> =
        taken(&desktop.found).into_iter().flat_map(|r| r.entries).map(|e| e.content).collect();
    assert_eq!(contents, [Content::None, Content::Bytes(vec![0; 8])]);
}

#[test]
fn a_lap_is_told_and_what_is_past_the_limit_is_counted() {
    let desktop = Desktop::new();
    desktop.map_cpu(RING, &desktop.ring, 0);
    desktop.map_cpu(USERD, &desktop.userd, 0);
    desktop.map_gpu(RING, Desktop::RING_VA);
    desktop.channel(0x20, Desktop::RING_VA, 0);
    let publish = |index| publish(&desktop.ring, (&desktop.userd, 0), index, entry(u64::from(index) << 8, 1));
    (0..3).for_each(publish);
    desktop.watcher.poll();
    // One ring and three entries later.
    (3..3 + ENTRIES + 3).for_each(publish);
    desktop.watcher.poll();
    let records = taken(&desktop.found);
    let seen: Vec<_> = records.iter().map(|r| (r.not_seen, r.entries.len(), r.entries[0].index)).collect();
    assert_eq!(seen, [(0, 3, 0), (u64::from(ENTRIES), 3, 3)]);
    // The limit is 40 entries of which 6 were read.
    for index in 22..100 {
        publish(index);
        desktop.watcher.poll();
    }
    let read: usize = taken(&desktop.found).iter().map(|r| r.entries.len()).sum();
    assert_eq!(read, 34);
}
