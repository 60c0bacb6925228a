//! The channels of a process, and the memory that they reach.

use nv_hw::class::AMPERE_CHANNEL_GPFIFO_B;
use std::collections::HashMap;

use rm_sys::Release;

use crate::limits::Limits;
use crate::maps::{Buffer, Maps};
use crate::reader::{Memory, Reader};
use crate::record::{Channel, Record};
use crate::requests::{self, Change};
use crate::ring::Ring;

/// Bytes of USERD at which the program publishes how far it has written (`clc76f.h`).
const GP_PUT: u64 = 0x8c;
/// Most entries of a ring, as the hardware has it.
const MOST_ENTRIES: u32 = 1 << 26;
/// The address space of the desktop driver: UVM has one for a process.
const DESKTOP: u64 = u64::MAX;

/// Memory of a channel's ring and its USERD.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// nvgpu: in dma-bufs.
    Buffers { ring: (Buffer, u64), userd: (Buffer, u64) },
    /// Desktop: at a GPU address, and in memory.
    Address { ring: u64, userd: (Buffer, u64) },
    /// nvgpu: entries are handed to the driver.
    Driver,
}

/// A channel.
#[derive(Debug)]
struct Followed {
    reader: Reader,
    ring: Ring,
    place: Place,
    space: u64,
}

/// A channel's name in the calls of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// nvgpu: the open file behind its descriptors.
    File(u64),
    /// Desktop: client and object.
    Object(u32, u32),
}

/// Everything that is known of a process.
#[derive(Debug)]
pub(crate) struct Process {
    limits: Limits,
    release: Option<Release>,
    maps: Maps,
    /// Buffer and offset that the next mapping of a descriptor shows.
    awaited: HashMap<i32, (Buffer, u64)>,
    /// Open files by descriptors, of which several may name one.
    files: HashMap<i32, u64>,
    /// Open files that were numbered, from 1.
    opened: u64,
    /// Address spaces of nvgpu channels: open files by open files.
    spaces: HashMap<u64, u64>,
    channels: HashMap<Key, Followed>,
    count: u32,
}

/// The memory of an address space.
struct Space<'a> {
    maps: &'a Maps,
    space: u64,
}

impl Memory for Space<'_> {
    fn read(&self, address: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let (cpu, more) = at(self.maps, self.space, address.checked_add(bytes.len() as u64)?)?;
            let part = (len - bytes.len()).min(usize::try_from(more).unwrap_or(usize::MAX));
            bytes.extend(words(cpu, part)?);
        }
        Some(bytes)
    }
}

/// Returns the CPU mapping of a GPU address.
fn at(maps: &Maps, space: u64, address: u64) -> Option<(u64, u64)> {
    let equal = || (space == DESKTOP).then(|| maps.at_equal(space, address))?;
    maps.at(space, address).or_else(equal)
}

/// Reads whole words of a mapping.
fn words(address: u64, len: usize) -> Option<Vec<u8>> {
    if !address.is_multiple_of(4) || !len.is_multiple_of(4) {
        return None;
    }
    let at = std::ptr::with_exposed_provenance::<u32>(usize::try_from(address).ok()?);
    // SAFETY: the range is inside a mapping that `Maps` holds: the program made it, and takes it away only
    // through `Watcher::unmap`, which waits for the lock that the caller holds. Others may write there, so
    // the reads are volatile; a word is aligned.
    let word = |i| unsafe { at.add(i).read_volatile() };
    Some((0..len / 4).flat_map(|i| word(i).to_le_bytes()).collect())
}

impl Process {
    pub fn new(limits: Limits, release: Option<Release>) -> Self {
        Self {
            limits,
            release,
            maps: Maps::default(),
            awaited: HashMap::new(),
            files: HashMap::new(),
            opened: 0,
            spaces: HashMap::new(),
            channels: HashMap::new(),
            count: 0,
        }
    }

    /// The open file of a descriptor; the address space of that number, where the descriptor is one of nvgpu.
    fn file_of(&mut self, fd: i32) -> u64 {
        *self.files.entry(fd).or_insert_with(|| {
            self.opened += 1;
            self.opened
        })
    }

    /// Whether there is a channel to poll.
    pub fn has_channels(&self) -> bool {
        !self.channels.is_empty()
    }

    /// A request succeeded.
    pub fn request(
        &mut self,
        fd: i32,
        request: u32,
        argument: &[u8],
        read: &dyn Fn(u64, usize) -> Option<Vec<u8>>,
        sink: &mut dyn FnMut(&Record),
    ) {
        let Some(change) = requests::change(request, argument, self.release, read) else { return };
        match change {
            Change::Map { fd: buffer, address, len, offset } => {
                let Some((buffer, size)) = file(buffer) else { return };
                let len = if len == 0 { size.saturating_sub(offset) } else { len };
                let space = self.file_of(fd);
                self.maps.map_gpu(space, address, len, buffer, offset);
            }
            Change::Unmap { address } => {
                let space = self.file_of(fd);
                self.maps.unmap_gpu(space, address, None);
            }
            Change::Bind { channel } => {
                let (channel, space) = (self.file_of(channel), self.file_of(fd));
                self.spaces.insert(channel, space);
            }
            Change::Ring { class, token, entries, ring, userd } => {
                let (Some((ring_buffer, _)), Some((userd_buffer, _))) = (file(ring.0), file(userd.0)) else {
                    return;
                };
                let place = Place::Buffers { ring: (ring_buffer, ring.1), userd: (userd_buffer, userd.1) };
                let channel = self.file_of(fd);
                let space = self.spaces.get(&channel).copied().unwrap_or(0);
                self.add(Key::File(channel), class, token, entries, place, space);
            }
            Change::Entries { address, count } => self.handed(fd, address, count, read, sink),
            Change::CpuMap { fd, client, memory, offset } => {
                self.awaited.insert(fd, (Buffer::Object(client, memory), offset));
            }
            Change::Registered { client, memory, address, len } => {
                self.maps.map_cpu(address, len, Buffer::Object(client, memory), 0);
            }
            Change::GpuMap { client, memory, address, len, offset } => {
                self.maps.map_gpu(DESKTOP, address, len, Buffer::Object(client, memory), offset);
            }
            Change::GpuUnmap { address, len } => self.maps.unmap_gpu(DESKTOP, address, len),
            Change::Duplicate { client, object, of } => {
                self.maps.alias(Buffer::Object(client, object), Buffer::Object(of.0, of.1));
            }
            Change::Channel { client, object, class, ring, entries, userd } => {
                // Without memory of its own, USERD is in the channel object: a mapping of the channel shows it.
                let memory = if userd.0 == 0 { object } else { userd.0 };
                let place = Place::Address { ring, userd: (Buffer::Object(client, memory), userd.1) };
                self.add(Key::Object(client, object), class, object, entries, place, DESKTOP);
            }
            Change::Free { client, object } => {
                self.channels.remove(&Key::Object(client, object));
                self.maps.forget(Buffer::Object(client, object));
                if client == object {
                    self.channels.retain(|key, _| !matches!(key, Key::Object(of, _) if *of == client));
                }
            }
        }
    }

    fn add(&mut self, key: Key, class: u32, handle: u32, entries: u32, place: Place, space: u64) {
        if entries > MOST_ENTRIES {
            return;
        }
        self.count += 1;
        let channel = Channel { number: self.count, class, handle, ring_entries: entries };
        let reader = Reader::new(channel, self.limits);
        self.channels.insert(key, Followed { reader, ring: Ring::new(entries), place, space });
    }

    /// Entries that the program hands to nvgpu.
    fn handed(
        &mut self,
        fd: i32,
        address: u64,
        count: u32,
        read: &dyn Fn(u64, usize) -> Option<Vec<u8>>,
        sink: &mut dyn FnMut(&Record),
    ) {
        let channel = self.file_of(fd);
        let key = Key::File(channel);
        if !self.channels.contains_key(&key) {
            let space = self.spaces.get(&channel).copied().unwrap_or(0);
            self.add(key, AMPERE_CHANNEL_GPFIFO_B, fd.cast_unsigned(), 0, Place::Driver, space);
        }
        let Some(bytes) = read(address, (count.min(MOST_ENTRIES) as usize) * 8) else { return };
        let words: Vec<u64> =
            bytes.chunks_exact(8).filter_map(|c| c.first_chunk()).map(|c| u64::from_le_bytes(*c)).collect();
        let Some(channel) = self.channels.get_mut(&key) else { return };
        let memory = Space { maps: &self.maps, space: channel.space };
        channel.reader.entries(0, &words, 0, &memory, sink);
    }

    /// A descriptor is mapped.
    pub fn mapped(&mut self, fd: i32, address: u64, len: u64, offset: u64) {
        self.maps.unmap_cpu(address, len);
        let (buffer, offset) = match self.awaited.remove(&fd) {
            Some(awaited) => awaited,
            None => match file(fd) {
                Some((buffer, _)) => (buffer, offset),
                None => return,
            },
        };
        self.maps.map_cpu(address, len, buffer, offset);
    }

    /// Whether a range holds memory of a GPU.
    pub fn is_mapped(&self, address: u64, len: u64) -> bool {
        self.maps.touches_cpu(address, len)
    }

    /// A range is unmapped.
    pub fn unmapped(&mut self, address: u64, len: u64) {
        self.maps.unmap_cpu(address, len);
    }

    /// Another descriptor of an open file.
    pub fn duplicated(&mut self, fd: i32, copy: i32) {
        let file = self.file_of(fd);
        self.files.insert(copy, file);
    }

    /// A descriptor is closed; its file ends with the last one.
    pub fn closed(&mut self, fd: i32) {
        self.awaited.remove(&fd);
        let Some(file) = self.files.remove(&fd) else { return };
        if self.files.values().any(|other| *other == file) {
            return;
        }
        self.channels.remove(&Key::File(file));
        self.spaces.remove(&file);
        self.maps.drop_space(file);
    }

    /// Whether a descriptor is one of a channel or of an address space.
    pub fn knows(&self, fd: i32) -> bool {
        self.files.get(&fd).is_some_and(|file| {
            self.channels.contains_key(&Key::File(*file)) || self.spaces.values().any(|space| space == file)
        })
    }

    /// Reads the new entries of all rings.
    pub fn poll(&mut self, sink: &mut dyn FnMut(&Record)) {
        for channel in self.channels.values_mut() {
            channel.poll(&self.maps, sink);
        }
    }
}

impl Followed {
    fn poll(&mut self, maps: &Maps, sink: &mut dyn FnMut(&Record)) {
        let userd = match self.place {
            Place::Buffers { userd, .. } | Place::Address { userd, .. } => userd,
            Place::Driver => return,
        };
        let word = |at: Option<(u64, u64)>| {
            let (address, _) = at.filter(|(_, len)| *len >= 4)?;
            Some(u32::from_le_bytes(*words(address, 4)?.first_chunk()?))
        };
        let Some(put) = word(maps.in_buffer(userd.0, userd.1 + GP_PUT)) else { return };
        let entry = |index: u32| {
            let half = |offset: u64| {
                let offset = u64::from(index) * 8 + offset;
                match self.place {
                    Place::Buffers { ring, .. } => word(maps.in_buffer(ring.0, ring.1 + offset)),
                    Place::Address { ring, .. } => word(at(maps, self.space, ring.checked_add(offset)?)),
                    Place::Driver => None,
                }
            };
            Some(u64::from(half(4)?) << 32 | u64::from(half(0)?))
        };
        let Some(news) = self.ring.advance(put, entry) else { return };
        let memory = Space { maps, space: self.space };
        self.reader.entries(news.first, &news.words, news.not_seen, &memory, sink);
    }
}

/// The file that a descriptor is open on, and its size, as the kernel says: the C library's `fstat` may be a
/// preloaded library's, which waits for a lock.
fn file(fd: i32) -> Option<(Buffer, u64)> {
    // SAFETY: a status is numbers alone.
    let mut status: libc::statx = unsafe { std::mem::zeroed() };
    let wanted = libc::STATX_INO | libc::STATX_SIZE;
    // SAFETY: the path is empty, and the kernel writes one status, which outlives the call.
    let answer = unsafe {
        libc::syscall(libc::SYS_statx, fd, c"".as_ptr(), libc::AT_EMPTY_PATH, wanted, &raw mut status)
    };
    let device = u64::from(status.stx_dev_major) << 32 | u64::from(status.stx_dev_minor);
    (answer == 0).then_some((Buffer::File(device, status.stx_ino), status.stx_size))
}
