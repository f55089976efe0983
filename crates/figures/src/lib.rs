//! Declares the figures that a program reports, each in one place.
//!
//! [`figures!`] declares a struct and a table of its fields: the meaning and type of each field,
//! and the Prometheus metric that shows it, if any. Serde serializes the struct; schemas and
//! Prometheus pages are generated from the table. A counter is one field, declared beside the code
//! that increments it.
//!
//! ```
//! use figures::{Shape, Shaped};
//!
//! figures::figures! {
//!     /// Reads of a file.
//!     #[derive(Debug, Default)]
//!     pub struct Reads counted by struct Counters {
//!         /// Reads requested.
//!         pub reads => counter "reads_total",
//!         /// Bytes delivered.
//!         pub delivered_bytes,
//!     } and {
//!         /// Why the last read failed.
//!         pub error: Option<String>,
//!     }
//! }
//!
//! let counters = Counters::default();
//! figures::add(&counters.reads, 2);
//! let mut reads = Reads::default();
//! counters.add_to(&mut reads);
//! assert_eq!((reads.reads, reads.delivered_bytes), (2, 0));
//! let Shape::Part([first, _, error]) = Reads::SHAPE else { panic!() };
//! assert_eq!((first.name, first.help.trim()), ("reads", "Reads requested."));
//! assert_eq!(first.metric, Some(("counter", "reads_total")));
//! assert!(matches!(error.shape, Shape::Optional(Shape::Text)));
//! ```
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// One field of a struct of figures.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Its name in JSON. If it has a unit, the name ends with it: `_bytes`, `_ns`, `_s`, `_pages`.
    pub name: &'static str,
    /// The field's doc comment.
    pub help: &'static str,
    /// Type and name of its Prometheus metric: `name`, `name{label=value}`, or `name{label}` for a
    /// map, whose keys become the label's values, or for a text, which becomes the label's value.
    pub metric: Option<(&'static str, &'static str)>,
    /// Its type.
    pub shape: Shape,
    /// Whether the fields of this part appear in JSON in place of the part itself:
    /// `#[serde(flatten)]`.
    pub is_flat: bool,
    /// Whether the field is omitted if it has no value: `#[serde(skip_serializing_if = ...)]`.
    pub is_skipped: bool,
}

/// The type of a figure in JSON.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A whole number.
    Integer,
    /// Any number.
    Number,
    /// True or false.
    Flag,
    /// Text.
    Text,
    /// A text that is one of these words.
    Words(&'static [&'static str]),
    /// A value of this type or null, or the field is absent.
    Optional(&'static Shape),
    /// A list of values of this type.
    List(&'static Shape),
    /// An object with any names, whose values have this type.
    Map(&'static Shape),
    /// An object with these fields.
    Part(&'static [Figure]),
}

/// A type that can be a figure or contain figures.
pub trait Shaped {
    /// The type in JSON.
    const SHAPE: Shape;
}

macro_rules! shaped {
    ($($shape:ident: $($type:ty)*;)*) => {
        $($(impl Shaped for $type { const SHAPE: Shape = Shape::$shape; })*)*
    };
}

shaped! {
    Integer: i8 i32 u16 u32 u64 usize;
    Number: f64;
    Flag: bool;
    Text: String &str;
}

impl<T: Shaped> Shaped for Option<T> {
    const SHAPE: Shape = Shape::Optional(&T::SHAPE);
}

impl<T: Shaped> Shaped for Vec<T> {
    const SHAPE: Shape = Shape::List(&T::SHAPE);
}

impl<K, T: Shaped> Shaped for BTreeMap<K, T> {
    const SHAPE: Shape = Shape::Map(&T::SHAPE);
}

/// A pair of numbers becomes a list.
impl<A: Shaped, B> Shaped for (A, B) {
    const SHAPE: Shape = Shape::List(&A::SHAPE);
}

/// Adds without a locked instruction, for a counter that only one thread writes.
pub fn add(counter: &AtomicU64, more: u64) {
    let sum = counter.load(Ordering::Relaxed).wrapping_add(more);
    counter.store(sum, Ordering::Relaxed);
}

/// Declares structs of figures; see the crate's example. `counted by struct NAME` declares another
/// struct, with an atomic counter for each field of the first group, and a method `add_to` that
/// adds them to a sum. A field of a struct without counters may be followed by `where` and a `cfg`
/// condition.
#[macro_export]
macro_rules! figures {
    ($(#[$($outer:tt)*])* $vis:vis struct $name:ident counted by
        $counters_vis:vis struct $counters:ident {
        $($(#[$($meta:tt)*])* $counter_vis:vis $counter:ident
            $(=> $counter_kind:ident $counter_metric:literal)?),* $(,)?
    } $(and {
        $($(#[$($field_meta:tt)*])* $field_vis:vis $field:ident: $type:ty
            $(=> $kind:ident $metric:literal)?),* $(,)?
    })?) => {
        $crate::figures! {
            $(#[$($outer)*])*
            $vis struct $name {
                $($(#[$($meta)*])* $counter_vis $counter: u64
                    $(=> $counter_kind $counter_metric)?,)*
                $($($(#[$($field_meta)*])* $field_vis $field: $type
                    $(=> $kind $metric)?,)*)?
            }
        }

        /// The counters of one thread, or those that all threads share.
        #[derive(Debug, Default)]
        $counters_vis struct $counters {
            $($(#[$($meta)*])* $counter_vis $counter: std::sync::atomic::AtomicU64,)*
        }

        impl $counters {
            /// Adds the counters' values to `sums`.
            $counters_vis fn add_to(&self, sums: &mut $name) {
                $(sums.$counter += self.$counter.load(std::sync::atomic::Ordering::Relaxed);)*
            }
        }
    };
    ($(#[$($outer:tt)*])* $vis:vis struct $name:ident {
        $($(#[$($meta:tt)*])* $field_vis:vis $field:ident: $type:ty
            $(=> $kind:ident $metric:literal)? $(where $when:meta)?),* $(,)?
    }) => {
        $(#[$($outer)*])*
        $vis struct $name {
            $($(#[cfg($when)])? $(#[$($meta)*])* $field_vis $field: $type,)*
        }

        impl $crate::Shaped for $name {
            const SHAPE: $crate::Shape = $crate::Shape::Part(&[$(
                $(#[cfg($when)])?
                $crate::Figure {
                    name: stringify!($field),
                    help: $crate::help!(() $([$($meta)*])*),
                    metric: [$(Some((stringify!($kind), $metric)),)? None][0],
                    shape: <$type as $crate::Shaped>::SHAPE,
                    is_flat: $crate::is_flat!($([$($meta)*])*),
                    is_skipped: $crate::is_skipped!($([$($meta)*])*),
                }
            ),*]);
        }
    };
}

/// Extracts the doc comment from a field's attributes, as one line.
#[doc(hidden)]
#[macro_export]
macro_rules! help {
    (($($line:literal)*)) => { concat!($($line),*) };
    (($($line:literal)*) [doc = $next:literal] $($rest:tt)*) => {
        $crate::help!(($($line)* $next) $($rest)*)
    };
    (($($line:literal)*) [$($other:tt)*] $($rest:tt)*) => {
        $crate::help!(($($line)*) $($rest)*)
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! is_flat {
    () => { false };
    ([serde(flatten)] $($rest:tt)*) => { true };
    ([$($other:tt)*] $($rest:tt)*) => { $crate::is_flat!($($rest)*) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! is_skipped {
    () => { false };
    ([serde(skip_serializing_if = $($rule:tt)*)] $($rest:tt)*) => { true };
    ([$($other:tt)*] $($rest:tt)*) => { $crate::is_skipped!($($rest)*) };
}
