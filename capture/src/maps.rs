//! Mappings of GPU memory in the process: GPU addresses to buffers, buffers to CPU addresses.

use std::collections::{BTreeMap, HashMap};

/// A buffer, whatever its mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Buffer {
    /// A dma-buf, by its inode: device and number.
    File(u64, u64),
    /// Memory of the desktop driver: client and object.
    Object(u32, u32),
}

/// A range of a buffer that begins somewhere.
#[derive(Clone, Copy, Debug)]
struct Part {
    len: u64,
    buffer: Buffer,
    offset: u64,
}

impl Part {
    fn skip(self, bytes: u64) -> Self {
        Self { len: self.len - bytes, offset: self.offset + bytes, ..self }
    }
}

/// Ranges by their start, which do not overlap.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<u64, Part>);

impl Ranges {
    /// Takes a range out; ranges that reach over its ends are cut.
    fn remove(&mut self, start: u64, len: u64) {
        let end = start.saturating_add(len);
        let touched: Vec<(u64, Part)> = self
            .0
            .range(..end)
            .rev()
            .take_while(|(at, part)| *at + part.len > start)
            .map(|(at, part)| (*at, *part))
            .collect();
        for (at, part) in touched {
            self.0.remove(&at);
            if at < start {
                self.0.insert(at, Part { len: start - at, ..part });
            }
            if at + part.len > end {
                self.0.insert(end, part.skip(end - at));
            }
        }
    }

    fn insert(&mut self, start: u64, part: Part) {
        // Nothing maps the end of the address space.
        if part.len == 0
            || start.checked_add(part.len).is_none()
            || part.offset.checked_add(part.len).is_none()
        {
            return;
        }
        self.remove(start, part.len);
        self.0.insert(start, part);
    }

    /// The part from an address on.
    fn at(&self, address: u64) -> Option<Part> {
        let (start, part) = self.0.range(..=address).next_back()?;
        (address - start < part.len).then(|| part.skip(address - start))
    }
}

/// Everything that is known.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    /// By address space.
    gpu: HashMap<u64, Ranges>,
    cpu: Ranges,
    /// Handles that mean the same buffer as another one.
    aliases: HashMap<Buffer, Buffer>,
}

impl Maps {
    fn real(&self, buffer: Buffer) -> Buffer {
        *self.aliases.get(&buffer).unwrap_or(&buffer)
    }

    /// `alias` is another handle of `buffer`.
    pub fn alias(&mut self, alias: Buffer, buffer: Buffer) {
        let buffer = self.real(buffer);
        self.aliases.insert(alias, buffer);
    }

    /// A handle is free to mean another buffer.
    pub fn forget(&mut self, buffer: Buffer) {
        self.aliases.remove(&buffer);
    }

    /// The GPU reaches a buffer.
    pub fn map_gpu(&mut self, space: u64, address: u64, len: u64, buffer: Buffer, offset: u64) {
        let buffer = self.real(buffer);
        self.gpu.entry(space).or_default().insert(address, Part { len, buffer, offset });
    }

    /// It does no more. Without a length: all of the mapping that begins there.
    pub fn unmap_gpu(&mut self, space: u64, address: u64, len: Option<u64>) {
        let Some(ranges) = self.gpu.get_mut(&space) else { return };
        let len = len.or_else(|| ranges.at(address).map(|part| part.len));
        ranges.remove(address, len.unwrap_or(0));
    }

    /// An address space is gone.
    pub fn drop_space(&mut self, space: u64) {
        self.gpu.remove(&space);
    }

    /// The CPU reaches a buffer.
    pub fn map_cpu(&mut self, address: u64, len: u64, buffer: Buffer, offset: u64) {
        let buffer = self.real(buffer);
        self.cpu.insert(address, Part { len, buffer, offset });
    }

    /// It does no more.
    pub fn unmap_cpu(&mut self, address: u64, len: u64) {
        self.cpu.remove(address, len);
    }

    /// Whether the CPU reaches a buffer of a GPU in a range.
    pub fn touches_cpu(&self, address: u64, len: u64) -> bool {
        let end = address.saturating_add(len);
        self.cpu.0.range(..end).next_back().is_some_and(|(at, part)| *at + part.len > address)
    }

    /// The CPU address of a byte of a buffer, and how many bytes follow there.
    pub fn in_buffer(&self, buffer: Buffer, offset: u64) -> Option<(u64, u64)> {
        let buffer = self.real(buffer);
        self.cpu.0.iter().find_map(|(at, part)| {
            let into = offset.checked_sub(part.offset).filter(|into| *into < part.len)?;
            (part.buffer == buffer).then(|| (at + into, part.len - into))
        })
    }

    /// The CPU address that equals a GPU address of the desktop driver whose mapping is not known, where
    /// memory of that driver is mapped there: CUDA gives both the same address.
    pub fn at_equal(&self, space: u64, address: u64) -> Option<(u64, u64)> {
        if self.gpu.get(&space).is_some_and(|ranges| ranges.at(address).is_some()) {
            return None;
        }
        let part = self.cpu.at(address)?;
        matches!(part.buffer, Buffer::Object(..)).then_some((address, part.len))
    }

    /// The CPU address of a byte that the GPU reaches at `address`, and how many bytes follow there.
    pub fn at(&self, space: u64, address: u64) -> Option<(u64, u64)> {
        let part = self.gpu.get(&space)?.at(address)?;
        let (cpu, len) = self.in_buffer(part.buffer, part.offset)?;
        Some((cpu, len.min(part.len)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_address_leads_through_the_buffer_to_the_cpu() {
        let mut maps = Maps::default();
        let buffer = Buffer::Object(1, 2);
        maps.alias(Buffer::Object(1, 3), buffer);
        maps.map_gpu(0, 0x1000, 0x2000, Buffer::Object(1, 3), 0x8000);
        assert_eq!(maps.at(0, 0x1000), None);
        maps.map_cpu(0x7000_0000, 0x1000, buffer, 0x9000);
        assert_eq!(maps.at(0, 0x1fff), None);
        assert_eq!(maps.at(0, 0x2010), Some((0x7000_0010, 0xff0)));
        assert_eq!(maps.at(1, 0x2010), None);
        assert!(maps.touches_cpu(0x7000_0fff, 1) && !maps.touches_cpu(0x7000_1000, 1));
        maps.unmap_cpu(0x7000_0000, 0x800);
        assert_eq!((maps.at(0, 0x2010), maps.at(0, 0x2800)), (None, Some((0x7000_0800, 0x800))));
        maps.unmap_gpu(0, 0x1000, None);
        assert_eq!(maps.at(0, 0x2800), None);
    }

    proptest! {
        /// Ranges answer as one value per address would.
        #[test]
        fn ranges_are_what_was_put_last(
            steps in proptest::collection::vec((0u64..64, 0u64..32, 0u32..3), 1..30),
        ) {
            let (mut ranges, mut model) = (Ranges::default(), [None; 100]);
            for (number, (start, len, kind)) in steps.into_iter().enumerate() {
                let buffer = Buffer::Object(number as u32, 0);
                match kind {
                    0 => ranges.remove(start, len),
                    _ => ranges.insert(start, Part { len, buffer, offset: start }),
                }
                for at in start..start + len {
                    model[at as usize] = (kind > 0).then_some((buffer, at));
                }
            }
            for (at, expected) in model.iter().enumerate() {
                let found = ranges.at(at as u64).map(|part| (part.buffer, part.offset));
                prop_assert_eq!(found, *expected);
            }
        }
    }
}
