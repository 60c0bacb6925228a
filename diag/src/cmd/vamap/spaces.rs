//! The address spaces of a process, and the channels that show what is mapped in them. The driver does not say
//! which channel uses which address space.

use std::collections::HashSet;
use std::os::fd::AsFd;

use anyhow::Context;
use nvdiag::address_map::{Mapping, Range};

use crate::cmd::process::{Descriptor, Process};
use crate::cmd::vamap::live::{self, Kind};

/// An address space.
#[derive(Debug)]
pub struct Space {
    /// The number that its first descriptor had.
    pub number: u32,
    /// The ranges that it gives addresses out from; none where its descriptor is closed.
    pub regions: Vec<Range>,
    /// Its mappings, by address, where a channel reports them.
    pub mappings: Option<Vec<Mapping>>,
}

/// The mappings that a channel reports, by address, and the number that its first descriptor had.
type Channel = (u32, Vec<Mapping>);

/// Reads the address spaces of a process, oldest first; none if it has no descriptor of any.
///
/// # Errors
/// Descriptors cannot be copied, or the driver does not answer.
pub fn read(process: &Process, descriptors: &[Descriptor]) -> anyhow::Result<Vec<Space>> {
    let (mut spaces, mut seen) = (Vec::new(), HashSet::new());
    let of_nvgpu = || descriptors.iter().filter_map(|d| Some((d, live::kind(&d.name)?)));
    for (descriptor, (kind, number)) in of_nvgpu() {
        // Copies of a descriptor have its name.
        if kind != Kind::AddressSpace || !seen.insert(&descriptor.name) {
            continue;
        }
        let fd = descriptor.number;
        let regions = on_copy(process, descriptor, &|copy| {
            let regions = live::regions(process.driver(), copy.as_fd(), &format!("user, descriptor {fd}"));
            regions.with_context(|| format!("cannot ask address space {fd} for its regions"))
        })?;
        spaces.extend(regions.map(|regions| Space { number, regions, mappings: None }));
    }
    spaces.sort_by_key(|space| space.number);
    let channels: Vec<_> = of_nvgpu().filter(|(_, (kind, _))| *kind == Kind::Channel).collect();
    let read = || channels.iter().map(|(d, (_, number))| channel(process, d, *number));
    let read = || read().filter_map(Result::transpose).collect::<anyhow::Result<Vec<Channel>>>();
    let mut answers = read()?;
    let distinct = |channels: &[Channel]| {
        let different =
            channels.iter().enumerate().filter(|(i, c)| channels[..*i].iter().all(|b| b.1 != c.1));
        different.count()
    };
    // The process may have mapped something between two answers.
    if distinct(&answers) > spaces.len() {
        answers = read()?;
    }
    answers.sort_by_key(|(number, _)| *number);
    assign(&mut spaces, answers);
    if spaces.is_empty() && !channels.is_empty() {
        spaces.push(Space { number: 0, regions: Vec::new(), mappings: None });
    }
    Ok(spaces)
}

/// Runs `ask` on a copy of a descriptor, which is closed at once: it would keep a channel of the process alive.
fn on_copy<T>(
    process: &Process,
    descriptor: &Descriptor,
    ask: &dyn Fn(&std::os::fd::OwnedFd) -> anyhow::Result<T>,
) -> anyhow::Result<Option<T>> {
    let Some(copy) = process.copy(descriptor)? else { return Ok(None) };
    let answer = ask(&copy);
    let closed = process.driver().close(copy);
    closed.with_context(|| format!("cannot close the copy of descriptor {}", descriptor.number))?;
    answer.map(Some)
}

fn channel(process: &Process, descriptor: &Descriptor, number: u32) -> anyhow::Result<Option<Channel>> {
    let fd = descriptor.number;
    let answer = on_copy(process, descriptor, &|copy| Ok(live::mappings(process.driver(), copy.as_fd())))?;
    let mut mappings = match answer {
        Some(Ok(Some(mappings))) => mappings,
        Some(Ok(None)) => {
            eprintln!("nvdiag: channel {fd} has no context yet: its mappings are not requested");
            return Ok(None);
        }
        Some(Err(error)) => {
            eprintln!("nvdiag: channel {fd} does not report its mappings: {error:#}");
            return Ok(None);
        }
        None => return Ok(None),
    };
    mappings.sort_by_key(|m| (m.va, m.size_bytes));
    mappings.dedup();
    Ok(Some((number, mappings)))
}

/// Gives each channel its address space: one that was opened before it, whose regions hold what it has mapped,
/// and which no channel with other mappings has. One that no channel has yet comes first, then the oldest. A
/// channel that none fits uses one whose descriptor is closed.
fn assign(spaces: &mut Vec<Space>, channels: Vec<Channel>) {
    for (number, mappings) in channels {
        let is_inside = |m: &Mapping, r: &Range| r.va <= m.va && m.va.0 - r.va.0 < r.size_bytes;
        let fits = |space: &&mut Space| match &space.mappings {
            Some(own) => *own == mappings,
            None => mappings.iter().all(|m| space.regions.iter().any(|r| is_inside(m, r))),
        };
        let order = |space: &&mut Space| (space.number > number, space.mappings.is_some(), space.number);
        match spaces.iter_mut().filter(fits).min_by_key(order) {
            Some(space) => space.mappings = Some(mappings),
            None => spaces.push(Space { number, regions: Vec::new(), mappings: Some(mappings) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvdiag::Hex;

    fn space(number: u32, start: u64) -> Space {
        Space { number, regions: vec![Range::new("user", start, 1 << 40)], mappings: None }
    }

    fn channel(number: u32, addresses: &[u64]) -> Channel {
        let mapping = |va: &u64| Mapping { va: Hex(*va), size_bytes: 4096, ..Mapping::default() };
        (number, addresses.iter().map(mapping).collect())
    }

    /// The addresses in each address space after `channels` are assigned.
    fn assigned(mut spaces: Vec<Space>, channels: Vec<Channel>) -> Vec<Option<Vec<u64>>> {
        assign(&mut spaces, channels);
        let addresses = |m: Vec<Mapping>| m.iter().map(|m| m.va.0).collect();
        spaces.into_iter().map(|space| space.mappings.map(addresses)).collect()
    }

    #[test]
    fn channels_with_other_mappings_are_of_other_address_spaces() {
        let (one, two) = (vec![0x1000, 0x9000], vec![0x2000]);
        let spaces = || vec![space(9, 0), space(20, 0)];
        let channels = vec![channel(11, &one), channel(12, &one), channel(22, &two)];
        assert_eq!(assigned(spaces(), channels), [Some(one.clone()), Some(two.clone())]);
        // Two equal devices, opened before their channels.
        let channels = vec![channel(31, &one), channel(32, &one)];
        assert_eq!(assigned(spaces(), channels), [Some(one.clone()), Some(one.clone())]);
        // Numbers that were given anew.
        let channels = vec![channel(2, &one), channel(3, &two)];
        assert_eq!(assigned(spaces(), channels), [Some(one.clone()), Some(two.clone())]);
    }

    #[test]
    fn a_channel_that_no_open_address_space_fits_has_one_of_its_own() {
        let (low, high) = (vec![0x1000], vec![0x2000]);
        let channels = || vec![channel(11, &low), channel(12, &high), channel(13, &high)];
        assert_eq!(assigned(vec![space(9, 0x2000)], channels()), [Some(high.clone()), Some(low.clone())]);
        assert_eq!(assigned(vec![space(9, 0)], channels()), [Some(low.clone()), Some(high.clone())]);
    }
}
