use erofs_engine::{Hipri, Offset, SyncDecompress};

use super::*;

fn parse(list: &str) -> MountOptions {
    MountOptions::parse(&[list]).unwrap()
}

fn refusal(list: &str) -> String {
    MountOptions::parse(&[list]).unwrap_err().to_string()
}

#[test]
fn the_options_of_the_contract_are_understood() {
    let options = parse(
        "workers=unbound,hipri,reserved_pages=64,sync_decompress=off,io_uring=on,cache=16M,\
         offset=8192,device=/a,device=/b,allow_other,subdir=usr/bin,timeout=30,uid=7,gid=8,\
         read_ahead_kb=256",
    );
    assert_eq!(options.engine.workers, WorkersMode::Unbound);
    assert_eq!(options.engine.hipri, Hipri::On);
    assert_eq!(options.engine.reserved_pages, 64);
    assert_eq!(options.engine.sync_decompress, SyncDecompress::Off);
    assert!(options.io_uring && !parse("io_uring=on,io_uring=auto").io_uring);
    assert_eq!(options.engine.cache_bytes, 16 << 20);
    assert_eq!(options.engine.offset, Offset::Bytes(8192));
    assert_eq!(
        options.engine.devices,
        [PathBuf::from("/a"), PathBuf::from("/b")]
    );
    assert_eq!(options.subdir, Some(PathBuf::from("usr/bin")));
    assert_eq!(options.timeout, Some(Duration::from_secs(30)));
    assert_eq!(options.read_ahead_kb, Some(256));
    assert!(options.allow_other);
    assert_eq!((options.uid, options.gid), (Some(7), Some(8)));
}

#[test]
fn the_later_of_two_wins_and_lists_add_up() {
    let options = MountOptions::parse(&["hipri,cache=1K", "nohipri,global_pool_size=16"]).unwrap();
    assert_eq!(options.engine.hipri, Hipri::Off);
    assert_eq!(
        (options.engine.cache_bytes, options.engine.reserved_pages),
        (1024, 16)
    );
    assert_eq!(
        parse("hipri,hipri=auto,offset=auto").engine.hipri,
        Hipri::Auto
    );
}

#[test]
fn generic_options_of_fstab_are_tolerated() {
    let options = parse(
        "rw,nofail,_netdev,noauto,x-systemd.automount,x-gvfs-hide,uhelper=udisks2,user,defaults,\
         nodev,nosuid,noexec,noatime,comment=whatever,X-mount.mkdir,",
    );
    let wanted = MountFlags::RDONLY
        | MountFlags::NODEV
        | MountFlags::NOSUID
        | MountFlags::NOEXEC
        | MountFlags::NOATIME;
    assert_eq!(options.flags(), wanted);
    assert_eq!(parse("nosuid,suid").flags(), MountFlags::RDONLY);
}

#[test]
fn a_refusal_names_the_option_and_what_it_could_be() {
    let all = "; erofast mount --help lists all of them";
    for (list, line) in [
        (
            "ro,wrokers=percpu",
            &*format!(
                "unknown mount option 'wrokers=percpu'; did you mean 'workers'?{}",
                &all[1..]
            ),
        ),
        (
            "noprofile",
            &format!(
                "unknown mount option 'noprofile'; did you mean 'profile=off'?{}",
                &all[1..]
            ),
        ),
        (
            "profile=on",
            "profile=on: must be learn, auto, off or a path with a slash or a dot",
        ),
        (
            "profile=",
            "profile=: must be learn, auto, off or a path with a slash or a dot",
        ),
        ("xyzzy", &format!("unknown mount option 'xyzzy'{all}")),
        ("allow_other=1", "unknown mount option 'allow_other=1'"),
        ("workers", "unknown mount option 'workers'"),
        (
            "reserved_pages=many",
            "reserved_pages=many: must be a whole number, 0 or more",
        ),
        ("io_uring=yes", "io_uring=yes: must be auto, on or off"),
        (
            "cache=1T",
            "cache=1T: must be a number of bytes, optionally followed by K, M or G",
        ),
        (
            "workers=all",
            "workers=all: must be percpu, unbound or inline",
        ),
    ] {
        let refusal = refusal(list);
        assert!(refusal.starts_with(line), "{list}: {refusal}");
    }
}

#[test]
fn everything_in_the_table_is_understood() {
    for known in KNOWN {
        let example = known
            .usage
            .replace("percpu|", "")
            .replace("auto|", "")
            .replace("on|", "");
        let example = example
            .replace("N|auto", "1")
            .replace("=N", "=1")
            .replace("BYTES", "1M");
        let example = example
            .replace("SECONDS", "1")
            .replace("HEX", "00ff")
            .replace("SIZE", "1M")
            .replace("profile|all|", "")
            .replace("learn|PATH|", "")
            .replace("ranges|", "")
            .replace("unbound|", "")
            .replace("off|", "");
        if let Err(error) = MountOptions::parse(&[&example]) {
            panic!("{example}: {error}");
        }
    }
}

#[test]
fn aliases_are_accepted_and_no_other_name_with_an_underscore_for_a_dot() {
    let options = parse(
        "timeout_read=5,http_header_file=/h,http_token_file=/t,http_user_file=/u,\
         http_netrc_file=/n,http_ca_file=/c,oci_plain_http=on,global_pool_size=7,verity_hashoffset=9",
    );
    let remote = &options.engine.remote;
    assert_eq!(
        (remote.timeout, remote.plain_http),
        (Duration::from_secs(5), Some(true))
    );
    let files = [
        (&remote.header_file, "/h"),
        (&remote.token_file, "/t"),
        (&remote.user_file, "/u"),
        (&remote.netrc_file, "/n"),
        (&remote.ca_file, "/c"),
    ];
    for (file, path) in files {
        assert_eq!(file.as_deref(), Some(path.as_ref()));
    }
    assert_eq!(options.engine.reserved_pages, 7);
    assert_eq!(options.engine.verity.hash_offset, Some(9));
    for unknown in ["cache.dir=/x", "io.uring=on", "http_x=1", "timeout_write=1"] {
        let line = format!("unknown mount option '{unknown}'");
        assert!(refusal(unknown).starts_with(&line), "{unknown}");
    }
}

#[test]
fn paths_of_lower_images_become_absolute() {
    let given = parse("lower=a,lower=/b,lower=https://host/c").given;
    let here = std::env::current_dir().unwrap();
    let first = format!("lower={}", here.join("a").display());
    assert_eq!(given, [&*first, "lower=/b", "lower=https://host/c"]);
    assert_eq!(refusal("lower="), "lower=: must be a file or a URL");
}

#[test]
fn a_mount_that_cannot_map_owners_says_so() {
    let notice = |list: &str, root| parse(list).without_mapping(root);
    for (list, root) in [("", false), ("idmap", true), ("idmap,allow_other", false)] {
        assert_eq!(notice(list, root), None, "{list}");
    }
    let needed = "idmap: no effect: the mount must be made by root or with allow_other";
    assert_eq!(notice("idmap", false).as_deref(), Some(needed));
    let other = "idmap: no effect: not possible with allow_root";
    assert_eq!(notice("idmap,allow_root", true).as_deref(), Some(other));
}

#[test]
fn root_and_shared_mounts_have_their_permissions_checked_by_the_kernel() {
    assert!(!parse("").kernel_checks(false));
    assert!(parse("").kernel_checks(true));
    assert!(parse("allow_other").kernel_checks(false));
}

#[test]
fn sloppy_mounts_ignore_what_is_not_known_and_do_not_pass_it_on() {
    let options = MountOptions::parse_sloppy(&["hipri,nonsense=1", "cache=1M"]).unwrap();
    assert_eq!(options.engine.cache_bytes, 1 << 20);
    assert_eq!(options.given, ["hipri", "cache=1M"]);
    assert!(MountOptions::parse_sloppy(&["cache=x"]).is_err());
}

#[test]
fn numbers_that_do_not_fit_are_too_large_and_not_malformed() {
    for list in [
        "cache=99999999999G",
        "read_ahead_kb=99999999999",
        "uid=4294967296",
    ] {
        assert_eq!(refusal(list), format!("{list}: the number is too large"));
    }
    let pages = refusal("reserved_pages=99999999999");
    assert!(
        pages.contains("390624999 MiB is more than this machine has"),
        "{pages}"
    );
    assert!(refusal("offset=99999999999999999999").ends_with("the number is too large"));
    assert!(refusal("fsname=").contains("must be a name"));
    assert!(refusal("remount").starts_with("remount: "));
}

#[test]
fn options_for_urls_are_named_for_a_local_image() {
    let line = |image: &str, list: &str| {
        let request = crate::request::MountRequest {
            image: image.into(),
            mountpoint: "/m".into(),
            options: parse(list),
            foreground: false,
        };
        request.without_effect()
    };
    let given = "hipri,fetch=whole,timeout_read=5,verity=auto,prefetch=all,profile=off";
    assert_eq!(
        line("/a.erofs", given).as_deref(),
        Some("prefetch, fetch, timeout.read: no effect on local files")
    );
    assert_eq!(line("https://host/a.erofs", given), None);
    assert_eq!(line("/a", "fetch=whole,device=https://host/b"), None);
    assert_eq!(line("/a.erofs", "hipri,verity=auto,offset=0"), None);
}
