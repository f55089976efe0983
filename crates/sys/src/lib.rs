//! System calls the libraries lack: the only crate with unsafe code of ours
