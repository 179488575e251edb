// Package shredding holds the rules that keep personal data erasable.
//
// Personal values in payloads are sealed with a key per person and class; destroying the
// key erases them. [Manifest] says which members of an event type are personal, it
// takes a payload apart accordingly, and an envelope is a sealed value. CheckIdentifier
// and CheckText refuse personal data in skeleton columns, which are kept for ever.
// ErasureState is the life of a request for erasure. The append path, the vault, erasure
// and redaction call it. The package reads no key store and does no I/O.
package shredding
