// Package shredding holds the rules that keep personal data erasable.
//
// Personal values in payloads are sealed with a key per person and class; destroying the
// key erases them. A [Manifest] declares which members of an event type are personal and
// finds them in a payload; an [Envelope] is a sealed value. CheckIdentifier and CheckText
// refuse personal data in skeleton columns, which are kept for ever. [ErasureState] is the
// state machine of a request for erasure. The append path, the vault, erasure and redaction
// call the package. It reads no key store and does no I/O.
package shredding
