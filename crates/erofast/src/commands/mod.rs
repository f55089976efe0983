//! One file per subcommand.

pub mod abandonable;
#[cfg(feature = "tools")]
pub mod cache;
#[cfg(feature = "tools")]
pub mod cat;
#[cfg(feature = "tools")]
pub mod check;
#[cfg(feature = "tools")]
pub mod erofs_utils;
#[cfg(feature = "tools")]
pub mod extract;
#[cfg(feature = "tools")]
pub mod generate;
#[cfg(feature = "tools")]
pub mod info;
#[cfg(feature = "tools")]
pub mod ls;
#[cfg(feature = "tools")]
pub mod measure;
pub mod mount;
#[cfg(feature = "tools")]
pub mod profile;
pub mod stat;
#[cfg(feature = "tools")]
pub mod tools;
