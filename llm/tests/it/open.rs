//! The device that `HCQ_DEVICE` names, else the software one.

use hcq::{Device, Selector};

pub fn device() -> Device {
    let selector = match std::env::var_os("HCQ_DEVICE") {
        Some(_) => Selector::from_env().unwrap(),
        None => Selector::Sim,
    };
    Device::open(selector).unwrap()
}
