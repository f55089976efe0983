//! Several images as one tree: how the entries of an image affect those of the images below.
//!
//! The images are layers of a container, the top one first. A name belongs to the first layer that
//! has it. Directories with the same name are one directory, until a layer hides those below with a
//! whiteout, an opaque directory, or a file of that name. The rules are those of overlayfs and, for
//! layers unpacked from plain tar archives, those of the OCI image specification.
//!
//! This module knows nothing of the engine, which looks up names in one image after the other
//! (`engine/merged.rs`). Reads are not affected: a file's number includes its image.

pub(crate) mod directory;
pub(crate) mod listing;
pub(crate) mod number;
pub(crate) mod overlay;
