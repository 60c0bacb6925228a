//! Channels: a group of its own for each, with ring, USERD, error notifier and engine objects.

use std::ptr::NonNull;
use std::sync::Arc;

use rm_sys::{
    Bits, FERMI_CONTEXT_SHARE_A, KEPLER_CHANNEL_GROUP_A, NV_CHANNEL_ALLOC_PARAMS,
    NV_CHANNEL_ALLOC_PARAMS_R610, NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS,
    NV_CTXSHARE_ALLOCATION_FLAGS_SUBCONTEXT_ASYNC, NV_CTXSHARE_ALLOCATION_PARAMETERS,
    NV_ERR_INSUFFICIENT_PERMISSIONS, NV_ERR_INVALID_ARGUMENT, NV_ERR_INVALID_FLAGS, NV_ERR_NOT_SUPPORTED,
    NV2080_ENGINE_TYPE_GR0, NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS, NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS_R535,
    NVB0B5_ALLOCATION_PARAMETERS, NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS,
    NVOS04_FLAGS_CHANNEL_DENY_AUTH_LEVEL_PRIV, NVOS04_FLAGS_CHANNEL_DENY_PHYSICAL_MODE_CE, Release,
};

use super::client::Object;
use super::fault::{Debugger, Notifier};
use super::memory::{Allocation, GRANULE, Placement};
use super::space::Space;
use crate::backend::Engine;
use crate::error::{DriverError, Error, QueueError};
use crate::info::Classes;

/// Bytes of video memory for ring and USERD.
pub(super) const MEMORY: u64 = GRANULE;
/// Bytes of USERD.
const USERD: u64 = 512;

/// The parameters of a channel to create.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// The engine.
    pub engine: Engine,
    /// Ring entries.
    pub entries: u32,
    /// GPU address of its ring.
    pub va: u64,
    /// Engine type of a copy engine with a runlist of its own.
    pub copy_engine: Option<u32>,
}

/// The objects that make the GPU run a channel. Dropped in this order, children first.
#[derive(Debug)]
struct Objects {
    debugger: Option<Debugger>,
    _engines: Vec<Object>,
    channel: Object,
    _share: Option<Object>,
    _group: Object,
}

/// A channel that is scheduled.
#[derive(Debug)]
pub(super) struct Channel {
    /// `None` after the channel was taken off the GPU.
    objects: Option<Objects>,
    notifier: Notifier,
    /// Ring at 0, USERD after it.
    memory: Allocation,
    userd: u64,
    token: u32,
}

const fn flag(bits: Bits) -> u32 {
    match bits.put(1) {
        Some(word) => word,
        None => panic!("a flag has one bit"),
    }
}

/// Copies to physical addresses and privileged methods are refused, whoever runs this process.
const DENY_PRIVILEGED: u32 =
    flag(NVOS04_FLAGS_CHANNEL_DENY_PHYSICAL_MODE_CE) | flag(NVOS04_FLAGS_CHANNEL_DENY_AUTH_LEVEL_PRIV);

impl Channel {
    /// Creates and schedules a channel.
    pub fn new(space: &Arc<Space>, classes: &Classes, wanted: Wanted) -> Result<Self, Error> {
        let userd = (8 * u64::from(wanted.entries)).next_multiple_of(4096);
        if userd + USERD > MEMORY {
            return Err(Error::Queue(QueueError::RingTooSmall {
                what: "a channel's ring",
                len: userd + USERD,
                capacity: MEMORY,
            }));
        }
        let mut memory = Allocation::new(space, Placement::Video, MEMORY)?;
        memory.map_cpu(space, Placement::Video, MEMORY, "a channel's ring")?;
        memory.map_gpu(space, Placement::Video, MEMORY, wanted.va)?;
        if let Some(mapping) = memory.cpu() {
            mapping.clear((userd + USERD) as usize);
        }
        let notifier = Notifier::new(space)?;
        let mut channel = Self { objects: None, notifier, memory, userd, token: 0 };
        let own = wanted.copy_engine.filter(|_| wanted.engine == Engine::Copy);
        let made = own.map(|engine| channel.on_copy_engine(space, classes, wanted, engine));
        let (objects, token) = match made {
            Some(Ok(made)) => made,
            Some(Err(error)) => {
                tracing::debug!(%error, engine = own, "no channel on this copy engine: copies go by the compute runlist");
                channel.on_graphics(space, classes, wanted)?
            }
            None => channel.on_graphics(space, classes, wanted)?,
        };
        channel.objects = Some(objects);
        channel.token = token;
        Ok(channel)
    }

    /// A channel on the graphics runlist: for its copy engine, and for compute where that is wanted.
    fn on_graphics(
        &self,
        space: &Arc<Space>,
        classes: &Classes,
        wanted: Wanted,
    ) -> Result<(Objects, u32), Error> {
        let client = space.client();
        let group = group(space, NV2080_ENGINE_TYPE_GR0)?;
        let mut parameters = NV_CTXSHARE_ALLOCATION_PARAMETERS {
            hVASpace: space.address_space().handle(),
            flags: NV_CTXSHARE_ALLOCATION_FLAGS_SUBCONTEXT_ASYNC,
            ..Default::default()
        };
        let share = client.create_with(group.handle(), FERMI_CONTEXT_SHARE_A, &mut parameters)?;
        // The engine follows from the group.
        let channel = self.channel(space, classes, wanted, &group, share.handle(), 0)?;
        let compute = match wanted.engine {
            Engine::Compute => Some(client.create(channel.handle(), classes.compute)?),
            Engine::Copy => None,
        };
        let copy = client.create(channel.handle(), classes.copy)?;
        let debugger = compute.as_ref().and_then(|compute| {
            let debugger = Debugger::new(space, compute, &channel);
            let unread = "SM exceptions will be reported without a program counter";
            debugger.inspect_err(|error| tracing::debug!(%error, "{unread}")).ok()
        });
        let token = start(&group, &channel, client.release())?;
        let engines = [copy].into_iter().chain(compute).collect();
        Ok((Objects { debugger, _engines: engines, channel, _share: Some(share), _group: group }, token))
    }

    /// A channel on a copy engine with a runlist of its own.
    fn on_copy_engine(
        &self,
        space: &Arc<Space>,
        classes: &Classes,
        wanted: Wanted,
        engine: u32,
    ) -> Result<(Objects, u32), Error> {
        let group = group(space, engine)?;
        let channel = self.channel(space, classes, wanted, &group, 0, engine)?;
        let mut parameters = NVB0B5_ALLOCATION_PARAMETERS { version: 1, engineType: engine };
        let copy = space.client().create_with(channel.handle(), classes.copy, &mut parameters)?;
        let token = start(&group, &channel, space.client().release())?;
        Ok((Objects { debugger: None, _engines: vec![copy], channel, _share: None, _group: group }, token))
    }

    /// Creates the channel object; without the flags that deny privileged work where the driver refuses
    /// those.
    fn channel(
        &self,
        space: &Arc<Space>,
        classes: &Classes,
        wanted: Wanted,
        group: &Object,
        share: u32,
        engine: u32,
    ) -> Result<Object, Error> {
        let client = space.client();
        let mut userd_memory = [0; 8];
        let mut userd_offset = [0; 8];
        (userd_memory[0], userd_offset[0]) = (self.memory.handle(), self.userd);
        macro_rules! create {
            ($layout:ident, $flags:ident) => {{
                let mut parameters = $layout {
                    hObjectError: self.notifier.handle(),
                    gpFifoOffset: wanted.va,
                    gpFifoEntries: wanted.entries,
                    flags: $flags,
                    hContextShare: share,
                    hUserdMemory: userd_memory,
                    userdOffset: userd_offset,
                    engineType: engine,
                    ..Default::default()
                };
                client.create_with(group.handle(), classes.channel, &mut parameters)
            }};
        }
        let create = |flags| match client.release() >= Release::R610 {
            true => create!(NV_CHANNEL_ALLOC_PARAMS_R610, flags),
            false => create!(NV_CHANNEL_ALLOC_PARAMS, flags),
        };
        match create(DENY_PRIVILEGED) {
            Err(Error::Driver(DriverError::Status {
                status:
                    NV_ERR_INVALID_ARGUMENT
                    | NV_ERR_INVALID_FLAGS
                    | NV_ERR_NOT_SUPPORTED
                    | NV_ERR_INSUFFICIENT_PERMISSIONS,
                ..
            })) => {
                tracing::debug!("the driver refuses a channel that denies itself privileges");
                create(0)
            }
            other => other,
        }
    }

    /// The ring's first entry.
    pub fn ring(&self) -> Option<NonNull<u64>> {
        self.memory.pointer().map(NonNull::cast)
    }

    /// USERD's first byte.
    pub fn userd(&self) -> Option<NonNull<u8>> {
        // SAFETY: USERD lies inside the mapping, as `new` checked.
        self.memory.pointer().map(|base| unsafe { base.add(self.userd as usize) })
    }

    /// The word for the doorbell.
    pub fn token(&self) -> u32 {
        self.token
    }

    /// The error notifier, which the driver writes when it stops the channel.
    pub fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// The channel object, while it exists.
    pub fn object(&self) -> Option<&Object> {
        self.objects.as_ref().map(|o| &o.channel)
    }

    /// The debugger of a compute channel.
    pub fn debugger(&self) -> Option<&Debugger> {
        self.objects.as_ref().and_then(|o| o.debugger.as_ref())
    }

    /// Takes the channel off the GPU. Its ring stays mapped until it is dropped.
    pub fn stop(&mut self) {
        self.objects = None;
    }
}

fn group(space: &Arc<Space>, engine: u32) -> Result<Object, Error> {
    let mut parameters = NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS {
        hVASpace: space.address_space().handle(),
        engineType: engine,
        ..Default::default()
    };
    space.client().create_with(space.device(), KEPLER_CHANNEL_GROUP_A, &mut parameters)
}

/// Makes the group's channel runnable, and asks for its token.
fn start(group: &Object, channel: &Object, release: Release) -> Result<u32, Error> {
    let mut token = NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS::default();
    // SAFETY: the struct holds no addresses.
    unsafe { channel.control(&mut token) }?;
    macro_rules! schedule {
        ($layout:ident) => {{
            let mut schedule = $layout { bEnable: 1, ..Default::default() };
            // SAFETY: the struct holds no addresses.
            unsafe { group.control(&mut schedule) }?;
        }};
    }
    if release >= Release::R580 {
        schedule!(NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS);
    } else {
        schedule!(NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS_R535);
    }
    Ok(token.workSubmitToken)
}
