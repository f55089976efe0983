//! The man pages. clap_mangen formats the flag table; mount options, examples and the common parts
//! are Markdown, like docs/tuning.md, which becomes erofast(7).

use std::io;
use std::time::SystemTime;

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use erofs_mount::{KNOWN, KnownOption};
use roff::Roff;

use crate::cli::Cli;
use crate::cli::mount::HelperArgs;
use crate::cli::tools::erofs_utils::{DumpArgs, FsckArgs};
use crate::tools::text;

/// The source of erofast(7).
const TUNING: &str = include_str!("../../../../../docs/tuning.md");

const EXIT_STATUS: &str = include_str!("../../../man/exit-status.md");
const ENVIRONMENT: &str = include_str!("../../../man/environment.md");
const HELPER: &str = include_str!("../../../man/helper.md");
const HELPER_STATUS: &str = include_str!("../../../man/helper-status.md");

/// A page and the name of its file.
pub struct File {
    pub name: String,
    /// Section of the manual: 1, 7 or 8.
    pub section: u8,
    pub text: String,
}

/// Creates all pages.
pub fn all() -> io::Result<Vec<File>> {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut pages = Vec::new();
    of_commands(&root, None, &mut pages)?;
    let helper =
        mount_options() + "\n" + HELPER + &examples("mount.erofast") + "\n" + HELPER_STATUS;
    let helper = helper + &see_also(&["erofast(1)", "erofast(7)", "fstab(5)", "mount(8)"]);
    pages.push(page(HelperArgs::command(), 8, &helper)?);
    for old in [FsckArgs::command(), DumpArgs::command()] {
        // Without the prefix, the pages would have the same names as those of erofs-utils.
        let name = format!("erofast-{}", old.get_name());
        pages.push(page(old.display_name(name), 1, &see_also(&["erofast(1)"]))?);
    }
    let tuning =
        Command::new("erofast").about("tuning a mount: workers, priority, cache, io_uring");
    let (_, text) = TUNING.split_once('\n').unwrap_or_default();
    let others = see_also(&["erofast(1)", "erofast-mount(1)", "mount.erofast(8)"]);
    pages.push(page(
        tuning,
        7,
        &format!("## Description\n{text}\n{others}"),
    )?);
    Ok(pages)
}

/// Adds the page of a command, and of each command below it.
fn of_commands(command: &Command, above: Option<&str>, pages: &mut Vec<File>) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let mut rest = String::new();
    let mut others = vec![format!("{}(1)", above.unwrap_or("erofast-mount"))];
    if name == "erofast-mount" {
        rest += &mount_options();
    }
    rest += &examples(command.get_bin_name().unwrap_or(name));
    rest.extend(["\n", EXIT_STATUS]);
    if above.is_none() {
        rest.extend(["\n", ENVIRONMENT]);
    }
    if above.is_none() || name == "erofast-mount" {
        others.extend(["erofast(7)".to_owned(), "mount.erofast(8)".to_owned()]);
    }
    rest += &see_also(&others);
    pages.push(page(command.clone(), 1, &rest)?);
    let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    visible
        .into_iter()
        .try_for_each(|sub| of_commands(sub, Some(name), pages))
}

/// A page: clap's description of `command`, followed by the Markdown text `rest`. A page in section
/// 7 belongs to no command.
fn page(mut command: Command, section: u8, rest: &str) -> io::Result<File> {
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").replace(['<', '>'], "");
    let name = command
        .get_display_name()
        .unwrap_or(command.get_name())
        .to_owned();
    let has_commands = command.get_subcommands().any(|sub| !sub.is_hide_set());
    let man = Man::new(command.override_usage(usage))
        .title(name.to_uppercase())
        .section(section.to_string())
        .date(date())
        .source(concat!("erofast ", env!("CARGO_PKG_VERSION")))
        .manual(manual(section));
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    if section != 7 {
        man.render_synopsis_section(&mut out)?;
        man.render_description_section(&mut out)?;
        man.render_options_section(&mut out)?;
    }
    if has_commands {
        man.render_subcommands_section(&mut out)?;
    }
    man_page::render(rest).to_writer(&mut out)?;
    Ok(File {
        name: man.get_filename(),
        section,
        text: tidy(&String::from_utf8_lossy(&out)),
    })
}

fn manual(section: u8) -> &'static str {
    match section {
        1 => "User Commands",
        7 => "Miscellaneous Information",
        _ => "System Administration",
    }
}

/// Moves the roff preamble, which each section repeats, to the beginning, and escapes ASCII
/// characters that roff would print as accents.
fn tidy(text: &str) -> String {
    let preamble = Roff::new().render();
    let text = text.replace(&preamble, "");
    // Before a list of possible values, clap_mangen writes an empty line between two breaks.
    let text = text.replace(".br\n\n.br\n", ".sp\n");
    let text = text
        .replace('`', r"\(ga")
        .replace('~', r"\(ti")
        .replace('^', r"\(ha");
    preamble + &text
}

/// The date from `SOURCE_DATE_EPOCH`, for reproducible pages, or else today's.
fn date() -> String {
    let of_source = std::env::var("SOURCE_DATE_EPOCH").ok();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = || now.map_or(0, |now| now.as_secs().cast_signed());
    let seconds = of_source.and_then(|seconds| seconds.parse().ok());
    let time = text::time(seconds.unwrap_or_else(now));
    time.split(' ').next().unwrap_or_default().to_owned()
}

fn mount_options() -> String {
    let row = |option: &KnownOption| {
        let cells = [option.usage, option.meaning].map(|cell| cell.replace('|', "\\|"));
        format!("| `{}` | {} |\n", cells[0], cells[1])
    };
    let rows: String = KNOWN.iter().map(row).collect();
    format!("## Mount options\n| option | meaning |\n| --- | --- |\n{rows}")
}

fn examples(command: &str) -> String {
    let examples = erofast_cli::examples(command);
    let lines = examples
        .iter()
        .map(|example| format!("{}:\n```\n{}\n```\n", example.what, example.command));
    match examples.is_empty() {
        true => String::new(),
        false => format!("\n## Examples\n{}", lines.collect::<String>()),
    }
}

fn see_also(pages: &[impl AsRef<str>]) -> String {
    let bold = |page: &str| page.replacen('(', "**(", 1);
    let pages: Vec<String> = pages
        .iter()
        .map(|page| "**".to_owned() + &bold(page.as_ref()))
        .collect();
    format!("\n## See also\n{}\n", pages.join(", "))
}
