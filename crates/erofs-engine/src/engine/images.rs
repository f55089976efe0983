//! The images that an engine reads: one, or several that make up one tree.

use std::sync::Arc;

use erofs_codecs::Settings;
use erofs_format::{ErrorClass, Image, NID_IN_METABOX, Nid, Superblock};

use crate::cache::metadata::MetadataCache;
use crate::device::verified::StoredDevice;
use crate::engine::opened::ImageFiles;
use crate::layers::number::Numbers;
use crate::options::EngineOptions;
use crate::read::decode_context::ContextPool;
use crate::read::{Common, DataPath, DeviceBytes, Through};
use crate::request::budget::Request;
use crate::{Error, Result};

/// The images of a tree, the top one first. There is at least one.
#[derive(Debug)]
pub(crate) struct Images {
    pub(crate) paths: Box<[DataPath]>,
    pub(crate) numbers: Numbers,
    /// Notices for the user about the images' files.
    pub(crate) notices: Vec<String>,
}

impl Images {
    /// Reads the structures that locate the files of each image.
    ///
    /// # Errors
    /// One line that names the image.
    pub(crate) fn read(
        files: Vec<ImageFiles>,
        common: &Arc<Common>,
        options: &EngineOptions,
        request: &Request<'_>,
    ) -> Result<Self> {
        let (count, mut notices) = (files.len(), Vec::new());
        if count > 1 {
            files.iter().for_each(ImageFiles::fetch_beginning);
        }
        let mut paths: Vec<DataPath> = Vec::with_capacity(count);
        for image in files {
            let place = Place {
                above: &paths,
                count,
                common,
                ignore_checksum: options.ignore_checksum,
            };
            let path = place.read(image, request, &mut notices)?;
            paths.push(path);
        }
        Ok(Self {
            paths: paths.into(),
            numbers: Numbers::of_images(count),
            notices,
        })
    }

    /// The image that an inode is in; the top one for a number that no inode has.
    pub(crate) fn of(&self, nid: Nid) -> &DataPath {
        let path = self.paths.get(self.numbers.image(nid));
        path.unwrap_or(&self.paths[0])
    }

    pub(crate) fn top(&self) -> &DataPath {
        &self.paths[0]
    }

    /// The root directories of all images.
    pub(crate) fn roots(&self) -> impl Iterator<Item = Nid> {
        let roots = self.paths.iter().enumerate();
        roots.filter_map(|(number, path)| {
            let root = path.image.superblock().root_nid;
            self.numbers.number(number, root)
        })
    }

    /// The files of all images.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &StoredDevice> {
        self.paths.iter().flat_map(|path| &path.devices)
    }
}

/// An image's position in the tree, while the image is opened.
struct Place<'a> {
    above: &'a [DataPath],
    /// Number of images in the tree.
    count: usize,
    common: &'a Arc<Common>,
    ignore_checksum: bool,
}

impl Place<'_> {
    fn read(
        &self,
        mut files: ImageFiles,
        request: &Request<'_>,
        notices: &mut Vec<String>,
    ) -> Result<DataPath> {
        files.locate(request)?;
        let ImageFiles {
            name,
            devices,
            hash_area,
            ..
        } = files;
        let primary = Arc::clone(&devices[0]);
        notices.extend(devices.iter().filter_map(|device| device.offline()));
        notices.extend(devices.iter().filter_map(|device| device.not_kept()));
        let devices = StoredDevice::all(&name, devices, hash_area, self.count, request)?;
        let scope = request.begin(0);
        let whole = |source| Error::Image {
            image: name.clone(),
            source: Arc::new(source),
        };
        let bytes = DeviceBytes {
            devices: &devices,
            request,
        };
        let image = Image::open_checked(&bytes, !self.ignore_checksum).map_err(|error| {
            if error.class() == ErrorClass::NotErofs {
                primary.discard();
            }
            whole(error)
        })?;
        let mut path = DataPath {
            name: name.clone(),
            number: self.above.len(),
            block_size: u64::from(image.superblock().block_size),
            contexts: self.contexts(decoder_settings(image.superblock())),
            is_remote: (devices.iter()).any(|device| device.remote().next().is_some()),
            devices,
            common: Arc::clone(self.common),
            metabox: None,
            metabox_blocks: MetadataCache::of_images(self.count),
            packed: None,
            image,
        };
        let cut_short = path.image.truncation();
        notices.extend(cut_short.map(|what| format!("{name}: truncated, but usable: {what}")));
        read_special_inodes(&mut path, request).map_err(whole)?;
        drop(scope);
        Ok(path)
    }

    /// The decode contexts of an upper image with the same settings, or new ones.
    fn contexts(&self, settings: Settings) -> Arc<ContextPool> {
        let mut above = self.above.iter().map(|path| &path.contexts);
        match above.find(|contexts| contexts.settings == settings) {
            Some(contexts) => Arc::clone(contexts),
            None => Arc::new(ContextPool::new(settings)),
        }
    }
}

/// The decoders' settings for an image.
pub fn decoder_settings(superblock: &Superblock) -> Settings {
    let default = Settings::default();
    let compression = &superblock.compression;
    let (lzma, zstd) = (compression.lzma_dictionary, compression.zstd_window_log);
    Settings {
        block_size: superblock.block_size,
        lz4_zero_padding: superblock.zero_padding(),
        lzma_dictionary: lzma.unwrap_or(default.lzma_dictionary),
        zstd_window_log: zstd.map_or(default.zstd_window_log, u32::from),
    }
}

/// Reads the special inodes and the data that the image keeps in them.
fn read_special_inodes(path: &mut DataPath, request: &Request<'_>) -> erofs_format::Result<()> {
    let through = Through::ALL;
    let read = |path: &DataPath, nid| path.with_image(request, through, |image| image.inode(nid));
    let in_metabox = |nid: &Nid| nid & NID_IN_METABOX != 0;
    let superblock = path.image.superblock();
    let (packed, metabox) = (superblock.packed_nid, superblock.metabox_nid);
    if let Some(nid) = packed.filter(|nid| !in_metabox(nid)) {
        path.packed = Some(read(path, nid)?);
    }
    if let Some(nid) = metabox {
        path.metabox = Some(read(path, nid)?);
    }
    if let Some(nid) = packed.filter(in_metabox) {
        path.packed = Some(read(path, nid)?);
    }
    path.with_image(request, through, |image| {
        image.load_xattr_prefixes()?;
        image.check_root()
    })
}
