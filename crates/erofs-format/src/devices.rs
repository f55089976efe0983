//! The devices of an image and the addresses on them.
//!
//! An address either names a device, as in chunk indexes, or is in the unified address space. In
//! that space, each extra device starts at its `uniaddr`, and all other addresses belong to the
//! primary device. If only the primary device is passed, it must contain the others at their
//! unified addresses (a flat device in the kernel's terms).

use crate::meta::{Meta, until_nul};
use crate::raw::{RawDeviceSlot, incompat};
use crate::{Error, Holder, Result, Source, Superblock};

/// An extra device, as the device table describes it.
#[derive(Clone, Debug)]
pub struct DeviceSlot {
    /// The device's tag in the image: a digest, a name, or nothing.
    pub tag: Vec<u8>,
    /// Number of blocks.
    pub blocks: u64,
    /// First block in the unified address space; 0 if the device is not in it.
    pub unified_block: u64,
}

/// The devices of an image. Their sizes are queried only once.
#[derive(Debug)]
pub(crate) struct Devices {
    /// Size of each device in bytes, the primary one first.
    sizes: Vec<u64>,
    pub slots: Vec<DeviceSlot>,
    /// Whether the primary device contains all others.
    flat: bool,
    block_bits: u8,
}

/// A position on a device, and the number of bytes from there to the end of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub device: u16,
    pub physical: u64,
    pub available: u64,
}

/// Bytes in a slot of the table, which is also the unit of `devt_slotoff`.
const SLOT: u64 = size_of::<RawDeviceSlot>() as u64;

impl Devices {
    pub fn new(source: &dyn Source, superblock: &Superblock) -> Result<Devices> {
        let sizes = (0..=u16::MAX).map_while(|number| source.size(Holder::Device(number)));
        let mut all = Devices {
            sizes: sizes.collect(),
            slots: Vec::new(),
            flat: false,
            block_bits: superblock.block_bits,
        };
        if superblock.has(incompat::DEVICE_TABLE) {
            all.slots = read_table(&all.primary(source), superblock)?;
        }
        all.check_count()?;
        Ok(all)
    }

    pub fn primary<'a>(&self, source: &'a dyn Source) -> Meta<'a> {
        Meta {
            source,
            holder: Holder::Device(0),
            size: self.sizes[0],
        }
    }

    pub fn size(&self, index: u16) -> Option<u64> {
        self.sizes.get(usize::from(index)).copied()
    }

    /// Checks that there are as many extra devices as the table lists, or none if the primary
    /// device contains them.
    fn check_count(&mut self) -> Result<()> {
        let (given, needed) = (self.sizes.len() - 1, self.slots.len());
        if given > needed {
            return Err(Error::TooManyDevices { needed, given });
        }
        if given == 0 && needed > 0 && self.slots.iter().all(|slot| self.primary_holds(slot)) {
            self.flat = true;
            return Ok(());
        }
        if given == needed {
            return Ok(());
        }
        let missing = (given..needed)
            .map(|i| describe(i, &self.slots[i]))
            .collect();
        Err(Error::MissingDevices {
            needed: needed as u16,
            given,
            missing,
        })
    }

    /// Describes the first extra device that is smaller than the table says. A device whose last
    /// block is incomplete does not count as smaller.
    pub fn truncation(&self) -> Option<String> {
        let mut given = self.sizes[1..].iter().zip(&self.slots).enumerate();
        given.find_map(|(index, (present, slot))| {
            let what = || format!("{} has only {present} bytes", describe(index, slot));
            (present.div_ceil(1 << self.block_bits) < slot.blocks).then(what)
        })
    }

    fn primary_holds(&self, slot: &DeviceSlot) -> bool {
        let end = slot
            .unified_block
            .checked_add(slot.blocks)
            .and_then(|end| self.bytes(end));
        slot.unified_block != 0 && end.is_some_and(|end| end <= self.sizes[0])
    }

    fn bytes(&self, blocks: u64) -> Option<u64> {
        blocks.checked_mul(1 << self.block_bits)
    }

    /// Resolves an address. `device` 0 means the unified address space.
    pub fn resolve(&self, device: u16, address: u64) -> Result<Place> {
        let (device, physical) = match device {
            0 if self.flat => (0, address),
            0 => self.unified(address),
            _ => self.named(device, address)?,
        };
        let Some(size) = self.size(device) else {
            return corrupted!("device {device} does not exist");
        };
        match size.checked_sub(physical) {
            None | Some(0) => corrupted!(
                "address {physical:#x} is beyond the end of device {device} ({size} bytes)"
            ),
            Some(available) => Ok(Place {
                device,
                physical,
                available,
            }),
        }
    }

    /// Resolves a range that must be entirely on one device.
    pub fn resolve_range(&self, device: u16, address: u64, length: u64) -> Result<Place> {
        let place = self.resolve(device, address)?;
        if place.available >= length {
            return Ok(place);
        }
        corrupted!(
            "{length} bytes at {:#x} are cut off after {} by the end of device {}",
            place.physical,
            place.available,
            place.device
        )
    }

    fn unified(&self, address: u64) -> (u16, u64) {
        for (slot, number) in self.slots.iter().zip(1u16..) {
            let Some(start) = self.bytes(slot.unified_block) else {
                continue;
            };
            let end = self
                .bytes(slot.blocks)
                .and_then(|length| start.checked_add(length));
            let inside = address >= start && end.is_none_or(|end| address < end);
            if start != 0 && inside {
                return (number, address - start);
            }
        }
        (0, address)
    }

    fn named(&self, device: u16, address: u64) -> Result<(u16, u64)> {
        let Some(slot) = self.slots.get(usize::from(device) - 1) else {
            let count = self.slots.len();
            return corrupted!("device {device}, but there are only {count} extra devices");
        };
        if !self.flat {
            return Ok((device, address));
        }
        let start = self
            .bytes(slot.unified_block)
            .and_then(|start| start.checked_add(address));
        match start {
            Some(address) => Ok((0, address)),
            None => corrupted!("address {address:#x} of device {device} is too large"),
        }
    }

    /// Chunk indexes store a device in as many bits as the number of devices requires; other bits
    /// are undefined and masked out (the kernel's `device_id_mask`).
    pub fn id_mask(&self) -> u16 {
        let count = self.slots.len() + 1;
        count.next_power_of_two().wrapping_sub(1) as u16
    }
}

fn read_table(meta: &Meta<'_>, superblock: &Superblock) -> Result<Vec<DeviceSlot>> {
    let count = u64::from(superblock.extra_devices);
    let start = u64::from(superblock.device_slot) * SLOT;
    // Reject a table that is too long before allocating memory for it.
    meta.check(start, count * SLOT)?;
    (0..count)
        .map(|i| Ok(parse_slot(&meta.get(start + i * SLOT)?, superblock)))
        .collect()
}

/// Decodes a slot. The upper halves of its fields are meaningless except in 48-bit images.
fn parse_slot(raw: &RawDeviceSlot, superblock: &Superblock) -> DeviceSlot {
    let wide = superblock.has(incompat::BIT48);
    let whole = |low: u32, high: u16| match wide {
        true => u64::from(low) | u64::from(high) << 32,
        false => low.into(),
    };
    DeviceSlot {
        tag: until_nul(&raw.tag).to_vec(),
        blocks: whole(raw.blocks_lo.get(), raw.blocks_hi.get()),
        unified_block: whole(raw.uniaddr_lo.get(), raw.uniaddr_hi.get()),
    }
}

fn describe(index: usize, slot: &DeviceSlot) -> String {
    let tag = match slot.tag.is_empty() {
        true => "without a tag".to_owned(),
        false => format!("\"{}\"", slot.tag.escape_ascii()),
    };
    format!("device {} {tag} of {} blocks", index + 1, slot.blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(sizes: &[usize], slots: &[(u64, u64)]) -> Devices {
        let sizes = sizes.iter().map(|&size| size as u64).collect();
        let slots = slots
            .iter()
            .map(|&(unified_block, blocks)| DeviceSlot {
                tag: vec![],
                blocks,
                unified_block,
            })
            .collect();
        Devices {
            sizes,
            slots,
            flat: false,
            block_bits: 9,
        }
    }

    #[test]
    fn an_address_of_the_unified_space_finds_its_device() {
        let mut all = devices(&[1024, 1024], &[(2, 2)]);
        all.check_count().unwrap();
        let place = |device, address| {
            let place = all.resolve(device, address).unwrap();
            (place.device, place.physical, place.available)
        };
        assert_eq!(place(0, 1000), (0, 1000, 24));
        assert_eq!(place(0, 1024), (1, 0, 1024));
        assert_eq!(place(1, 1000), (1, 1000, 24));
        assert!(all.resolve(2, 0).is_err());
        assert!(all.resolve(0, 2048).is_err());
    }

    #[test]
    fn one_device_may_hold_all_of_them() {
        let mut all = devices(&[2048], &[(2, 2)]);
        all.check_count().unwrap();
        assert_eq!(all.resolve(1, 8).unwrap().physical, 1032);
        assert_eq!(all.resolve(0, 1024).unwrap().device, 0);
    }

    #[test]
    fn missing_and_needless_devices_are_refused() {
        let error = devices(&[1024], &[(2, 2)]).check_count().unwrap_err();
        assert!(
            error
                .to_string()
                .contains("device 1 without a tag of 2 blocks"),
            "{error}"
        );
        let error = devices(&[1024, 5], &[]).check_count().unwrap_err();
        assert!(matches!(
            error,
            Error::TooManyDevices {
                needed: 0,
                given: 1
            }
        ));
    }

    #[test]
    fn a_device_that_is_shorter_than_the_table_says_is_named() {
        let of = |sizes: &[usize]| devices(sizes, &[(2, 2), (4, 3)]).truncation();
        assert_eq!(of(&[0, 1024, 1025]), None);
        let line = "device 2 without a tag of 3 blocks has only 1024 bytes";
        assert_eq!(of(&[0, 5000, 1024]).as_deref(), Some(line));
        assert_eq!(devices(&[4096], &[(2, 2)]).truncation(), None);
    }

    #[test]
    fn a_range_must_end_on_its_device() {
        let mut all = devices(&[1024], &[]);
        all.check_count().unwrap();
        assert!(all.resolve_range(0, 512, 512).is_ok());
        assert!(all.resolve_range(0, 512, 513).is_err());
        assert!(all.resolve_range(0, u64::MAX, 1).is_err());
    }

    #[test]
    fn the_mask_of_device_ids_follows_from_their_count() {
        assert_eq!(devices(&[1], &[]).id_mask(), 0);
        assert_eq!(devices(&[1], &[(1, 1)]).id_mask(), 1);
        assert_eq!(devices(&[1], &[(1, 1), (2, 1)]).id_mask(), 3);
    }
}
