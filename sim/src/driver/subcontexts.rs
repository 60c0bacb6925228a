//! Subcontexts of a group: which are reserved, for which address space, and which have channels.
//! Source: `common/fifo/tsg.c`, `common/fifo/tsg_subctx.c`, r36.4.3.

use crate::driver::address_space::space::AddressSpace;
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// Subcontexts of a group.
pub(crate) const VEIDS: usize = 64;

/// An address space by its identity; the driver keeps a bare pointer.
pub(crate) type Space = Option<Weak<AddressSpace>>;

fn is_same(a: &Space, b: &Space) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => a.ptr_eq(b),
        _ => false,
    }
}

/// A subcontext that has channels.
#[derive(Clone, Debug)]
struct Used {
    /// The address space of its first channel.
    space: Space,
    channels: u32,
    /// `ALLOC_OBJ_CTX` got as far as its header.
    has_header: bool,
}

/// The subcontexts of a group.
#[derive(Debug)]
pub(crate) struct Subcontexts {
    /// VEID 0 is reserved.
    sync: bool,
    /// VEIDs from 1 on that are reserved, one bit each.
    asynchronous: u64,
    spaces: Vec<Space>,
    used: BTreeMap<u32, Used>,
    /// VEIDs in the group's instance blocks, one bit each.
    scheduled: u64,
}

impl Default for Subcontexts {
    fn default() -> Self {
        Self { sync: false, asynchronous: 0, spaces: vec![None; VEIDS], used: BTreeMap::new(), scheduled: 0 }
    }
}

impl Subcontexts {
    fn reserve_sync(&mut self) -> Result<u32, Errno> {
        if std::mem::replace(&mut self.sync, true) { Err(Errno::ENOSPC) } else { Ok(0) }
    }

    /// Reserves one and gives its number.
    ///
    /// # Errors
    /// `ENOSPC` when the request is for VEID 0, or only that is left, and it is taken.
    pub(crate) fn create(&mut self, asynchronous: bool, space: &Arc<AddressSpace>) -> Result<u32, Errno> {
        let free = (1..VEIDS as u32).find(|veid| self.asynchronous & 1 << veid == 0);
        let veid = match free.filter(|_| asynchronous) {
            Some(veid) => {
                self.asynchronous |= 1 << veid;
                veid
            }
            None => self.reserve_sync()?,
        };
        // A channel without an address space may have claimed VEID 0 for none.
        self.spaces[veid as usize].get_or_insert_with(|| Arc::downgrade(space));
        Ok(veid)
    }

    /// Gives one up; one that is not reserved is accepted.
    ///
    /// # Errors
    /// `EINVAL` for a number past the last, or while channels use it.
    pub(crate) fn delete(&mut self, veid: u32) -> Result<(), Errno> {
        if veid as usize >= VEIDS || self.used.contains_key(&veid) {
            return Err(Errno::EINVAL);
        }
        self.give_up(veid);
        Ok(())
    }

    fn give_up(&mut self, veid: u32) {
        let reserved = if veid == 0 { self.sync } else { self.asynchronous & 1 << veid != 0 };
        if !reserved {
            return;
        }
        if veid == 0 {
            self.sync = false;
        } else {
            self.asynchronous &= !(1 << veid);
        }
        self.spaces[veid as usize] = None;
    }

    /// Whether a channel of an address space may use subcontext `veid`; VEID 0 is reserved for it if it is free.
    ///
    /// # Errors
    /// `ENOSPC` when VEID 0 is reserved for no address space, `EINVAL` when it belongs to another.
    pub(crate) fn claim(&mut self, veid: u32, space: &Space) -> Result<(), Errno> {
        if veid == 0 && self.spaces[0].is_none() {
            self.reserve_sync()?;
            self.spaces[0].clone_from(space);
        }
        let owner = self.spaces.get(veid as usize).ok_or(Errno::EINVAL)?;
        if is_same(owner, space) { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// A channel of an address space uses it from now on.
    ///
    /// # Errors
    /// `EINVAL` when its channels are of another.
    pub(crate) fn enter(&mut self, veid: u32, space: &Space) -> Result<(), Errno> {
        let new = || Used { space: space.clone(), channels: 0, has_header: false };
        let used = self.used.entry(veid).or_insert_with(new);
        if !is_same(&used.space, space) {
            return Err(Errno::EINVAL);
        }
        used.channels += 1;
        Ok(())
    }

    /// A channel uses it no longer. With the last one it is free. When that channel is closed, and not taken
    /// out by a call, the driver deletes the subcontext of the channel's last bind request, `given_up`.
    /// Returns the address space in which the context is used no longer, if there is one.
    pub(crate) fn leave(&mut self, veid: u32, given_up: Option<u32>) -> Space {
        let used = self.used.get_mut(&veid)?;
        used.channels -= 1;
        if used.channels > 0 {
            return None;
        }
        let left = self.used.remove(&veid)?;
        self.scheduled &= !(1 << veid);
        if let Some(veid) = given_up {
            self.give_up(veid);
        }
        left.space.filter(|space| left.has_header && !self.maps(space))
    }

    /// `SETUP_BIND` writes subcontext `veid`, if it is not there, into the instance blocks of the group for a channel
    /// of subcontext `of`; false when the first channel there had no address space.
    pub(crate) fn schedule(&mut self, veid: u32, of: u32) -> bool {
        let new = self.scheduled & 1 << veid == 0;
        let has_space = self.used.get(&of).is_some_and(|used| used.space.is_some());
        if has_space {
            self.scheduled |= 1 << veid;
        }
        has_space || !new
    }

    /// `ALLOC_OBJ_CTX` makes the header of a subcontext; false when its first channel had no address space.
    pub(crate) fn add_header(&mut self, veid: u32) -> bool {
        let Some(used) = self.used.get_mut(&veid).filter(|used| used.space.is_some()) else { return false };
        used.has_header = true;
        true
    }

    /// Whether a context is mapped, or about to be, in an address space.
    pub(crate) fn maps(&self, space: &Weak<AddressSpace>) -> bool {
        let is_it = |used: &Used| used.has_header && used.space.as_ref().is_some_and(|s| s.ptr_eq(space));
        self.used.values().any(is_it)
    }
}
