//! The root hash, as hexadecimal digits.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::hash::MAX_DIGEST;

/// The hash against which everything else is verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RootHash(Vec<u8>);

impl RootHash {
    /// The bytes of the hash.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl FromStr for RootHash {
    type Err = Error;

    /// Reads the hexadecimal digits that `veritysetup` prints, in upper or lower case.
    fn from_str(text: &str) -> Result<Self> {
        let refuse = |what: String| Err(Error::RootHash(what));
        let digits = text.as_bytes();
        if digits.is_empty() || !digits.len().is_multiple_of(2) || digits.len() > 2 * MAX_DIGEST {
            return refuse(format!(
                "no supported hash has {} hexadecimal digits",
                text.chars().count()
            ));
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
        let bytes = digits
            .chunks(2)
            .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?));
        match bytes.collect() {
            Some(bytes) => Ok(Self(bytes)),
            None => refuse("must be hexadecimal digits".into()),
        }
    }
}

/// Lowercase hexadecimal digits, the form in which the root hash is signed.
impl fmt::Display for RootHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_of_either_case_are_read() {
        let root: RootHash = "00fFa7".parse().unwrap();
        assert_eq!(root.as_bytes(), [0, 0xff, 0xa7]);
        assert_eq!(root.to_string(), "00ffa7");
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "0", "0g", "ü0", "+1", "00 ", &"00".repeat(65)] {
            assert!(text.parse::<RootHash>().is_err(), "{text}");
        }
    }
}
