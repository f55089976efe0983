//! The man pages, made from the flag table, the table of mount options and docs/tuning.md.

use clap::{Arg, Command, CommandFactory};

use super::markdown;
use super::roff::{Page, bold, italic, plain};
use crate::cli::{Cli, HelperArgs};

/// The source of erofast(7).
const TUNING: &str = include_str!("../../../../../docs/tuning.md");

/// A page and the name of its file.
#[derive(Debug)]
pub struct File {
    pub name: String,
    /// Of the manual: 1, 7 or 8.
    pub section: u8,
    pub text: String,
}

/// All pages.
pub fn all() -> Vec<File> {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut pages = Vec::new();
    of_command(&root, &mut Vec::new(), &mut pages);
    pages.push(of_helper());
    pages.push(on_tuning());
    pages
}

fn of_command(command: &Command, path: &mut Vec<String>, pages: &mut Vec<File>) {
    path.push(command.get_name().to_owned());
    let name = path.join("-");
    let mut page = Page::new(&name, 1, "User Commands");
    page.section("name");
    page.line(&format!("{} \\- {}", plain(&name), plain(&about(command))));
    synopsis(&mut page, command);
    page.section("description");
    let described = command.get_long_about().or(command.get_about());
    for paragraph in described
        .map(ToString::to_string)
        .unwrap_or_default()
        .split("\n\n")
    {
        page.paragraph(&plain(paragraph));
    }
    if command.has_subcommands() {
        page.section("commands");
        for sub in visible(command) {
            let reference = format!(
                "{}\\fB({})\\fR",
                bold(&format!("{name}-{}", sub.get_name())),
                1
            );
            page.item(&reference, &plain(&about(sub)));
        }
    }
    options(&mut page, command);
    if name == "erofast-mount" {
        mount_options(&mut page);
    }
    examples(&mut page, &path.join(" "));
    page.section("exit status");
    page.item("0", "Everything is as it should be.");
    page.item("1", "The operation failed, or the image is corrupt.");
    page.item(
        "2",
        "Usage error: an unknown option or a value out of range.",
    );
    if path.len() == 1 {
        environment(&mut page);
    }
    see_also(&mut page, path, command);
    pages.push(File {
        name: format!("{name}.1"),
        section: 1,
        text: page.finish(),
    });
    for sub in visible(command) {
        of_command(sub, path, pages);
    }
    path.pop();
}

/// mount.erofast(8): what mount(8) calls.
fn of_helper() -> File {
    let mut command = HelperArgs::command();
    command.build();
    let mut page = Page::new("mount.erofast", 8, "System Administration");
    page.section("name");
    page.line("mount.erofast, mount.fuse.erofast \\- mount an EROFS image in user space");
    synopsis(&mut page, &command);
    page.section("description");
    page.paragraph(
        "mount(8) calls this program for a filesystem of type \\fBerofast\\fR or \
         \\fBfuse.erofast\\fR, on a command line or in fstab(5). It is the program \
         \\fBerofast\\fR under another name and does what \\fBerofast mount\\fR does: it returns \
         when the image can be used, and a daemon serves it until it is unmounted.",
    );
    options(&mut page, &command);
    mount_options(&mut page);
    page.paragraph(
        "Options of mount(8) and systemd that mean nothing here (rw, defaults, nofail, x\\-...) \
         are accepted and ignored; others that are not in the list are refused.",
    );
    page.section("files");
    page.item(
        "/etc/fstab",
        "A line that mounts an image at boot, if it is there:",
    );
    page.verbatim(["/var/lib/images/app.erofs  /srv/app  erofast  ro,nofail,hipri=auto  0  0"]);
    examples(&mut page, "mount.erofast");
    page.section("exit status");
    page.item("0", "The image is mounted.");
    page.item("1", "It is not; one line on the standard error says why.");
    references(
        &mut page,
        &[
            "erofast(1)",
            "erofast(7)",
            "erofast-mount(1)",
            "fstab(5)",
            "mount(8)",
        ],
    );
    File {
        name: "mount.erofast.8".to_owned(),
        section: 8,
        text: page.finish(),
    }
}

/// erofast(7): how to tune a mount.
fn on_tuning() -> File {
    let mut page = Page::new("erofast", 7, "Miscellaneous Information");
    page.section("name");
    page.line("erofast \\- tuning a mount: workers, priority, page pool, cache, io_uring");
    page.section("description");
    markdown::render(TUNING, &mut page);
    references(
        &mut page,
        &[
            "erofast(1)",
            "erofast-mount(1)",
            "erofast-stat(1)",
            "mount.erofast(8)",
        ],
    );
    File {
        name: "erofast.7".to_owned(),
        section: 7,
        text: page.finish(),
    }
}

fn about(command: &Command) -> String {
    let about = command.get_about().map(ToString::to_string);
    about.unwrap_or_default().trim_end_matches('.').to_owned()
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set())
}

fn synopsis(page: &mut Page, command: &Command) {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").replace(['<', '>'], "");
    page.section("synopsis");
    page.line(&plain(&usage));
}

fn options(page: &mut Page, command: &Command) {
    page.section("options");
    let shown = || command.get_arguments().filter(|arg| !arg.is_hide_set());
    for arg in shown().filter(|arg| arg.is_positional()) {
        page.item(&italic(&value_name(arg)), &meaning(arg));
    }
    for arg in shown().filter(|arg| !arg.is_positional()) {
        let short = arg.get_short().map(|short| bold(&format!("-{short}")));
        let long = arg.get_long().map(|long| bold(&format!("--{long}")));
        let mut term = [short, long]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", ");
        if arg.get_action().takes_values() {
            term = format!("{term} {}", italic(&value_name(arg)));
        }
        page.item(&term, &meaning(arg));
    }
}

fn value_name(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let joined: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    match joined.join(" ") {
        name if name.is_empty() => arg.get_id().as_str().to_uppercase(),
        name => name,
    }
}

/// The help of an argument, with its default and the values it takes.
fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help());
    let mut text = help.map(ToString::to_string).unwrap_or_default();
    if !text.ends_with(['.', ')']) || !arg.get_default_values().is_empty() {
        text = text.trim_end_matches('.').to_owned();
    }
    if !arg.get_action().takes_values() {
        return plain(&text);
    }
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| match value.get_help() {
            Some(help) => format!("{} ({help})", value.get_name()),
            None => value.get_name().to_owned(),
        })
        .collect();
    if !values.is_empty() {
        text.push_str(&format!("; one of: {}", values.join(", ")));
    }
    let defaults: Vec<_> = arg
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy())
        .collect();
    if !defaults.is_empty() {
        text.push_str(&format!(" (default: {})", defaults.join(" ")));
    }
    plain(&text)
}

fn mount_options(page: &mut Page) {
    page.section("mount options");
    for option in erofs_fuse::KNOWN {
        page.item(&bold(option.usage), &plain(option.meaning));
    }
}

fn examples(page: &mut Page, command: &str) {
    let examples = erofast_cli::examples(command);
    if examples.is_empty() {
        return;
    }
    page.section("examples");
    for example in examples {
        page.paragraph(&plain(&format!("{}:", example.what)));
        page.verbatim([example.command]);
    }
}

fn environment(page: &mut Page) {
    page.section("environment");
    page.item(
        "\\fBNO_COLOR\\fR",
        "Set to anything but nothing: no colours, in the help nor in progress bars.",
    );
    page.item(
        "\\fBTERM\\fR",
        "\\fBdumb\\fR: no progress bars. There are none either where the standard error is no terminal.",
    );
}

fn see_also(page: &mut Page, path: &[String], command: &Command) {
    let mut others = Vec::new();
    match path {
        [_] => others.extend(["erofast(7)".to_owned(), "mount.erofast(8)".to_owned()]),
        [above @ .., _] => {
            others.push(format!("{}(1)", above.join("-")));
            if command.get_name() == "mount" {
                others.extend(["erofast(7)".to_owned(), "mount.erofast(8)".to_owned()]);
            }
        }
        [] => {}
    }
    references(page, &others);
}

fn references(page: &mut Page, pages: &[impl AsRef<str>]) {
    page.section("see also");
    let pages: Vec<String> = pages
        .iter()
        .filter_map(|page| page.as_ref().split_once('('))
        .map(|(name, section)| format!("{}({section}", bold(name)))
        .collect();
    page.line(&pages.join(", "));
}
