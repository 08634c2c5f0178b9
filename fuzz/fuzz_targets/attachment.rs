#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    hostcni_fuzz::attachment(data);
});
