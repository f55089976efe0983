//! The opcodes, and the treatment of each on a read-only filesystem.

/// How a request is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Treatment {
    /// Answered by the session or the filesystem.
    Served,
    /// Nothing is sent back.
    Silent,
    /// ENOSYS: the kernel stops sending such requests, and uses its default.
    Unsupported,
    /// EROFS: the request would change something.
    ReadOnly,
    /// ENOTTY for anything but a directory, through which the filesystem can be queried. The
    /// protocol has no reply that stops the kernel from sending ioctls, and isatty(3) causes one
    /// for every file.
    Ioctl,
    /// An empty success.
    Agreed,
}

/// One row per kind: name, number, bytes in its fixed part, treatment. A FUSE ring carries the
/// fixed part separately from the names and values that follow it.
macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $label:literal, $fixed:literal, $treatment:ident;)*) => {
        /// A kind of request.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[allow(missing_docs)]
        pub enum Opcode { $($(#[$doc])* $name,)* }

        impl Opcode {
            /// All opcodes, in the order of [`Opcode::index`].
            pub const ALL: &[Opcode] = &[$(Opcode::$name),*];

            /// The kind with this number; `None` if it is unknown.
            pub const fn from_number(number: u32) -> Option<Opcode> {
                match number { $($number => Some(Opcode::$name),)* _ => None }
            }

            /// The opcode's name in reports.
            pub const fn label(self) -> &'static str {
                match self { $(Opcode::$name => $label,)* }
            }

            /// Bytes in the fixed part before names and values.
            pub const fn fixed_size(self) -> usize {
                match self { $(Opcode::$name => $fixed,)* }
            }

            /// How requests of this kind are answered.
            pub const fn treatment(self) -> Treatment {
                match self { $(Opcode::$name => Treatment::$treatment,)* }
            }
        }
    };
}

opcodes! {
    Lookup = 1, "lookup", 0, Served;
    Forget = 2, "forget", 8, Silent;
    Getattr = 3, "getattr", 16, Served;
    Setattr = 4, "setattr", 88, ReadOnly;
    Readlink = 5, "readlink", 0, Served;
    Symlink = 6, "symlink", 0, ReadOnly;
    Mknod = 8, "mknod", 16, ReadOnly;
    Mkdir = 9, "mkdir", 8, ReadOnly;
    Unlink = 10, "unlink", 0, ReadOnly;
    Rmdir = 11, "rmdir", 0, ReadOnly;
    Rename = 12, "rename", 8, ReadOnly;
    Link = 13, "link", 8, ReadOnly;
    /// ENOSYS makes the kernel open files without asking, and keep their pages across opens.
    Open = 14, "open", 8, Unsupported;
    Read = 15, "read", 40, Served;
    Write = 16, "write", 40, ReadOnly;
    Statfs = 17, "statfs", 0, Served;
    Release = 18, "release", 24, Agreed;
    Fsync = 20, "fsync", 16, Unsupported;
    Setxattr = 21, "setxattr", 8, ReadOnly;
    Getxattr = 22, "getxattr", 8, Served;
    Listxattr = 23, "listxattr", 8, Served;
    Removexattr = 24, "removexattr", 0, ReadOnly;
    Flush = 25, "flush", 24, Unsupported;
    Init = 26, "init", 64, Served;
    /// ENOSYS makes the kernel open directories without asking, and keep the entries that it has
    /// read.
    Opendir = 27, "opendir", 8, Unsupported;
    Readdir = 28, "readdir", 40, Served;
    Releasedir = 29, "releasedir", 24, Agreed;
    Fsyncdir = 30, "fsyncdir", 16, Unsupported;
    /// The kernel handles locks: the features that would make it send these requests are not used.
    Getlk = 31, "getlk", 48, Unsupported;
    Setlk = 32, "setlk", 48, Unsupported;
    Setlkw = 33, "setlkw", 48, Unsupported;
    /// ENOSYS means that access is allowed. With `default_permissions` the kernel checks
    /// permissions itself and does not send this request.
    Access = 34, "access", 8, Unsupported;
    Create = 35, "create", 16, ReadOnly;
    /// A signal arrived for a waiting program. Every request ends in bounded time, so none is
    /// interrupted; ENOSYS tells the kernel to stop sending interrupts.
    Interrupt = 36, "interrupt", 8, Unsupported;
    Bmap = 37, "bmap", 16, Unsupported;
    Destroy = 38, "destroy", 0, Agreed;
    Ioctl = 39, "ioctl", 32, Ioctl;
    Poll = 40, "poll", 24, Unsupported;
    NotifyReply = 41, "notify_reply", 40, Silent;
    BatchForget = 42, "batch_forget", 8, Silent;
    Fallocate = 43, "fallocate", 32, ReadOnly;
    Readdirplus = 44, "readdirplus", 40, Served;
    Rename2 = 45, "rename2", 16, ReadOnly;
    Lseek = 46, "lseek", 24, Served;
    CopyFileRange = 47, "copy_file_range", 56, ReadOnly;
    SetupMapping = 48, "setupmapping", 40, Unsupported;
    RemoveMapping = 49, "removemapping", 4, Unsupported;
    Syncfs = 50, "syncfs", 8, Agreed;
    Tmpfile = 51, "tmpfile", 16, ReadOnly;
    /// Sent only for the birth time, which does not exist here. ENOSYS makes the kernel use the
    /// attributes that it has; after any other answer it asks repeatedly.
    Statx = 52, "statx", 24, Unsupported;
    CopyFileRange64 = 53, "copy_file_range_64", 56, ReadOnly;
}

impl Opcode {
    /// The opcode's index in [`Opcode::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_to_kinds_and_unknown_ones_to_none() {
        assert_eq!(Opcode::from_number(44), Some(Opcode::Readdirplus));
        assert_eq!(Opcode::from_number(7), None);
        assert_eq!(Opcode::from_number(4096), None);
    }

    #[test]
    fn an_index_is_the_place_in_the_list() {
        for (place, opcode) in Opcode::ALL.iter().enumerate() {
            assert_eq!(opcode.index(), place);
        }
    }

    #[test]
    fn what_would_write_is_refused_as_read_only() {
        for opcode in [
            Opcode::Write,
            Opcode::Create,
            Opcode::Setattr,
            Opcode::Tmpfile,
        ] {
            assert_eq!(opcode.treatment(), Treatment::ReadOnly);
        }
    }
}
