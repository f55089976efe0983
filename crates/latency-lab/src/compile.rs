//! The compilation that experiments launch: cc1, the C compiler proper, checks a small program.

/// The source of the program. It includes no headers, so that cc1 opens no other file.
pub(crate) const SOURCE: &str = "typedef unsigned long size_t;
struct list { struct list *next; size_t length; };
static size_t total(const struct list *list) {
    size_t sum = 0;
    for (; list; list = list->next)
        sum += list->length;
    return sum;
}
int main(void) {
    struct list last = { 0, 3 }, first = { &last, 4 };
    return total(&first) != 7;
}
";

/// Path of the source, below the root of the image.
pub(crate) const SOURCE_NAME: &str = "program.c";

/// The command, run with the image as its root directory.
pub(crate) fn command(compiler: &str) -> Vec<String> {
    let words = [
        compiler,
        "-quiet",
        // Without this, cc1 would include stdc-predef.h.
        "-nostdinc",
        "-fsyntax-only",
        // Without this, cc1 would create program.s in its directory, which is not writable.
        "-o",
        "-",
        "/program.c",
    ];
    words.map(str::to_owned).into()
}
