//! Handles: numbers in the guise of pointers, which stand for objects of the library and are never dereferenced.
//!
//! From the top: 8 bits that no address has there, 4 bits for the kind, 24 bits for the generation of a slot, 28 bits
//! for the slot. A slot counts its generation up with each object that leaves it, so a handle that was freed
//! stands for nothing ever after; one whose generations are used up is not filled again.

use std::any::Any;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError, RwLock};

use crate::forks::{Locked, enroll};
use crate::status::hcq_status;

/// Bits 63:56 of a handle. x86-64 and AArch64 have no such addresses of programs.
const MARK: u64 = 0xc5;
const GENERATION_BITS: u32 = 24;
const SLOT_BITS: u32 = 28;

/// The kind of object that a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Device = 1,
    Buffer,
    Program,
    Kernel,
    Args,
    Queue,
    Point,
    Timestamp,
    Builder,
    Graph,
}

impl Kind {
    const ALL: [(Self, &str); 10] = [
        (Self::Device, "device"),
        (Self::Buffer, "buffer"),
        (Self::Program, "program"),
        (Self::Kernel, "kernel"),
        (Self::Args, "list of arguments"),
        (Self::Queue, "queue"),
        (Self::Point, "point"),
        (Self::Timestamp, "timestamp"),
        (Self::Builder, "graph builder"),
        (Self::Graph, "graph"),
    ];

    /// Its name in errors.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize - 1].1
    }
}

/// Why a handle stands for nothing that the call can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Null { wanted: Kind },
    Freed { wanted: Kind },
    Kind { wanted: Kind, given: Kind },
    NoHandle { wanted: Kind, given: u64 },
    Full,
}

impl Refused {
    pub fn status(self) -> hcq_status {
        match self {
            Self::Null { .. } => hcq_status::HCQ_ERROR_HANDLE_NULL,
            Self::Freed { .. } => hcq_status::HCQ_ERROR_HANDLE_FREED,
            Self::Kind { .. } => hcq_status::HCQ_ERROR_HANDLE_KIND,
            Self::NoHandle { .. } => hcq_status::HCQ_ERROR_HANDLE_UNKNOWN,
            Self::Full => hcq_status::HCQ_ERROR_HANDLES_USED_UP,
        }
    }

    pub fn text(self) -> String {
        match self {
            Self::Null { wanted } => format!("the {} is NULL", wanted.name()),
            Self::Freed { wanted } => format!("the {} was freed before", wanted.name()),
            Self::Kind { wanted, given } => {
                format!("the handle stands for a {}, a {} is wanted", given.name(), wanted.name())
            }
            Self::NoHandle { wanted, given } => {
                format!("{given:#x} is no handle, a {} is wanted", wanted.name())
            }
            Self::Full => "too many handles are in use".to_owned(),
        }
    }
}

#[derive(Debug)]
struct Slot<T> {
    generation: u64,
    object: Option<Arc<T>>,
}

#[derive(Debug)]
struct Slots<T> {
    all: Vec<Slot<T>>,
    free: Vec<usize>,
}

/// The objects of one kind that have handles.
#[derive(Debug)]
pub(crate) struct Registry<T> {
    kind: Kind,
    /// Most slots, and most generations of each.
    limits: (usize, u64),
    slots: RwLock<Slots<T>>,
    enrolled: AtomicBool,
}

impl<T: Send + Sync + 'static> Locked for Registry<T> {
    fn hold(&'static self) -> Box<dyn Any> {
        Box::new(self.slots.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T: Send + Sync + 'static> Registry<T> {
    /// Makes forks wait for its lock.
    pub fn guard_forks(&'static self) {
        enroll(self, &self.enrolled);
    }
}

impl<T> Registry<T> {
    pub const fn new(kind: Kind) -> Self {
        Self::with_limits(kind, 1 << SLOT_BITS, 1 << GENERATION_BITS)
    }

    const fn with_limits(kind: Kind, slots: usize, generations: u64) -> Self {
        let none = RwLock::new(Slots { all: Vec::new(), free: Vec::new() });
        Self { kind, limits: (slots, generations), slots: none, enrolled: AtomicBool::new(false) }
    }

    /// Gives an object a handle.
    pub fn put(&self, object: T) -> Result<u64, Refused> {
        let object = Some(Arc::new(object));
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let at = match slots.free.pop() {
            Some(at) => at,
            None if slots.all.len() < self.limits.0 => {
                slots.all.push(Slot { generation: 0, object: None });
                slots.all.len() - 1
            }
            None => return Err(Refused::Full),
        };
        let slot = &mut slots.all[at];
        slot.object = object;
        let low = slot.generation << SLOT_BITS | at as u64;
        Ok(MARK << 56 | (self.kind as u64) << (GENERATION_BITS + SLOT_BITS) | low)
    }

    /// The slot and the generation that a handle names.
    fn parts(&self, handle: u64) -> Result<(usize, u64), Refused> {
        let wanted = self.kind;
        if handle == 0 {
            return Err(Refused::Null { wanted });
        }
        let number = handle >> (GENERATION_BITS + SLOT_BITS) & 0xf;
        let kind = Kind::ALL.iter().map(|(kind, _)| *kind).find(|kind| *kind as u64 == number);
        match kind {
            _ if handle >> 56 != MARK => Err(Refused::NoHandle { wanted, given: handle }),
            None => Err(Refused::NoHandle { wanted, given: handle }),
            Some(given) if given != wanted => Err(Refused::Kind { wanted, given }),
            Some(_) => {
                let generation = handle >> SLOT_BITS & ((1 << GENERATION_BITS) - 1);
                Ok(((handle & ((1 << SLOT_BITS) - 1)) as usize, generation))
            }
        }
    }

    /// The object that a handle stands for. It lives while the answer does, whoever frees the handle meanwhile.
    pub fn get(&self, handle: u64) -> Result<Arc<T>, Refused> {
        let (at, generation) = self.parts(handle)?;
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.all.get(at).ok_or(Refused::NoHandle { wanted: self.kind, given: handle })?;
        let object = slot.object.as_ref().filter(|_| slot.generation == generation);
        object.cloned().ok_or(Refused::Freed { wanted: self.kind })
    }

    /// Takes the handle from its object.
    pub fn take(&self, handle: u64) -> Result<Arc<T>, Refused> {
        let (at, generation) = self.parts(handle)?;
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.all.get_mut(at).ok_or(Refused::NoHandle { wanted: self.kind, given: handle })?;
        if slot.generation != generation {
            return Err(Refused::Freed { wanted: self.kind });
        }
        let object = slot.object.take().ok_or(Refused::Freed { wanted: self.kind })?;
        slot.generation += 1;
        if slot.generation < self.limits.1 {
            slots.free.push(at);
        }
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_stands_for_its_object_until_it_is_freed() {
        let registry = Registry::<u32>::new(Kind::Buffer);
        let [a, b] = [1, 2].map(|n| registry.put(n).unwrap());
        assert_eq!((*registry.get(a).unwrap(), *registry.get(b).unwrap()), (1, 2));
        let held = registry.get(a).unwrap();
        assert_eq!(*registry.take(a).unwrap(), 1);
        let freed = Refused::Freed { wanted: Kind::Buffer };
        assert_eq!((registry.get(a).unwrap_err(), registry.take(a).unwrap_err()), (freed, freed));
        assert_eq!(*held, 1, "who has it keeps it");
        let c = registry.put(3).unwrap();
        assert_ne!(a, c, "the slot is the same, the generation is not");
        assert_eq!(registry.get(a).unwrap_err(), freed);
        assert_eq!(*registry.get(c).unwrap(), 3);
    }

    #[test]
    fn what_is_no_handle_of_the_kind_is_refused_by_name() {
        let buffers = Registry::<u32>::new(Kind::Buffer);
        let queue = Registry::<u32>::new(Kind::Queue).put(1).unwrap();
        let buffer = buffers.put(2).unwrap();
        let said = |handle| buffers.get(handle).unwrap_err().text();
        assert_eq!(said(0), "the buffer is NULL");
        assert_eq!(said(queue), "the handle stands for a queue, a buffer is wanted");
        assert_eq!(said(0x7fff_0000_1000), "0x7fff00001000 is no handle, a buffer is wanted");
        // A slot that never was, a kind that is none.
        assert!(matches!(buffers.get(buffer + 1), Err(Refused::NoHandle { .. })));
        assert!(matches!(buffers.take(buffer + 1), Err(Refused::NoHandle { .. })));
        assert!(matches!(buffers.get(buffer | 0xf << 52), Err(Refused::NoHandle { .. })));
        for (kind, name) in Kind::ALL {
            assert_eq!(kind.name(), name);
        }
    }

    #[test]
    fn slots_and_generations_that_are_used_up_are_not_used_again() {
        let registry = Registry::<u32>::with_limits(Kind::Point, 2, 2);
        let mut seen = Vec::new();
        for _ in 0..4 {
            let handle = registry.put(0).unwrap();
            assert!(!seen.contains(&handle));
            registry.take(handle).unwrap();
            seen.push(handle);
        }
        assert_eq!(registry.put(0), Err(Refused::Full));
    }
}
