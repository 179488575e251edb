// Package redaction replaces personal data that was stored in clear, such as in migrated events
// and free texts, by "[REDACTED]".
//
// It is the fallback for data that was never sealed: erasing keys (application/erasure) does not
// reach it, and a sealed value is refused here. A [Service] takes the request of one person and
// the decision of another; the HTTP API calls it. A [Worker] executes approved requests.
//
// A request names values of one event. It may name only what nothing computes with: in a type
// of a module the members that the module declares redactable (application/module), in another
// type texts that identify nothing and without which the data still fits its schema ([Rules]).
// The rules hold when the request is made and again when it is carried out.
//
// A request goes through the states of [shredding.RedactionState]. Approving binds to the hash of
// the payload that was previewed. One transaction of the database replaces the payload, records
// the redaction, marks the event and moves the request; it demands the approval itself. The
// skeleton and every checksum stay, and an event with the old and new hashes vouches for the new
// payload, so that verification still passes. Then the rows of read models are recomputed, the
// log is verified and a signed certificate is stored. Every step is such a transaction, or calls
// that may be repeated and then one: any worker goes on where another died.
//
// The package changes nothing but payloads and rows of read models. Intents, the write-ahead
// log, backups and what left the system keep the values.
package redaction
