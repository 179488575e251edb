// Package redaction replaces personal data that was stored in clear, such as in migrated
// events, by "[REDACTED]".
//
// A [Service] takes a request from one person, has a second one approve it, and replaces the
// payload; the CLI calls it. It is the fallback for data that was never sealed: erasing keys
// (application/erasure) does not reach it, and Service refuses a value that is sealed.
//
// The skeleton and every checksum stay, and an event with the old and new hashes proves the
// new payload, so that verification still passes. The payload changes in one transaction and
// the event follows in another: after a crash between them, Service.Run for the request, or
// Service.Repair for a legal entity, appends the event. The package never changes anything
// but payloads.
package redaction
