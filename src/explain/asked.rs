//! What a person asks for: a pod, a container, an address, or the node's end of a link.

use std::convert::Infallible;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use crate::wire::AttachmentInfo;

/// A container's id may be cut short, as tables show it, but not so far that it means many.
const SHORTEST_ID: usize = 6;

/// The word on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub(super) word: String,
    pub(super) address: Option<IpAddr>,
}

impl FromStr for Asked {
    type Err = Infallible;

    fn from_str(word: &str) -> Result<Self, Infallible> {
        let with_length = || word.parse::<IpNet>().map(|net| net.addr());
        let address = word.parse().or_else(|_| with_length()).ok();
        // Logs of programs that listen on `::` have IPv4 addresses as `::ffff:10.128.0.5`.
        Ok(Self { word: word.to_owned(), address: address.map(|address: IpAddr| address.to_canonical()) })
    }
}

impl Asked {
    /// Whether the attachment is meant.
    pub fn means(&self, it: &AttachmentInfo) -> bool {
        let word = self.word.as_str();
        // What the runtime did not say is an empty text, and not what an empty word means.
        let same = |said: &str, asked: &str| !asked.is_empty() && said == asked;
        let pod = match self.pod() {
            Some((namespace, name)) => same(&it.pod_namespace, namespace) && same(&it.pod_name, name),
            None => same(&it.pod_name, word) || same(&it.pod_uid, word),
        };
        pod || same(&it.host_link, word)
            || self.means_container(&it.container_id)
            || self.means_addresses(&it.addresses)
    }

    /// Namespace and name, where it is written so.
    pub(super) fn pod(&self) -> Option<(&str, &str)> {
        self.word.split_once('/').filter(|_| self.address.is_none())
    }

    pub(super) fn means_container(&self, id: &str) -> bool {
        let short = self.word.len() >= SHORTEST_ID && id.starts_with(&self.word);
        short || (!id.is_empty() && id == self.word)
    }

    /// Whether one of the addresses, with or without a length, is meant.
    pub(super) fn means_addresses<'a>(
        &self,
        addresses: impl IntoIterator<Item = impl AsRef<str> + 'a>,
    ) -> bool {
        let Some(meant) = self.address else { return false };
        let of = |text: &str| text.split('/').next().and_then(|text| text.trim().parse::<IpAddr>().ok());
        addresses.into_iter().any(|text| of(text.as_ref()) == Some(meant))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment() -> AttachmentInfo {
        AttachmentInfo {
            container_id: "0123456789abcdef".into(),
            pod_namespace: "shop".into(),
            pod_name: "web-0".into(),
            pod_uid: "3f2a".into(),
            addresses: vec!["10.128.0.5/23".into(), "fd01::5/64".into()],
            host_link: "hc0123456789abc".into(),
            ..AttachmentInfo::default()
        }
    }

    #[test]
    fn a_pod_is_found_by_whatever_people_have_at_hand() {
        let means = |word: &str| word.parse::<Asked>().unwrap().means(&attachment());
        for word in
            ["web-0", "shop/web-0", "3f2a", "0123456789abcdef", "012345", "10.128.0.5", "10.128.0.5/23"]
        {
            assert!(means(word), "{word}");
        }
        for word in ["fd01:0::5", "FD01::5", "fd01::5/64", "::ffff:10.128.0.5", "hc0123456789abc"] {
            assert!(means(word), "{word}");
        }
        for word in [
            "",
            "web",
            "other/web-0",
            "shop/",
            "/web-0",
            "/",
            "01234",
            "10.128.0.50",
            "fd01::",
            "hc0",
            "-",
            "/0",
        ] {
            assert!(!means(word), "{word}");
        }
    }

    #[test]
    fn a_pod_that_is_named_like_an_address_or_a_link_is_found_by_its_name() {
        for name in ["10.0.0.1", "hcl-vault-agent"] {
            let pod = AttachmentInfo { pod_name: name.into(), ..attachment() };
            assert!(name.parse::<Asked>().unwrap().means(&pod));
            assert!(format!("shop/{name}").parse::<Asked>().unwrap().means(&pod));
        }
    }

    #[test]
    fn a_pod_without_a_name_is_not_meant_by_an_empty_word() {
        let nameless = AttachmentInfo { host_link: "h".into(), ..AttachmentInfo::default() };
        for word in ["", "/", " ", "//"] {
            assert!(!word.parse::<Asked>().unwrap().means(&nameless), "{word:?}");
        }
    }
}
