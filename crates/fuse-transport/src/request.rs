//! Splits a request of either transport into its parts.

use zerocopy::FromBytes;

use rustix::io::Errno;

use crate::wire::{InHeader, Opcode};

/// One request: header, the fixed part of its kind, and the rest (names, values).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) header: InHeader,
    /// The opcode; `None` if the request is of an unknown kind.
    pub(crate) opcode: Option<Opcode>,
    pub(crate) fixed: &'a [u8],
    pub(crate) rest: &'a [u8],
}

impl<'a> Request<'a> {
    /// Parses the result of one read of the device, which is exactly one request. An error carries
    /// the header, if there is one, so that the request can be refused.
    pub(crate) fn from_device(bytes: &'a [u8]) -> Result<Self, Option<InHeader>> {
        let (header, body) = InHeader::read_from_prefix(bytes).map_err(|_| None)?;
        if header.len as usize != bytes.len() {
            return Err(Some(header));
        }
        let opcode = Opcode::from_number(header.opcode);
        let fixed_size = fixed_size(opcode, body.len()).ok_or(Some(header))?;
        let (fixed, rest) = body.split_at(fixed_size);
        Ok(Self {
            header,
            opcode,
            fixed,
            rest,
        })
    }

    /// Builds a request from a ring entry, which holds header and payload separately.
    pub(crate) fn from_ring(
        header: InHeader,
        fixed: &'a [u8],
        payload: &'a [u8],
    ) -> Result<Self, Option<InHeader>> {
        let opcode = Opcode::from_number(header.opcode);
        let fixed_size = fixed_size(opcode, fixed.len()).ok_or(Some(header))?;
        Ok(Self {
            header,
            opcode,
            fixed: &fixed[..fixed_size],
            rest: payload,
        })
    }

    /// The fixed part as a structure.
    pub(crate) fn fixed<T: FromBytes>(&self) -> Result<T, Errno> {
        let (part, _) = T::read_from_prefix(self.fixed).map_err(|_| Errno::INVAL)?;
        Ok(part)
    }

    /// The only name in the rest: not empty, and terminated by a zero byte.
    pub(crate) fn name(&self) -> Result<&'a [u8], Errno> {
        match self.rest.split_last() {
            Some((0, name)) if !name.is_empty() && !name.contains(&0) => Ok(name),
            _ => Err(Errno::INVAL),
        }
    }
}

/// Bytes in the fixed part, if that many are present. INIT grew over time and is parsed separately.
fn fixed_size(opcode: Option<Opcode>, available: usize) -> Option<usize> {
    match opcode {
        None => Some(available),
        Some(Opcode::Init) => Some(Opcode::Init.fixed_size().min(available)),
        Some(known) => Some(known.fixed_size()).filter(|size| *size <= available),
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;
    use crate::wire::ReadIn;

    fn bytes(opcode: u32, body: &[u8]) -> Vec<u8> {
        let header = InHeader {
            len: 40 + body.len() as u32,
            opcode,
            unique: 5,
            nodeid: 1,
            ..Default::default()
        };
        [header.as_bytes(), body].concat()
    }

    #[test]
    fn a_look_up_carries_a_name() {
        let request = bytes(1, b"etc\0");
        assert_eq!(
            Request::from_device(&request).unwrap().name(),
            Ok(&b"etc"[..])
        );
    }

    #[test]
    fn names_that_are_empty_unended_or_hold_a_zero_are_refused() {
        for body in [&b""[..], b"\0", b"etc", b"a\0b\0"] {
            let request = bytes(1, body);
            assert_eq!(
                Request::from_device(&request).unwrap().name(),
                Err(Errno::INVAL),
                "{body:?}"
            );
        }
    }

    #[test]
    fn a_fixed_part_that_is_cut_short_is_refused_with_the_header_known() {
        let request = bytes(15, &ReadIn::default().as_bytes()[..39]);
        assert_eq!(
            Request::from_device(&request).unwrap_err().unwrap().unique,
            5
        );
    }

    #[test]
    fn a_length_that_differs_from_what_was_read_is_refused() {
        let mut request = bytes(1, b"etc\0");
        request.push(0);
        assert!(Request::from_device(&request).unwrap_err().is_some());
        assert!(Request::from_device(&request[..39]).unwrap_err().is_none());
    }

    #[test]
    fn an_unknown_kind_is_kept_for_its_refusal() {
        let request = bytes(4000, b"whatever");
        assert_eq!(Request::from_device(&request).unwrap().opcode, None);
    }

    #[test]
    fn a_ring_keeps_the_parts_apart() {
        let header = InHeader {
            opcode: 22,
            ..Default::default()
        };
        let request = Request::from_ring(header, &[9; 128], b"user.a\0").unwrap();
        assert_eq!(
            (request.fixed.len(), request.name()),
            (8, Ok(&b"user.a"[..]))
        );
    }
}
