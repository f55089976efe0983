//! The wire format of protocol buffers: iterates over the fields of a message, and writes them.
//!
//! No structs are generated: a trace has millions of events, a message of repeated fields could
//! make a small file take much memory, and a generated decoder would reject a field whose type
//! Perfetto once changed (`workqueue`).

use crate::error::Fault;
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    /// The message lacks the field.
    Absent,
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// The number; 0 if the value is not a number.
    pub fn number(self) -> u64 {
        match self {
            Self::Number(number) => number,
            _ => 0,
        }
    }

    /// The bytes; empty if the value is not bytes.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            _ => &[],
        }
    }
}

/// The error for a message that is truncated or not a protocol buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cut;

/// The reason why a packet is refused.
#[derive(Debug)]
pub(super) enum Stop {
    Damaged,
    Fault(Fault),
}

impl From<Cut> for Stop {
    fn from(Cut: Cut) -> Self {
        Self::Damaged
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// The first value of each of these fields.
pub(super) fn pick<const N: usize>(message: &[u8], tags: [u32; N]) -> Result<[Value<'_>; N], Cut> {
    let mut found = [Value::Absent; N];
    fields(message, |tag, value| {
        let wanted = found
            .iter_mut()
            .zip(tags)
            .filter(|(_, wanted)| *wanted == tag);
        for (found, _) in wanted.filter(|(found, _)| **found == Value::Absent) {
            *found = value;
        }
    })?;
    Ok(found)
}

/// Calls `each` with every field.
pub(super) fn fields<'a>(
    message: &'a [u8],
    mut each: impl FnMut(u32, Value<'a>),
) -> Result<(), Cut> {
    try_fields(message, |tag, value| {
        each(tag, value);
        Ok(())
    })
}

/// Calls `each` with every field up to the first error.
pub(super) fn try_fields<'a, E: From<Cut>>(
    mut message: &'a [u8],
    mut each: impl FnMut(u32, Value<'a>) -> Result<(), E>,
) -> Result<(), E> {
    while !message.is_empty() {
        let (tag, wire) = decode_key(&mut message).map_err(|_| Cut)?;
        let value = match wire {
            WireType::Varint => Value::Number(decode_varint(&mut message).map_err(|_| Cut)?),
            WireType::SixtyFourBit => Value::Number(u64::from_le_bytes(array(&mut message)?)),
            WireType::ThirtyTwoBit => {
                Value::Number(u32::from_le_bytes(array(&mut message)?).into())
            }
            WireType::LengthDelimited => {
                let length = decode_varint(&mut message).map_err(|_| Cut)?;
                let length = usize::try_from(length).map_err(|_| Cut)?;
                let (bytes, rest) = message.split_at_checked(length).ok_or(Cut)?;
                message = rest;
                Value::Bytes(bytes)
            }
            WireType::StartGroup | WireType::EndGroup => return Err(Cut.into()),
        };
        each(tag, value)?;
    }
    Ok(())
}

/// Appends the numbers of a packed field.
pub(super) fn packed(mut bytes: &[u8], into: &mut Vec<u64>) -> Result<(), Cut> {
    while !bytes.is_empty() {
        into.push(decode_varint(&mut bytes).map_err(|_| Cut)?);
    }
    Ok(())
}

fn array<const N: usize>(message: &mut &[u8]) -> Result<[u8; N], Cut> {
    let (head, rest) = message.split_first_chunk().ok_or(Cut)?;
    *message = rest;
    Ok(*head)
}

/// A message to write.
#[derive(Default)]
pub(super) struct Message(pub Vec<u8>);

impl Message {
    /// Adds a number, a bool or an enum; negative ones are extended to 64 bits.
    pub fn number(&mut self, tag: u32, number: u64) -> &mut Self {
        encode_key(tag, WireType::Varint, &mut self.0);
        encode_varint(number, &mut self.0);
        self
    }

    /// Adds a string, which need not be UTF-8, or a message.
    pub fn bytes(&mut self, tag: u32, bytes: &[u8]) -> &mut Self {
        encode_key(tag, WireType::LengthDelimited, &mut self.0);
        encode_varint(bytes.len() as u64, &mut self.0);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Adds the message that `fill` creates.
    pub fn message(&mut self, tag: u32, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let mut inner = Self::default();
        fill(&mut inner);
        self.bytes(tag, &inner.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_of_fields_are_read() {
        let message = [
            0x08, 0x96, 0x01, // field 1: 150
            0x12, 0x02, b'h', b'i', // field 2
            0x1d, 1, 0, 0, 0, // field 3, 32 bits
            0x21, 2, 0, 0, 0, 0, 0, 0, 0, // field 4, 64 bits
        ];
        let mut found = Vec::new();
        fields(&message, |tag, value| found.push((tag, value))).unwrap();
        let number = Value::Number;
        assert_eq!(
            found,
            [
                (1, number(150)),
                (2, Value::Bytes(b"hi")),
                (3, number(1)),
                (4, number(2))
            ]
        );
    }

    #[test]
    fn a_cut_message_is_an_error() {
        for message in [&[0x12, 5, 1][..], &[0x08], &[0x1d, 1], &[0x00], &[0xff; 12]] {
            assert_eq!(fields(message, |_, _| {}), Err(Cut), "{message:?}");
        }
    }
}
