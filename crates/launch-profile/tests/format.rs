//! Tests the format of a profile file.

use launch_profile::{
    Directory, Error, ImageIdentity, LookedUp, Name, PAGE, Profile, RecordedFile, Trim, Window,
};

fn name(directory: Option<u32>, name: &str) -> Name {
    Name {
        directory,
        name: name.into(),
    }
}

fn window(file: u32, number: u32, pages: u32, at_ms: u32) -> Window {
    Window {
        file,
        number,
        pages,
        at_ms,
    }
}

fn profile() -> Profile {
    let directory = |parent, name: &str| Directory {
        parent,
        listed_ms: parent.is_none().then_some(0),
        name: name.into(),
    };
    let file = |directory, text: &str| RecordedFile {
        name: name(directory, text),
        size: 1 << 20,
    };
    Profile {
        directories: vec![directory(None, "usr"), directory(Some(0), "lib")],
        files: vec![file(Some(1), "libc.so.6"), file(None, "init")],
        names: vec![LookedUp {
            name: name(Some(1), "glibc-hwcaps"),
            at_ms: 1,
        }],
        windows: vec![
            window(0, 0, 0b1011, 0),
            window(1, 0, 1, 2),
            window(0, 3, u32::MAX, 40),
        ],
    }
}

const TEXT: &str = "\
list 0 usr
file 1048576 usr/lib/libc.so.6
read 0 0-1,3
name 1 usr/lib/glibc-hwcaps
file 1048576 init
read 2 0
file 1048576 usr/lib/libc.so.6
read 40 96-127
";

#[test]
fn a_profile_is_read_as_it_was_written() {
    assert_eq!(profile().to_text(), TEXT);
    assert_eq!(Profile::parse(TEXT), Ok(profile()));
    assert_eq!(Profile::parse(""), Ok(Profile::default()));
    assert_eq!(Profile::default().to_text(), "");
}

#[test]
fn pages_of_several_windows_may_stand_in_one_line() {
    let read = Profile::parse("file 9 a\nread 3 31-64,70,2\nread 1 5-5\n").unwrap();
    assert_eq!(
        read.windows,
        [
            window(0, 0, 1 << 31, 3),
            window(0, 1, u32::MAX, 3),
            window(0, 2, 0b100_0001, 3),
            window(0, 0, 0b100, 3),
            window(0, 0, 0b10_0000, 3),
        ],
        "times do not go back"
    );
}

#[test]
fn names_that_lead_out_of_their_directory_are_refused() {
    for bad in ["..", ".", "a//b", "", "/a", "a/", "a\\x00", "a/../b"] {
        for line in ["name 0", "file 7", "list 0"] {
            let parsed = Profile::parse(&format!("{line} {bad}\n"));
            match line == "list 0" && bad.is_empty() {
                true => assert_eq!(parsed, Ok(Profile::default()), "the root"),
                false => assert!(
                    matches!(parsed, Err(Error::Line { number: 1, .. })),
                    "{bad:?}"
                ),
            }
        }
    }
}

#[test]
fn trimming_by_time_keeps_the_first_windows_and_their_files() {
    let mut trimmed = profile();
    trimmed.trim(&Trim {
        until_ms: Some(1),
        ..Trim::default()
    });
    assert_eq!(trimmed.windows, [window(0, 0, 0b1011, 0)]);
    assert_eq!(trimmed.files.len(), 1);
    assert_eq!(trimmed.bytes(), 3 * PAGE);
}

#[test]
fn trimming_by_bytes_passes_over_what_does_not_fit() {
    let mut trimmed = profile();
    trimmed.trim(&Trim {
        bytes: Some(4 * PAGE),
        ..Trim::default()
    });
    assert_eq!(
        trimmed.windows,
        [window(0, 0, 0b1011, 0), window(1, 0, 1, 2)]
    );
    assert_eq!(trimmed.files.len(), 2);
}

#[test]
fn what_exceeds_the_limits_is_trimmed_to_what_can_be_read() {
    let mut large = profile();
    large.windows = (0..200_000).map(|i| window(0, i, u32::MAX, i)).collect();
    large.names = (0..100_000)
        .map(|i| LookedUp {
            name: name(None, &format!("{i:0>200}")),
            at_ms: 0,
        })
        .collect();
    assert!(Profile::parse(&large.to_text()).is_err());
    large.trim(&Trim::default());
    assert_eq!(
        Profile::parse(&large.to_text()).unwrap().windows,
        large.windows
    );
    assert!(!large.windows.is_empty());
    // 2 MiB of directories that contain no file.
    large.directories = (0..10_000)
        .map(|i| Directory {
            parent: None,
            listed_ms: Some(0),
            name: format!("{i:0>200}").into(),
        })
        .collect();
    large.trim(&Trim::default());
    let read = Profile::parse(&large.to_text()).unwrap();
    assert_eq!(read.to_text(), large.to_text());
}

#[test]
fn each_image_has_a_file_name_of_its_own() {
    let image = ImageIdentity {
        uuid: std::array::from_fn(|i| i as u8),
        build_time: 1_700_000_000,
        build_time_nsec: 7,
        blocks: 1 << 33,
        inodes: 11_000,
        content: 1,
    };
    let later = ImageIdentity {
        build_time_nsec: 8,
        ..image
    };
    let reproducible = ImageIdentity {
        content: ImageIdentity::content_of(b"other metadata"),
        ..image
    };
    for other in [later, reproducible] {
        assert_ne!(image.file_name(None), other.file_name(None));
        assert!(!image.is_named_by(&other.file_name(Some(7))));
    }
    assert!(image.is_named_by(&image.file_name(Some(7))));
    assert!(
        image
            .file_name(None)
            .starts_with("00010203-0405-0607-0809-0a0b0c0d0e0f-")
    );
}
