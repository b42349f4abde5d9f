//! Who may do what: tokens with roles, and users of this host at a Unix socket.

mod peer;
mod token;
mod tokens;

pub use peer::Peer;
pub(crate) use token::hexadecimal;
pub use token::{TOKEN_PREFIX, Token, hash_of};
pub use tokens::{Tokens, TokensError, check_file, end_of, schema};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The rights of a client. Each role includes the rights of the roles before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads everything except the audit log: also configurations without their secrets, tables, traces and decisions.
    Viewer,
    /// Also changes tables, sets values of modules, and moves modules.
    Operator,
    /// Also changes configurations, and reads the audit log.
    Admin,
}

/// A client with its rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// A client without a token. At a loopback address, it reads metrics and the state of pipelines. At any other
    /// address, it reads only `/healthz` and the files of the page.
    Open,
    /// A user of this host, at a Unix socket. It reads what a [`Role::Viewer`] reads.
    Local {
        /// The user ID.
        uid: u32,
    },
    /// A client with a token.
    Token {
        /// The token's name.
        name: String,
        /// The user of this host that the token stands for, if one is named.
        user: Option<String>,
        /// Its rights.
        role: Role,
        /// When the token ends.
        expires: Option<Timestamp>,
    },
}

impl Access {
    /// Returns whether the client may do what `role` may do.
    #[must_use]
    pub fn is(&self, role: Role) -> bool {
        match self {
            Self::Open => false,
            Self::Local { .. } => role == Role::Viewer,
            Self::Token { role: own, .. } => *own >= role,
        }
    }

    /// Returns the name of the client for the audit log.
    #[must_use]
    pub fn who(&self) -> String {
        match self {
            Self::Open => "anyone".to_owned(),
            Self::Local { uid } => format!("uid {uid}"),
            Self::Token { name, .. } => name.clone(),
        }
    }
}
