//! Every `--json` has a schema in docs/schemas, which docs/json.md lists, and the output matches
//! it. The tests of latency-lab check the reports of `erofast lab`, those of erofast-lab the
//! reports of `erofast trace`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{TestImage, bad_images, fixtures, good_images};
use figures::{Shape, Shaped};
use launch_profile::{
    Directory, ImageIdentity, Learned, Name, Profile, Program, RecordedFile, Trim, Window,
};
use serde_json::{Map, Value, json};

/// Schemas for options of a command, and parts that several schemas share.
const BESIDE: [&str; 4] = ["info-block", "info-extents", "lab-common", "stat-mounts"];

fn erofast(arguments: &[&str]) -> Output {
    let mut command = crate::common::erofast();
    command.args(arguments).output().expect("erofast starts")
}

fn printed(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

/// The JSON that a command prints about an image.
fn report(command: &str, image: &TestImage, more: &[&str]) -> Output {
    let path = image.path.to_str().expect("a path");
    let arguments = image.arguments();
    let arguments = arguments.iter().map(String::as_str);
    let words: Vec<&str> = [command, "--json"].into_iter().chain(arguments).collect();
    erofast(&[&words[..], &[path], more].concat())
}

/// Names of the schemas, without their extension.
fn schemas() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
    let files = fs::read_dir(folder).expect("docs/schemas");
    let names = files.map(|file| file.expect("a file").file_name().into_string());
    let names = names.map(|name| name.expect("UTF-8").replace(".json", ""));
    names.collect()
}

#[test]
fn every_command_with_json_has_a_schema_and_every_schema_a_command() {
    let folder = tempfile::tempdir().expect("a directory");
    let made = erofast(&["man", folder.path().to_str().expect("a path")]);
    assert!(made.status.success(), "{made:?}");
    let pages = fs::read_dir(folder.path().join("man1")).expect("pages");
    let mut commands = BTreeSet::from(BESIDE.map(str::to_owned));
    for page in pages {
        let path = page.expect("a page").path();
        let text = fs::read_to_string(&path).expect("a page");
        let name = path.file_stem().expect("a name").to_string_lossy();
        if text.contains("\n\\fB\\-\\-json\\fR") {
            commands.insert(name.replace("erofast-", ""));
        }
    }
    assert!(commands.len() > BESIDE.len(), "the pages have no --json");
    assert_eq!(schemas(), commands);
}

/// The schema of a figure's type.
fn schema_of(shape: &Shape) -> Value {
    let with_null = |mut schema: Value| {
        match schema.get_mut("enum").and_then(Value::as_array_mut) {
            Some(words) => words.push(Value::Null),
            None => schema["type"] = json!([schema["type"], "null"]),
        }
        schema
    };
    match *shape {
        Shape::Integer => json!({"type": "integer"}),
        Shape::Number => json!({"type": "number"}),
        Shape::Flag => json!({"type": "boolean"}),
        Shape::Text => json!({"type": "string"}),
        Shape::Words(words) => json!({"enum": words}),
        Shape::Optional(inner) => with_null(schema_of(inner)),
        Shape::List(inner) => json!({"type": "array", "items": schema_of(inner)}),
        Shape::Map(inner) => json!({"type": "object", "additionalProperties": schema_of(inner)}),
        Shape::Part(_) => {
            let (mut required, mut properties) = (Vec::new(), Map::new());
            add_fields(shape, true, &mut required, &mut properties);
            json!({
                "type": "object", "additionalProperties": true,
                "required": required, "properties": properties,
            })
        }
    }
}

fn add_fields(
    shape: &Shape,
    is_required: bool,
    required: &mut Vec<&'static str>,
    properties: &mut Map<String, Value>,
) {
    match *shape {
        Shape::Optional(inner) => add_fields(inner, false, required, properties),
        Shape::Part(figures) => {
            for figure in figures {
                if figure.is_flat {
                    add_fields(&figure.shape, is_required, required, properties);
                    continue;
                }
                let (mut schema, is_there) = match figure.shape {
                    Shape::Optional(inner) if figure.is_skipped => (schema_of(inner), false),
                    // The figure exists only with a certain feature or option.
                    Shape::Optional(Shape::Part(_)) => (schema_of(&figure.shape), false),
                    _ => (schema_of(&figure.shape), is_required),
                };
                schema["description"] = figure.help.trim().into();
                properties.insert(figure.name.to_owned(), schema);
                if is_there {
                    required.push(figure.name);
                }
            }
        }
        _ => unreachable!("only structs are flat"),
    }
}

/// After a change to the figures, run with EROFAST_WRITE_SCHEMAS=1 to write the file.
#[test]
fn the_schema_of_stat_is_that_of_its_figures() {
    let mut schema = schema_of(&erofs_mount::MountFigures::SHAPE);
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "erofast stat --json".into();
    schema["description"] =
        "The counters of a mount since it was mounted. Later versions may have more.".into();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas/stat.json");
    let text = serde_json::to_string_pretty(&schema).expect("JSON") + "\n";
    if std::env::var_os("EROFAST_WRITE_SCHEMAS").is_some() {
        fs::write(&path, &text).expect("written");
    }
    let is_same = fs::read_to_string(&path).expect("docs/schemas/stat.json") == text;
    assert!(
        is_same,
        "docs/schemas/stat.json does not match the figures: run with EROFAST_WRITE_SCHEMAS=1"
    );
}

#[test]
fn the_page_lists_every_schema() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let page = fs::read_to_string(page).expect("docs/json.md");
    for name in schemas() {
        let link = format!("(schemas/{name}.json)");
        assert!(page.contains(&link), "docs/json.md does not list {name}");
    }
}

#[test]
fn what_is_printed_about_images_fits() {
    for image in good_images(&fixtures()) {
        let info = printed(&report("info", &image, &[]));
        crate::schema::check("info", &info);
        crate::schema::check("check", &printed(&report("check", &image, &[])));
        let block = printed(&report("info", &image, &["--block", "0"]));
        crate::schema::check("info-block", &block);
        let listing = report("ls", &image, &["-R"]);
        let entries = String::from_utf8(listing.stdout).expect("UTF-8");
        let mut listed_extents = false;
        for line in entries.lines() {
            let entry: Value = serde_json::from_str(line).expect("JSON");
            crate::schema::check("ls", &entry);
            if let Some(path) = entry["path"].as_str()
                && entry["type"] == "f"
                && !listed_extents
            {
                listed_extents = true;
                let extents = printed(&report("info", &image, &["--extents", path]));
                crate::schema::check("info-extents", &extents);
            }
        }
    }
}

#[test]
fn what_is_printed_about_bad_images_fits() {
    let images = fs::read_dir(bad_images()).expect("images");
    let paths = images.map(|image| image.expect("an image").path());
    let (mut faults, mut failures) = (0, 0);
    for path in paths.filter(|path| path.extension().is_some_and(|end| end == "erofs")) {
        let path = path.to_str().expect("a path");
        let checked = erofast(&["check", "--json", path]);
        if !checked.stdout.is_empty() {
            let report = printed(&checked);
            crate::schema::check("check", &report);
            faults += report["faults"].as_array().map_or(0, Vec::len);
        }
        let folder = tempfile::tempdir().expect("a directory");
        let to = folder.path().to_str().expect("a path");
        let extracted = erofast(&["extract", "--json", path, to]);
        if !extracted.stdout.is_empty() {
            let report = printed(&extracted);
            crate::schema::check("extract", &report);
            failures += report["failures"].as_array().map_or(0, Vec::len);
        }
    }
    assert!(faults > 0 && failures > 0, "the bad images have no faults");
}

#[test]
fn what_is_printed_about_an_extraction_fits() {
    let image = fixtures().join("kitchen-sink.erofs");
    let folder = tempfile::tempdir().expect("a directory");
    let to = folder.path().to_str().expect("a path");
    let output = erofast(&["extract", "--json", image.to_str().expect("a path"), to]);
    crate::schema::check("extract", &printed(&output));
}

#[test]
fn what_is_printed_about_a_profile_fits() {
    let profile = Profile {
        directories: vec![Directory {
            parent: None,
            listed_ms: Some(0),
            name: b"lib".to_vec(),
        }],
        files: vec![RecordedFile {
            name: Name {
                directory: Some(0),
                name: "first".into(),
            },
            size: 100_000,
        }],
        windows: vec![Window {
            file: 0,
            number: 0,
            pages: 0b11,
            at_ms: 0,
        }],
        ..Profile::default()
    };
    let learned = Learned {
        image: Some(ImageIdentity::default()),
        programs: vec![Program {
            path: b"lib/first".to_vec(),
            launches: 2,
            idle_mounts: 1,
            trim: Trim::default(),
            profile,
        }],
    };
    let home = tempfile::tempdir().expect("a directory");
    let folder = home.path().join("erofast");
    fs::create_dir(&folder).expect("a directory");
    let path = folder.join("image.profile");
    fs::write(&path, learned.to_text()).expect("written");
    let output = erofast(&["profile", "show", "--json", path.to_str().expect("a path")]);
    let shown = printed(&output);
    assert_eq!(shown["programs"][0]["path"], "lib/first");
    crate::schema::check("profile-show", &shown);
    let mut list = Command::new(env!("CARGO_BIN_EXE_erofast"));
    list.args(["profile", "list", "--json"]);
    // Root uses the system's folder, whatever the environment says.
    let output = list
        .env("XDG_CACHE_HOME", home.path())
        .output()
        .expect("a program");
    let listed = printed(&output);
    let own = &listed["images"][0]["programs"][0]["launches"];
    assert!(
        rustix::process::geteuid().is_root() || *own == 2,
        "{listed}"
    );
    crate::schema::check("profile-list", &listed);
}

#[test]
fn what_is_printed_about_the_cache_fits() {
    use erofs_engine::remote_image::message::Identity;
    use erofs_engine::remote_image::store::BLOCK;
    use erofs_engine::remote_image::{ImageUrl, Options, home};
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().to_str().expect("a path");
    let arguments = ["cache", "list", "--json", "--cache-dir", path];
    let none = printed(&erofast(&arguments));
    crate::schema::check("cache-list", &none);
    assert_eq!(none["images"].as_array().map(Vec::len), Some(0));
    let source = ImageUrl::parse("http://host/a?secret").unwrap().unwrap();
    let options = Options {
        cache_dir: Some(folder.path().to_owned()),
        ..Options::default()
    };
    let identity = Identity {
        length: 100_000,
        etag: Some("1".into()),
        ..Identity::default()
    };
    let store = home::open(&source, &options, &identity).expect("an entry");
    store.write_block(0, &[7; BLOCK as usize]).expect("a block");
    let listed = printed(&erofast(&arguments));
    crate::schema::check("cache-list", &listed);
    let image = &listed["images"][0];
    assert_eq!(image["url"], "http://host/a");
    assert_eq!(
        (image["bytes"].as_u64(), image["cached_bytes"].as_u64()),
        (Some(100_000), Some(BLOCK))
    );
    assert_eq!(image["in_use"], true);
}

/// A mount that is unmounted even if a test fails.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let mut umount = Command::new(env!("CARGO_BIN_EXE_erofast"));
        let output = umount.arg("umount").arg(&self.0).output();
        let is_gone = output.is_ok_and(|output| output.status.success());
        assert!(is_gone || std::thread::panicking(), "it stays mounted");
    }
}

#[test]
fn what_is_printed_about_a_mount_fits() {
    if let Err(error) = fs::File::options().read(true).write(true).open("/dev/fuse") {
        return println!("skipped: /dev/fuse: {error}");
    }
    let folder = tempfile::tempdir().expect("a directory");
    let point = folder.path().to_str().expect("a path");
    let image = fixtures().join("lz4-4k.erofs");
    let mounted = erofast(&["mount", image.to_str().expect("a path"), point]);
    if !mounted.status.success() {
        let why = String::from_utf8_lossy(&mounted.stderr);
        return println!("skipped: {}", why.trim());
    }
    let guard = Mounted(folder.path().to_owned());
    assert!(fs::read_dir(point).expect("a mount").count() > 0);
    let counters = printed(&erofast(&["stat", "--json", point]));
    crate::schema::check("stat", &counters);
    assert!(counters["requests"].as_u64() > Some(0));
    let file = fs::read_dir(point)
        .expect("a mount")
        .next()
        .expect("a file")
        .expect("its name")
        .path();
    let of_file = printed(&erofast(&[
        "stat",
        "--json",
        file.to_str().expect("a path"),
    ]));
    assert_eq!(of_file["mountpoint"], point);
    let all = printed(&erofast(&["stat", "--json"]));
    crate::schema::check("stat-mounts", &all);
    let mounts = all["mounts"].as_array().expect("mounts");
    let own = mounts.iter().find(|mount| mount["mountpoint"] == point);
    crate::schema::check("stat", own.expect("the mount of this test"));
    let table = String::from_utf8_lossy(&erofast(&["stat"]).stdout).into_owned();
    assert!(
        table.starts_with("mount ") && table.contains(point),
        "{table}"
    );
    let series = erofast(&["stat", "--prometheus"]).stdout;
    let label = format!("erofast_requests_total{{mountpoint=\"{point}\"");
    assert!(String::from_utf8_lossy(&series).contains(&label));
    drop(guard);
}

#[test]
fn a_report_that_does_not_fit_is_found() {
    let good = printed(&report("check", &good_images(&fixtures())[0], &[]));
    assert_eq!(crate::schema::fault("check", &good), None);
    let changed = |field: &str, value: Value| {
        let mut bad = good.clone();
        bad[field] = value;
        crate::schema::fault("check", &bad).unwrap_or_default()
    };
    assert!(changed("files", "many".into()).starts_with("check.files: "));
    assert_eq!(changed("new", 1.into()), "check.new is not in the schema");
    let fault = json!([{"path": "a", "nid": 1}]);
    assert_eq!(changed("faults", fault), "check.faults[0]: no field error");
    let mut missing = good.clone();
    missing.as_object_mut().expect("an object").remove("bytes");
    let fault = crate::schema::fault("check", &missing);
    assert_eq!(fault.as_deref(), Some("check: no field bytes"));
}
