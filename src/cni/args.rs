//! `CNI_ARGS`.

use serde::{Deserialize, Serialize};

use super::{Error, ErrorCode};

/// Extra arguments, `K=V;K=V`, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CniArgs {
    raw: String,
    pairs: Vec<(String, String)>,
}

/// Whose pod it is, when the runtime says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodIdentity {
    /// `K8S_POD_NAMESPACE`
    pub namespace: String,
    /// `K8S_POD_NAME`
    pub name: String,
    /// `K8S_POD_UID`
    pub uid: String,
}

impl CniArgs {
    /// Parses the text of `CNI_ARGS`; the empty text is no arguments.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut pairs = Vec::new();
        for pair in text.split(';').filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=').filter(|(key, _)| !key.is_empty()) else {
                let text = format!("CNI_ARGS: {pair:?} is not of the form KEY=VALUE");
                return Err(Error::new(ErrorCode::BadEnvironment, text));
            };
            pairs.push((key.to_owned(), value.to_owned()));
        }
        Ok(Self { raw: text.to_owned(), pairs })
    }

    /// The value of a key; the last one when it is given several times.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().rev().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// Whether unknown keys are to be passed over. hostcni knows no key that changes what it does, so it
    /// passes over all of them; the flag is told for completeness.
    pub fn ignore_unknown(&self) -> bool {
        self.get("IgnoreUnknown")
            .is_some_and(|value| matches!(value, "1" | "true" | "True" | "TRUE" | "t" | "T"))
    }

    /// The pod, when its name is given.
    pub fn pod(&self) -> Option<PodIdentity> {
        let text = |key: &str| self.get(key).unwrap_or_default().to_owned();
        let pod = PodIdentity {
            namespace: text("K8S_POD_NAMESPACE"),
            name: text("K8S_POD_NAME"),
            uid: text("K8S_POD_UID"),
        };
        (!pod.name.is_empty()).then_some(pod)
    }

    /// The text as it came.
    pub fn raw(&self) -> &str {
        &self.raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtimes_arguments_name_the_pod() {
        let args = CniArgs::parse(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=x;K8S_POD_UID=u-1",
        )
        .unwrap();
        let pod = args.pod().unwrap();
        assert_eq!((pod.namespace.as_str(), pod.name.as_str(), pod.uid.as_str()), ("default", "web", "u-1"));
        assert!(args.ignore_unknown());
    }

    #[test]
    fn a_value_may_hold_an_equals_sign_and_be_empty() {
        let args = CniArgs::parse("A=b=c;D=;").unwrap();
        assert_eq!((args.get("A"), args.get("D"), args.get("E")), (Some("b=c"), Some(""), None));
    }

    #[test]
    fn what_is_no_pair_is_an_error_of_the_environment() {
        for bad in ["A", "=b", "A=b;C"] {
            assert_eq!(CniArgs::parse(bad).unwrap_err().code, ErrorCode::BadEnvironment, "{bad}");
        }
        assert_eq!(CniArgs::parse("").unwrap(), CniArgs::default());
    }
}
