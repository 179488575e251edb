// Package redaction replaces personal data that was stored in clear, such as in migrated
// events, by "[REDACTED]".
//
// A [Service] takes a request from one person, has a second one approve it, and replaces
// the payloads; the CLI calls it. It is the fallback for data that was
// never sealed: erasing keys (application/erasure) does not reach it. The skeleton and
// every checksum stay, and an event with the old and new hashes vouches for the new
// payload, so that verification still passes. It never changes anything but payloads.
package redaction
