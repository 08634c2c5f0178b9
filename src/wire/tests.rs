//! The messages against their definition, and against versions of hostcni that know more or less.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use zlink::idl::Interface;

use super::*;

fn node() -> Interface<'static> {
    Interface::try_from(IDL).expect("the definition is in Varlink's language")
}

/// The names of an object's fields as they are written, with every optional one there.
fn written(value: impl Serialize) -> Vec<String> {
    let value = serde_json::to_value(value).unwrap();
    value.as_object().unwrap().keys().cloned().collect()
}

#[test]
fn both_definitions_are_in_varlinks_language() {
    assert_eq!(node().name().to_string(), INTERFACE);
    let service = Interface::try_from(SERVICE_IDL).unwrap();
    assert_eq!(service.name().to_string(), SERVICE_INTERFACE);
    assert_eq!(service.methods().count(), 2);
}

#[test]
fn the_types_are_as_they_are_defined() {
    let fields = |wanted: &str| -> Vec<String> {
        let node = node();
        let found = node.custom_types().find(|it| *it.name() == wanted).expect(wanted);
        found.as_object().unwrap().fields().map(|field| field.name().to_string()).collect()
    };
    assert_eq!(fields("RangeStatus"), written(RangeStatus::default()));
    assert_eq!(fields("ConfStatus"), written(ConfStatus::default()));
    assert_eq!(fields("NetworkStatus"), written(NetworkStatus::default()));
    assert_eq!(fields("AttachmentInfo"), written(AttachmentInfo::default()));
    assert_eq!(fields("MonitorEvent"), written(MonitorEvent::default()));
}

#[test]
fn the_methods_are_as_they_are_defined() {
    let invoke = Invoke {
        netns_fd: Some(0),
        traceparent: Some(String::new()),
        tracestate: Some(String::new()),
        timeout: Some(0),
        ..Invoke::default()
    };
    let node = node();
    let method = |wanted: &str| node.methods().find(|it| *it.name() == wanted).expect(wanted);
    let names = |list: Vec<&zlink::idl::Parameter<'_>>| -> Vec<String> {
        list.into_iter().map(|it| it.name().to_string()).collect()
    };
    assert_eq!(names(method("Invoke").inputs().collect()), written(invoke));
    assert_eq!(names(method("Invoke").outputs().collect()), written(InvokeReply::default()));
    assert_eq!(names(method("Status").outputs().collect()), written(StatusReply::default()));
    assert_eq!(names(method("WaitReady").inputs().collect()), ["timeout"]);
    assert_eq!(names(method("LogFilter").inputs().collect()), ["filter"]);
    assert_eq!(node.methods().count(), 6);
    let error = node.errors().find(|it| *it.name() == "CniError").unwrap();
    let fields: Vec<String> = error.fields().map(|field| field.name().to_string()).collect();
    assert_eq!(fields, written(CniErrorParameters::default()));
}

fn old_and_new<T: Serialize + DeserializeOwned + Default + PartialEq + std::fmt::Debug>() {
    assert_eq!(
        serde_json::from_value::<T>(json!({})).unwrap(),
        T::default(),
        "an old peer leaves fields out"
    );
    let mut newer = serde_json::to_value(T::default()).unwrap();
    newer["fromTheFuture"] = json!({ "deep": [1, 2, { "x": null }] });
    assert_eq!(serde_json::from_value::<T>(newer).unwrap(), T::default(), "a new peer sends more");
}

#[test]
fn old_and_new_understand_each_other() {
    old_and_new::<Invoke>();
    old_and_new::<InvokeReply>();
    old_and_new::<StatusReply>();
    old_and_new::<NetworkStatus>();
    old_and_new::<AttachmentInfo>();
    old_and_new::<MonitorEvent>();
    old_and_new::<CniErrorParameters>();
}

#[test]
fn the_configuration_travels_unchanged() {
    // Order of keys, spelling of numbers, a duplicate key, escapes, white space.
    let config = "{ \"z\": 1.10, \"a\": 18446744073709551616,\n\t\"a\": \"\\u00e9\\/\" }";
    let sent = serde_json::to_vec(&Invoke { config: config.to_owned(), ..Invoke::default() }).unwrap();
    assert_eq!(serde_json::from_slice::<Invoke>(&sent).unwrap().config, config);
}

#[test]
fn parameters_may_be_missing_or_null() {
    for message in [r#"{"method":"m"}"#, r#"{"parameters":null}"#] {
        assert!(serde_json::from_str::<Body<Value>>(message).unwrap().parameters.is_none());
    }
}
