//! The server's half against a Varlink client that is not ours: `zlink`'s.

use std::os::fd::OwnedFd;

use hostcni::wire::{IDL, INTERFACE};
use serde::{Deserialize, Serialize};
use zlink::varlink_service::Proxy;

use crate::peer::{Place, channel};

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(test)
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "method", content = "parameters")]
enum Method {
    #[serde(rename = "io.hostcni.Node.Invoke", rename_all = "camelCase")]
    Invoke { command: String, netns_fd: u32, config: String },
    #[serde(rename = "io.hostcni.Node.Fly")]
    Fly {},
}

#[derive(Debug, Deserialize)]
struct Reply {
    result: String,
}

// Not by zlink's derive: it allows lints that this crate forbids.
#[derive(Debug, Deserialize)]
#[serde(tag = "error", content = "parameters")]
enum NodeError {
    #[serde(rename = "io.hostcni.Node.CniError")]
    CniError { code: u32, msg: String, details: String },
}

#[test]
fn it_tells_who_it_is_and_what_it_speaks() {
    let place = Place::new();
    let _server = place.serve(|_, _| None);
    run(async {
        let mut connection = zlink::tokio::unix::connect(place.socket()).await.unwrap();
        let info = connection.get_info().await.unwrap().unwrap();
        assert_eq!(info.product, "hostcni");
        let interfaces: Vec<String> = info.interfaces.iter().map(ToString::to_string).collect();
        assert_eq!(interfaces, ["org.varlink.service", INTERFACE]);
        for name in interfaces {
            let wanted = name.as_str().try_into().unwrap();
            let description = connection.get_interface_description(wanted).await.unwrap().unwrap();
            description.parse().expect("the definition is in Varlink's language");
            assert_eq!(description.as_raw() == Some(IDL), name == INTERFACE);
        }
        let unknown = "org.example".try_into().unwrap();
        let error = connection.get_interface_description(unknown).await.unwrap_err();
        assert!(error.to_string().contains("org.example"), "{error}");
    });
}

#[test]
fn a_foreign_client_invokes_with_a_descriptor_and_hears_cni_errors() {
    let place = Place::new();
    let (sender, received) = channel();
    let _server =
        place.serve(move |call, netns| {
            sender.send((call.config.clone(), netns.is_some())).expect("the test waits");
            Some(match call.command.as_str() {
                "ADD" => Ok("{ \"x\": 1.10 }".to_owned()),
                _ => Err(hostcni::cni::Error::new(hostcni::cni::ErrorCode::PoolExhausted, "full")
                    .with_details("d")),
            })
        });
    run(async {
        let mut connection = zlink::tokio::unix::connect(place.socket()).await.unwrap();
        let null = || vec![OwnedFd::from(std::fs::File::open("/dev/null").unwrap())];
        let invoke = |command: &str| {
            let config = "{\"name\": \"n\"}".to_owned();
            zlink::Call::new(Method::Invoke { command: command.to_owned(), netns_fd: 0, config })
        };
        let (reply, _) = connection.call_method::<_, Reply, NodeError>(&invoke("ADD"), null()).await.unwrap();
        assert_eq!(reply.unwrap().into_parameters().unwrap().result, "{ \"x\": 1.10 }");
        assert_eq!(received(), ("{\"name\": \"n\"}".to_owned(), true));
        let (reply, _) = connection.call_method::<_, Reply, NodeError>(&invoke("DEL"), null()).await.unwrap();
        let NodeError::CniError { code, msg, details } = reply.unwrap_err();
        assert_eq!((code, msg.as_str(), details.as_str()), (100, "full", "d"));
        received();
        let unknown = zlink::Call::new(Method::Fly {});
        let error = connection.call_method::<_, Reply, NodeError>(&unknown, vec![]).await.unwrap_err();
        assert!(matches!(error, zlink::Error::VarlinkService(_)), "{error:?}");
    });
}
