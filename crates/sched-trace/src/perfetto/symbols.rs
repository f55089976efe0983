//! Interned kernel symbols of Perfetto's packet sequences.

use super::proto;
use super::wire::{Stop, pick, try_fields};
use crate::input::below;
use crate::{Name, Trace};
use std::collections::HashMap;

/// Kernel symbols of a packet sequence by their interning ID.
pub(super) type Symbols = HashMap<u64, Name>;

/// Largest accepted number of packet sequences, and of symbols in all of them together.
const SEQUENCES: usize = 1 << 20;
const SYMBOLS: usize = 4 << 20;

/// The symbols of all packet sequences.
#[derive(Default)]
pub(super) struct Sequences {
    symbols: HashMap<u64, Symbols>,
    interned: usize,
}

impl Sequences {
    /// Whether a packet of this sequence was read before.
    pub fn contains(&self, sequence: u64) -> bool {
        self.symbols.contains_key(&sequence)
    }

    /// Notes that a packet of this sequence follows; `clear` drops everything interned before this
    /// packet.
    pub fn begin(&mut self, sequence: u64, clear: bool) -> Result<(), Stop> {
        let symbols = self.symbols.entry(sequence).or_default();
        if clear {
            self.interned -= symbols.len();
            symbols.clear();
        }
        Ok(below(self.symbols.len(), SEQUENCES, "packet sequences")?)
    }

    /// The symbols that packets of this sequence refer to.
    pub fn symbols(&self, sequence: u64) -> &Symbols {
        static NONE: std::sync::LazyLock<Symbols> = std::sync::LazyLock::new(Symbols::new);
        self.symbols.get(&sequence).unwrap_or(&NONE)
    }

    /// Reads an `InternedData` message.
    pub fn intern(&mut self, sequence: u64, trace: &mut Trace, bytes: &[u8]) -> Result<(), Stop> {
        let symbols = self.symbols.entry(sequence).or_default();
        try_fields(bytes, |tag, value| {
            if tag != proto::KERNEL_SYMBOLS {
                return Ok(());
            }
            let [iid, text] = pick(value.bytes(), [1, 2])?;
            let name = trace.names.intern(&String::from_utf8_lossy(text.bytes()));
            self.interned += usize::from(symbols.insert(iid.number(), name).is_none());
            Ok(below(self.interned, SYMBOLS, "interned symbols")?)
        })
    }
}
