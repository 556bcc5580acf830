//! The control API as both ends see it: Varlink interface `io.plimsoll` on a unix socket.
//!
//! [`message`] has the parameters of each call and reply, [`frame`] bounds what travels, [`client`] is what commands call
//! with. [`accounts`], [`status`] and [`protect`] are what is shown. The daemon answers (`plimsoll-daemon`, `api`).

pub mod accounts;
pub mod client;
pub mod frame;
pub mod message;
pub mod protect;
pub mod status;

/// The control socket, where nobody says otherwise.
pub const CONTROL_SOCKET: &str = "/run/plimsoll/control.sock";

/// The name of the tmalloc socket beside the control socket, where it is not put elsewhere.
pub const TMALLOC_SOCKET_NAME: &str = "tmalloc.sock";

/// Likewise, that of the socket on which programs are told that memory is short.
pub const PRESSURE_SOCKET_NAME: &str = "pressure.sock";
