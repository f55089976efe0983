//! Fields of a protocol buffer, one after the other, without building messages.
//!
//! Reading goes this way because a trace has millions of events, and because Perfetto changed the
//! type of a field once (`workqueue`), which a generated decoder would call an error.

use prost::encoding::{WireType, decode_key, decode_varint};

/// One field's value as it stands in the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// The number; 0 for bytes.
    pub fn number(self) -> u64 {
        match self {
            Self::Number(number) => number,
            Self::Bytes(_) => 0,
        }
    }

    /// The bytes; none for a number.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Self::Number(_) => &[],
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// Why a message cannot be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cut;

/// Passes each field to `each`.
pub(super) fn fields<'a>(
    mut message: &'a [u8],
    mut each: impl FnMut(u32, Value<'a>),
) -> Result<(), Cut> {
    while !message.is_empty() {
        let (tag, wire) = decode_key(&mut message).map_err(|_| Cut)?;
        let value = match wire {
            WireType::Varint => Value::Number(decode_varint(&mut message).map_err(|_| Cut)?),
            WireType::SixtyFourBit => {
                let bytes = take(&mut message, 8)?;
                Value::Number(u64::from_le_bytes(bytes.try_into().map_err(|_| Cut)?))
            }
            WireType::ThirtyTwoBit => {
                let bytes = take(&mut message, 4)?;
                Value::Number(u64::from(u32::from_le_bytes(
                    bytes.try_into().map_err(|_| Cut)?,
                )))
            }
            WireType::LengthDelimited => {
                let length = decode_varint(&mut message).map_err(|_| Cut)?;
                Value::Bytes(take(
                    &mut message,
                    usize::try_from(length).map_err(|_| Cut)?,
                )?)
            }
            WireType::StartGroup | WireType::EndGroup => return Err(Cut),
        };
        each(tag, value);
    }
    Ok(())
}

/// The numbers of a packed field.
pub(super) fn packed(mut bytes: &[u8], into: &mut Vec<u64>) -> Result<(), Cut> {
    while !bytes.is_empty() {
        into.push(decode_varint(&mut bytes).map_err(|_| Cut)?);
    }
    Ok(())
}

fn take<'a>(message: &mut &'a [u8], length: usize) -> Result<&'a [u8], Cut> {
    let (head, rest) = message.split_at_checked(length).ok_or(Cut)?;
    *message = rest;
    Ok(head)
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
