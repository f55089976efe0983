//! Compares a blob with its digest once all of it has arrived.

use std::rc::Rc;

use remote_image::message::REFUSED;
use remote_image::store::BLOCK;
use rustix::io::Errno;

use super::Fetch;
use crate::verification::compare;

impl Fetch {
    /// Compares the blob with its digest once all of it has arrived. A blob of a single block is
    /// compared immediately, since it may be a root hash, which is used as soon as the blob is
    /// open.
    pub(super) fn look_for_end(self: &Rc<Self>, bytes: u64) {
        let digest = self.identity.digest.clone().unwrap_or_default();
        if !self.verification.arrived(bytes, &self.room) {
            return;
        }
        if self.identity.length <= BLOCK {
            return self.compared(&compare(self.room.store.data(), &digest));
        }
        let (fetch, data) = (Rc::clone(self), self.room.store.data().try_clone());
        tokio::task::spawn_local(async move {
            let data = data.map_err(|error| error.to_string());
            let compare = move || data.and_then(|data| compare(&data, &digest));
            let compared = tokio::task::spawn_blocking(compare).await;
            fetch.compared(&compared.unwrap_or_else(|error| Err(error.to_string())));
        });
    }

    /// Why the bytes of the blob must not be read; `None` if they may.
    pub fn refusal(&self) -> Option<String> {
        let line = self.verification.refusal.borrow().clone()?;
        Some(format!("{}: {line}", self.source))
    }

    /// Waits until nothing is being compared, and returns the refusal without the URL.
    pub async fn compared_refusal(&self) -> Option<String> {
        self.verification.ended().await;
        self.verification.refusal.borrow().clone()
    }

    /// Handles the result of comparing the whole blob with its digest. The error is one line.
    fn compared(&self, outcome: &Result<(), String>) {
        let held = self.verification.end(outcome);
        let Err(line) = outcome else {
            self.room.mark_verified();
            held.into_iter().for_each(|asked| self.answer_well(asked));
            return;
        };
        self.room.forget_all();
        self.note(line);
        let text = self.refusal().unwrap_or_default();
        let (id, errno) = (REFUSED, Errno::IO.raw_os_error());
        self.reply_to_all(id, errno, &text);
        for asked in held.into_iter().chain(self.waiting.borrow_mut().take_all()) {
            self.answer(asked, errno, text.clone());
        }
    }
}
