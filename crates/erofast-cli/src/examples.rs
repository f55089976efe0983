//! Examples of use, for the long help and the man pages. A test parses each of them.

/// One example.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// The command it belongs to, with spaces: `erofast lab launch`.
    of: &'static str,
    /// Its purpose.
    pub what: &'static str,
    /// The command to type.
    pub command: &'static str,
}

const fn example(of: &'static str, what: &'static str, command: &'static str) -> Example {
    Example { of, what, command }
}

/// All examples.
const EXAMPLES: &[Example] = &[
    example(
        "erofast mount",
        "Mount an image, use it, take it away",
        "erofast mount app.erofs /mnt && ls /mnt && erofast umount /mnt",
    ),
    example(
        "erofast mount",
        "With real-time workers and 64 pages kept ready",
        "erofast mount -o hipri,reserved_pages=64 app.erofs /mnt",
    ),
    example(
        "erofast mount",
        "Learn nothing of launches, and read nothing ahead for them",
        "erofast mount -o profile=off app.erofs /mnt",
    ),
    example(
        "erofast mount",
        "An image on a web server: what is read of it is fetched and kept",
        "erofast mount https://example.org/app.erofs /mnt",
    ),
    example(
        "erofast cache list",
        "Images that were fetched, and how much of them is there",
        "erofast cache list",
    ),
    example(
        "erofast cache prune",
        "Remove what is not in use, but for 4 GiB of what was used last",
        "erofast cache prune --cache-size=4G",
    ),
    example(
        "erofast cache fetch",
        "Have all of an image there before it is mounted",
        "erofast cache fetch https://example.org/app.erofs",
    ),
    example(
        "erofast profile remove",
        "Remove one program of an image",
        "erofast profile remove app.erofs usr/bin/cc",
    ),
    example(
        "erofast profile list",
        "Programs whose launches were learned of an image",
        "erofast profile list app.erofs",
    ),
    example(
        "erofast profile show",
        "What a launch read",
        "erofast profile show app.erofs",
    ),
    example(
        "erofast profile show",
        "Files in the order of the launch, for tar --files-from and mkfs.erofs --tar",
        "erofast profile show --list app.erofs",
    ),
    example(
        "erofast profile trim",
        "Only the first two seconds, and 64 MiB at the most",
        "erofast profile trim --until 2000 --size 64 app.erofs",
    ),
    example(
        "erofast profile export",
        "What was learned of an image here, as a file that travels with it",
        "erofast profile export app.erofs -o app.erofs.launches",
    ),
    example(
        "erofast profile merge",
        "One file of two",
        "erofast profile merge one.launches two.launches -o app.erofs.launches",
    ),
    example(
        "erofast profile record",
        "In a build job: app.erofs.launches has what three launches read",
        "erofast profile record app.erofs --runs 3 -- {}/bin/app --version",
    ),
    example(
        "erofast profile record",
        "A program that needs its libraries at their places",
        "erofast profile record tools.erofs --root -- /usr/bin/gdb -batch",
    ),
    example("erofast umount", "Unmount", "erofast umount /mnt"),
    example(
        "erofast umount",
        "Also while programs use it: they keep what they have open",
        "erofast umount --lazy /mnt",
    ),
    example(
        "erofast upgrade",
        "After a new version was installed; programs that use the mount notice nothing",
        "erofast upgrade /mnt",
    ),
    example(
        "erofast upgrade",
        "All mounts, then which version serves each",
        "erofast upgrade --all && erofast stat",
    ),
    example("erofast stat", "All mounts, a line each", "erofast stat"),
    example(
        "erofast stat",
        "How many requests were served on the CPU that asked",
        "erofast stat --json /mnt",
    ),
    example(
        "erofast stat",
        "What happens at this moment, as top shows it",
        "erofast stat --watch /mnt",
    ),
    example(
        "erofast info",
        "What an image is made of",
        "erofast info app.erofs",
    ),
    example(
        "erofast info",
        "Which file does a bad sector hurt?",
        "erofast info --block 1234 app.erofs",
    ),
    example(
        "erofast ls",
        "Everything, as ls -lR shows it",
        "erofast ls -lR app.erofs",
    ),
    example(
        "erofast ls",
        "Some of it; the quotes keep the pattern from the shell",
        "erofast ls -l app.erofs '/usr/lib/**/*.so'",
    ),
    example(
        "erofast cat",
        "One file",
        "erofast cat app.erofs /etc/os-release",
    ),
    example(
        "erofast check",
        "Read everything by all CPUs",
        "erofast check app.erofs",
    ),
    example(
        "erofast check",
        "Compare with the sums of the tree it was made from: (cd tree && find . -type f -exec sha256sum {} +) > sums",
        "erofast check --manifest sums app.erofs",
    ),
    example(
        "erofast extract",
        "Extract the whole image",
        "erofast extract app.erofs tree",
    ),
    example(
        "erofast extract",
        "Go on after Ctrl-C",
        "erofast extract --continue app.erofs tree",
    ),
    example(
        "erofast extract",
        "One file of it, into this directory",
        "erofast extract --path /etc/os-release --force app.erofs .",
    ),
    example(
        "erofast extract",
        "One directory of it, as a tar stream",
        "erofast extract --path /usr/share app.erofs - > share.tar",
    ),
    example(
        "erofast trace record",
        "Record while a command runs",
        "erofast trace record -o t.perfetto-trace -- make",
    ),
    example(
        "erofast trace latency",
        "Waits by work queue",
        "erofast trace latency --by workqueue t.perfetto-trace",
    ),
    example(
        "erofast trace diff",
        "What waits more since an update",
        "erofast trace diff before.perfetto-trace after.perfetto-trace",
    ),
    example(
        "erofast trace diff",
        "By work queue, on a page",
        "erofast trace diff --by workqueue --html diff.html monday.dat tuesday.dat",
    ),
    example(
        "erofast lab launch",
        "Compare cold launches under load",
        "erofast lab launch app.erofs --engine kernel-loop --engine erofast:percpu,hipri -- {}/bin/app",
    ),
    example(
        "erofast lab run",
        "Two commands, under load",
        "erofast lab run --load fio -- gzip -kf big -- zstd -qkf big",
    ),
    example(
        "erofast lab run",
        "A parameter, with cold caches before each launch",
        "erofast lab run --scan threads=1,2,4 --prepare ./drop-caches -- xz -kfT{threads} big",
    ),
    example(
        "erofast lab read",
        "Throughput beside the kernel's",
        "erofast lab read app.erofs --engine kernel --engine erofast:percpu",
    ),
    example(
        "erofast lab suite",
        "What a user feels: several programs and trees, one row each",
        "erofast lab suite --iterations 20",
    ),
    example(
        "erofast lab diff",
        "What an update changed",
        "erofast lab diff before.json after.json",
    ),
    example(
        "erofast lab report",
        "The page of a run, on another machine",
        "erofast lab report launches.json --html launches.html",
    ),
    example(
        "erofast lab report",
        "Three days side by side",
        "erofast lab report monday.json tuesday.json wednesday.json --html days.html",
    ),
    example(
        "erofast lab pressure",
        "What a page pool saves a program that starts last",
        "erofast lab pressure app.erofs --limit 128 -- {}/bin/app",
    ),
    example(
        "erofast lab hotplug",
        "Take a CPU away two hundred times",
        "erofast lab hotplug app.erofs --cycles 200",
    ),
    example(
        "erofast lab kernel",
        "The kernel's work queue against its threads, keeping packages for the next run",
        "erofast lab kernel --work ~/kernel-lab --html kernel.html",
    ),
    example(
        "erofast lab kernel",
        "The same on an emulated arm64 machine, with the static programs of `make static`",
        "erofast lab kernel --arch arm64 --programs target/dist",
    ),
    example(
        "erofast completions",
        "For the bash of this user",
        "erofast completions bash > ~/.local/share/bash-completion/completions/erofast",
    ),
    example(
        "erofast man",
        "Write the pages, then read one",
        "erofast man /tmp/man && man -M /tmp/man erofast-mount",
    ),
    example(
        "mount.erofast",
        "By type, as fstab does",
        "mount -t erofast -o hipri=auto /var/lib/images/app.erofs /srv/app",
    ),
];

/// The examples of one command.
pub fn examples(of: &str) -> Vec<Example> {
    EXAMPLES.iter().filter(|e| e.of == of).copied().collect()
}

/// The examples of one command as a block for the long help.
pub fn examples_help(of: &str) -> String {
    let lines = examples(of).into_iter().map(|example| {
        let Example { what, command, .. } = example;
        format!("  {what}:\n      {command}\n")
    });
    format!("Examples:\n{}", lines.collect::<String>())
}
