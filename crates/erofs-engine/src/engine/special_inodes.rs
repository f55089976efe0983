//! The content of special inodes, the packed inode and the metabox, for the image itself.

use std::io;
use std::sync::Arc;

use erofs_format::{Image, Inode, Nid, ReadAt};

use crate::cache::metadata::MetadataCache;
use crate::read::DataPath;
use crate::read::map::{Content, View};

/// The content of a special inode.
#[derive(Debug)]
struct SpecialContent {
    path: Arc<DataPath>,
    view: View,
    inode: Inode,
}

impl SpecialContent {
    fn content(&self) -> Content<'_> {
        Content {
            path: &self.path,
            view: &self.view,
            inode: &self.inode,
        }
    }
}

impl ReadAt for SpecialContent {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.content().read_exact_at(buf, offset)
    }

    fn size(&self) -> u64 {
        self.inode.size
    }
}

/// Passes the image the content of its special inodes, which it cannot decode itself.
pub(crate) fn special_inodes(path: &Arc<DataPath>, mut image: Image) -> erofs_format::Result<View> {
    let content = |image: &Image, packed: Option<Inode>, inode: Inode| {
        let view = View {
            image: image.clone(),
            packed,
        };
        Arc::new(SpecialContent {
            path: path.clone(),
            view,
            inode,
        })
    };
    let in_metabox = |nid: &Nid| nid & erofs_format::NID_IN_METABOX != 0;
    let packed_nid = image.packed_nid();
    let mut packed = None;
    if let Some(nid) = packed_nid.filter(|nid| !in_metabox(nid)) {
        packed = Some(image.inode(nid)?);
    }
    if let Some(nid) = image.metabox_nid() {
        let metabox = image.inode(nid)?;
        let reader = content(&image, packed.clone(), metabox);
        // Structures in the metabox are as small and as close together as those on a device.
        image.set_metabox(Arc::new(MetadataCache::new(reader)));
    }
    if let Some(nid) = packed_nid.filter(in_metabox) {
        packed = Some(image.inode(nid)?);
    }
    if let Some(inode) = &packed {
        let reader = content(&image, None, inode.clone());
        image.set_packed(reader);
    }
    image.load_xattr_prefixes()?;
    image.check_root()?;
    Ok(View { image, packed })
}
