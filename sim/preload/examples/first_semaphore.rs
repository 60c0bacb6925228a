//! Brings up a channel through the C library and has the GPU release one semaphore.
//!
//! It knows nothing of the software device: run it on a Jetson as it is, or anywhere with
//! `LD_PRELOAD=target/debug/libnvgpu_sim.so cargo run --example first_semaphore`.

mod channel;

use channel::{Channel, release};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let channel = Channel::new(|_, _| ())?;
    channel.submit(&release(channel.va + 0x800, 7));
    println!("token {} semaphore {} time {}", channel.token, 7, channel.wait(0x800, 7)?);
    Ok(())
}
