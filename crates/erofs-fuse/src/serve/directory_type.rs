//! Types of files, as directories of EROFS and readdir(3) number them.

/// `DT_REG` and so on, for a type as EROFS numbers it.
pub(super) fn directory_type(file_type: u8) -> u8 {
    // FT_REG_FILE, FT_DIR, FT_CHRDEV, FT_BLKDEV, FT_FIFO, FT_SOCK, FT_SYMLINK begin at 1.
    *[0, 8, 4, 2, 6, 1, 12, 10]
        .get(usize::from(file_type))
        .unwrap_or(&0)
}

#[cfg(test)]
mod tests {
    use super::directory_type;

    #[test]
    fn file_types_map_to_the_numbers_of_readdir() {
        assert_eq!(
            (1..=7).map(directory_type).collect::<Vec<_>>(),
            [8, 4, 2, 6, 1, 12, 10]
        );
        assert_eq!((directory_type(0), directory_type(99)), (0, 0));
    }
}
