//! What a profile file promises.

use launch_profile::{
    Directory, Error, ImageIdentity, Name, PAGE, Profile, RecordedFile, Trim, Window,
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
        listed: parent.is_none(),
        name: name.into(),
    };
    let file = |directory, text: &str, nid| RecordedFile {
        name: name(directory, text),
        nid,
        size: 1 << 20,
    };
    Profile {
        directories: vec![directory(None, "usr"), directory(Some(0), "lib")],
        files: vec![file(Some(1), "libc.so.6", 1 << 63), file(None, "init", 36)],
        names: vec![name(Some(1), "glibc-hwcaps")],
        windows: vec![
            window(0, 0, 0b1011, 0),
            window(1, 0, 1, 2),
            window(0, 3, u32::MAX, 40),
        ],
    }
}

#[test]
fn a_profile_is_read_as_it_was_written() {
    let bytes = profile().to_bytes();
    assert_eq!(Profile::parse(&bytes).unwrap(), profile());
    assert_eq!(
        Profile::parse(&Profile::default().to_bytes()).unwrap(),
        Profile::default()
    );
}

#[test]
fn a_thousand_windows_take_less_than_eight_kilobytes() {
    let mut profile = profile();
    profile.windows = (0..1000).map(|i| window(i % 2, i / 2, 0xff, i)).collect();
    assert!(
        profile.to_bytes().len() < 8 << 10,
        "{}",
        profile.to_bytes().len()
    );
}

#[test]
fn names_that_lead_out_of_their_directory_are_refused() {
    for bad in ["..", ".", "a/b", "", "a\0"] {
        let mut profile = profile();
        profile.names = vec![name(None, bad)];
        let error = Profile::parse(&profile.to_bytes()).expect_err(bad);
        assert!(matches!(error, Error::Body { .. }), "{bad:?}: {error}");
    }
}

#[test]
fn places_that_are_not_there_are_refused() {
    let mut of_no_file = profile();
    of_no_file.windows[0].file = 2;
    let mut own_parent = profile();
    own_parent.directories[0].parent = Some(0);
    let mut no_directory = profile();
    no_directory.files[0].name.directory = Some(2);
    let mut no_page = profile();
    no_page.windows[0].pages = 0;
    for profile in [of_no_file, own_parent, no_directory, no_page] {
        assert!(matches!(
            Profile::parse(&profile.to_bytes()),
            Err(Error::Body { .. })
        ));
    }
}

#[test]
fn trimming_by_time_keeps_the_first_windows_and_their_files() {
    let mut trimmed = profile();
    trimmed.trim(&Trim {
        until_ms: 1,
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
        bytes: 4 * PAGE,
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
        .map(|i| name(None, &format!("{i:0>200}")))
        .collect();
    assert!(Profile::parse(&large.to_bytes()).is_err());
    large.trim(&Trim::default());
    assert_eq!(Profile::parse(&large.to_bytes()).unwrap(), large);
    assert!(!large.windows.is_empty());
    // Two MiB, which no file names.
    large.directories = (0..10_000)
        .map(|i| Directory {
            parent: None,
            listed: true,
            name: format!("{i:0>200}").into(),
        })
        .collect();
    large.trim(&Trim::default());
    assert_eq!(Profile::parse(&large.to_bytes()).unwrap(), large);
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
