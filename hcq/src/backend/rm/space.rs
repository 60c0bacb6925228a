//! A GPU with an address space: what memory and channels are made under.

use std::sync::Arc;

use rm_sys::{
    FERMI_VASPACE_A, NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS, NV_VASPACE_ALLOCATION_FLAGS_RETRY_PTE_ALLOC_IN_SYS,
    NV_VASPACE_ALLOCATION_PARAMETERS, NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS, NV01_DEVICE_0,
    NV01_MEMORY_VIRTUAL, NV20_SUBDEVICE_0, NV0080_ALLOC_PARAMETERS, NV2080_ALLOC_PARAMETERS,
};

use super::client::{Client, Handle, Object};
use crate::error::Error;

/// The objects every other one is made under. Freed in this order, children first.
#[derive(Debug)]
pub(super) struct Space {
    range: Object,
    address_space: Object,
    subdevice: Object,
    device: Object,
    sm_count: u32,
}

impl Space {
    /// Creates an address space of `device`, which has `sm_count` SMs.
    pub fn new(device: Object, subdevice: Object, sm_count: u32) -> Result<Self, Error> {
        let client = device.client().clone();
        let mut parameters = NV_VASPACE_ALLOCATION_PARAMETERS {
            flags: NV_VASPACE_ALLOCATION_FLAGS_RETRY_PTE_ALLOC_IN_SYS,
            ..Default::default()
        };
        let address_space = client.create_with(device.handle(), FERMI_VASPACE_A, &mut parameters)?;
        let mut all =
            NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS { hVASpace: address_space.handle(), ..Default::default() };
        let range = client.create_with(device.handle(), NV01_MEMORY_VIRTUAL, &mut all)?;
        Ok(Self { range, address_space, subdevice, device, sm_count })
    }

    /// The client all objects belong to.
    pub fn client(&self) -> &Arc<Client> {
        self.device.client()
    }

    /// The GPU.
    pub fn device(&self) -> Handle {
        self.device.handle()
    }

    /// The GPU again, for what concerns its engines and registers.
    pub fn subdevice(&self) -> &Object {
        &self.subdevice
    }

    /// The page tables.
    pub fn address_space(&self) -> &Object {
        &self.address_space
    }

    /// The object that names all addresses of the space.
    pub fn range(&self) -> Handle {
        self.range.handle()
    }

    /// Number of SMs.
    pub fn sm_count(&self) -> u32 {
        self.sm_count
    }
}

/// The device and subdevice objects of the GPU with this id.
pub(super) fn open_device(client: &Arc<Client>, gpu: u32) -> Result<(Object, Object), Error> {
    let mut id = NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS { gpuId: gpu, ..Default::default() };
    // SAFETY: the struct holds no addresses.
    unsafe { client.control(client.root(), &mut id) }?;
    let mut parameters = NV0080_ALLOC_PARAMETERS {
        deviceId: id.deviceInstance,
        // Without it the device would join the address space that all clients of the machine share.
        hClientShare: client.root(),
        ..Default::default()
    };
    let device = client.create_with(client.root(), NV01_DEVICE_0, &mut parameters)?;
    let mut parameters = NV2080_ALLOC_PARAMETERS { subDeviceId: 0 };
    let subdevice = client.create_with(device.handle(), NV20_SUBDEVICE_0, &mut parameters)?;
    Ok((device, subdevice))
}
