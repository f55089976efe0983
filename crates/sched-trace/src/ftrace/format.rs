//! The `format` files of tracefs: where the fields of an event's record are.

/// One kind of event, as described by its `format` file.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventFormat {
    pub name: String,
    pub id: u16,
    fields: Vec<(String, Field)>,
}

/// The position of a value in a record.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Field {
    pub offset: usize,
    pub size: usize,
    pub signed: bool,
    pub location: Location,
}

/// How to find a field's data.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Location {
    /// At the field's offset.
    #[default]
    Here,
    /// `__data_loc`: the value at the field's offset holds the offset (low half) and the length of
    /// the data.
    Absolute,
    /// `__rel_data_loc`: like `Absolute`, but the offset is relative to the end of the field.
    Relative,
}

impl EventFormat {
    /// Reads a format file; `None` if it lacks the name or the ID.
    pub fn parse(text: &str) -> Option<Self> {
        let mut format = Self::default();
        let mut id = None;
        for line in text.lines() {
            let line = line.trim();
            if let Some(name) = line.strip_prefix("name:") {
                format.name = name.trim().into();
            } else if let Some(number) = line.strip_prefix("ID:") {
                id = number.trim().parse().ok();
            } else if let Some(field) = field(line) {
                format.fields.push(field);
            }
        }
        format.id = id?;
        (!format.name.is_empty()).then_some(format)
    }

    /// The field with this name.
    pub fn field(&self, name: &str) -> Option<Field> {
        let mut fields = self.fields.iter();
        fields.find(|(n, _)| n == name).map(|&(_, field)| field)
    }
}

/// Parses a line such as `field:char comm[16]; offset:8; size:16; signed:0;`.
fn field(line: &str) -> Option<(String, Field)> {
    let mut parts = line.split(';').map(str::trim);
    let declaration = parts.next()?;
    let declaration = declaration
        .strip_prefix("field:")
        .or(declaration.strip_prefix("field "))?;
    let mut field = Field::default();
    for part in parts {
        let Some((key, value)) = part.split_once(':') else {
            continue;
        };
        match key {
            "offset" => field.offset = value.trim().parse().ok()?,
            "size" => field.size = value.trim().parse().ok()?,
            "signed" => field.signed = value.trim() == "1",
            _ => {}
        }
    }
    let declaration = declaration.trim_start_matches(':').trim();
    field.location = if declaration.starts_with("__data_loc") {
        Location::Absolute
    } else if declaration.starts_with("__rel_loc") || declaration.starts_with("__rel_data_loc") {
        Location::Relative
    } else {
        Location::Here
    };
    let name = declaration.rsplit([' ', '*']).next()?;
    let name = name.split('[').next()?;
    (!name.is_empty()).then(|| (name.to_string(), field))
}

impl Field {
    /// An integer of 1, 2, 4 or 8 bytes, little-endian, widened with its sign.
    pub fn int(&self, record: &[u8]) -> Option<i64> {
        let bytes = record.get(self.offset..self.offset.checked_add(self.size)?)?;
        let negative = self.signed && bytes.last()? & 0x80 != 0;
        let mut wide = [if negative { 0xff } else { 0 }; 8];
        wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
        matches!(bytes.len(), 1 | 2 | 4 | 8).then(|| i64::from_le_bytes(wide))
    }

    /// The bytes of an array, or of a string with a location, possibly with a NUL at the end.
    pub fn bytes<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        if self.location == Location::Here {
            return record.get(self.offset..self.offset.checked_add(self.size)?);
        }
        let word = record.get(self.offset..)?.first_chunk()?;
        let word = u32::from_le_bytes(*word) as usize;
        let (mut start, length) = (word & 0xffff, word >> 16);
        if self.location == Location::Relative {
            start += self.offset + 4;
        }
        record.get(start..start + length)
    }
}

/// The layout of a ring buffer page (`events/header_page`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PageLayout {
    /// Bytes of the commit field: a `long` of the traced kernel.
    pub commit_size: usize,
    /// Offset of the first record.
    pub data: usize,
    /// Size of the page.
    pub page: usize,
}

impl PageLayout {
    /// Pages of 4 KiB on a 64-bit kernel.
    pub const USUAL: Self = Self {
        commit_size: 8,
        data: 16,
        page: 4096,
    };

    /// Reads `events/header_page`; `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let fields: Vec<(String, Field)> = text.lines().filter_map(|l| field(l.trim())).collect();
        let find = |name: &str| fields.iter().find(|(n, _)| n == name).map(|&(_, f)| f);
        let (commit, data) = (find("commit")?, find("data")?);
        let layout = Self {
            commit_size: commit.size,
            data: data.offset,
            page: data.offset + data.size,
        };
        let sane = commit.offset == 8
            && matches!(commit.size, 4 | 8)
            && data.offset >= 8 + commit.size
            && (512..=1 << 24).contains(&layout.page);
        sane.then_some(layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE_WORK: &str = "name: workqueue_queue_work
ID: 337
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:void * work;\toffset:8;\tsize:8;\tsigned:0;
\tfield:__data_loc char[] workqueue;\toffset:16;\tsize:4;\tsigned:0;
\tfield:char comm[4];\toffset:20;\tsize:4;\tsigned:0;
";

    #[test]
    fn fields_are_found_by_name() {
        let format = EventFormat::parse(QUEUE_WORK).unwrap();
        assert_eq!(
            (format.name.as_str(), format.id),
            ("workqueue_queue_work", 337)
        );
        let mut record = vec![0u8; 24];
        record[4..8].copy_from_slice(&(-5i32).to_le_bytes());
        record[8..16].copy_from_slice(&0xffff_8880_0000_0010u64.to_le_bytes());
        record[16..20].copy_from_slice(&(24u32 | 3 << 16).to_le_bytes());
        record.extend(b"wq\0");
        assert_eq!(format.field("common_pid").unwrap().int(&record), Some(-5));
        assert_eq!(
            format.field("work").unwrap().int(&record),
            Some(0xffff_8880_0000_0010u64 as i64)
        );
        assert_eq!(
            format.field("workqueue").unwrap().bytes(&record),
            Some(&b"wq\0"[..])
        );
        assert_eq!(format.field("comm").unwrap().size, 4);
        assert_eq!(format.field("missing"), None);
    }

    #[test]
    fn a_short_record_has_no_value_and_does_not_panic() {
        let format = EventFormat::parse(QUEUE_WORK).unwrap();
        assert_eq!(format.field("work").unwrap().int(&[0; 9]), None);
        let mut record = vec![0u8; 24];
        record[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(format.field("workqueue").unwrap().bytes(&record), None);
    }

    #[test]
    fn the_page_layout_is_read_from_the_kernels_own_words() {
        let text = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;";
        assert_eq!(PageLayout::parse(text), Some(PageLayout::USUAL));
        assert_eq!(
            PageLayout::parse("field: char data;\toffset:1;\tsize:2;"),
            None
        );
    }
}
