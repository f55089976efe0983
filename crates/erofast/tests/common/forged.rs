//! Images that no mkfs creates: one block per inode, with arbitrary names.

const BLOCK: usize = 4096;
const SLOT: usize = 32;

/// An image under construction. Its inodes are in block 1, the content of inode N in block 2 + N.
#[derive(Default)]
pub struct Forged {
    inodes: Vec<u8>,
    data: Vec<u8>,
}

impl Forged {
    /// Adds an inode and returns its nid.
    pub fn add(&mut self, mode: u16, content: &[u8]) -> u64 {
        let nid = (self.inodes.len() / SLOT) as u64;
        let mut inode = [0; SLOT];
        inode[4..6].copy_from_slice(&mode.to_le_bytes());
        inode[6..8].copy_from_slice(&1_u16.to_le_bytes());
        inode[8..12].copy_from_slice(&(content.len() as u32).to_le_bytes());
        inode[16..20].copy_from_slice(&(2 + nid as u32).to_le_bytes());
        self.inodes.extend(inode);
        self.data.extend(content);
        self.data.resize((nid as usize + 1) * BLOCK, 0);
        nid
    }

    /// Adds a directory with these names, in this order, each with nid and file type.
    pub fn add_directory<N: AsRef<[u8]>>(&mut self, entries: &[(N, u64, u8)]) -> u64 {
        let mut table = Vec::new();
        let mut names = Vec::new();
        for (name, nid, file_type) in entries {
            let name = name.as_ref();
            let offset = entries.len() * 12 + names.len();
            table.extend(nid.to_le_bytes());
            table.extend((offset as u16).to_le_bytes());
            table.extend([*file_type, 0]);
            names.extend(name);
        }
        self.add(0o040755, &[table, names].concat())
    }

    /// Returns the finished image.
    pub fn bytes(mut self, root: u64) -> Vec<u8> {
        let blocks = 2 + self.data.len() / BLOCK;
        let mut image = vec![0; BLOCK];
        let mut put = |at: usize, bytes: &[u8]| {
            image[1024 + at..1024 + at + bytes.len()].copy_from_slice(bytes);
        };
        put(0, &0xE0F5_E1E2_u32.to_le_bytes());
        put(12, &[12]);
        put(14, &(root as u16).to_le_bytes());
        put(16, &((self.inodes.len() / SLOT) as u64).to_le_bytes());
        put(36, &(blocks as u32).to_le_bytes());
        put(40, &1_u32.to_le_bytes());
        self.inodes.resize(BLOCK, 0);
        image.extend(self.inodes);
        image.extend(self.data);
        image
    }
}
