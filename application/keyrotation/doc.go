// Package keyrotation replaces the KEKs that wrap the keys of persons, epoch by epoch:
// backups from before an erasure then hold keys that no KEK opens any more.
//
// A [Service] rotates the KEKs of a tenant, makes its first one, exports the key store to
// the export store outside the database, and restores keys from exports. The nightly job
// and the CLI call it. It changes keys through ports.KeyRotation and the key management
// service.
//
// A rotation has six steps: make the next KEK, activate it, wrap the remaining keys again,
// check that none is wrapped by the old KEK and that keys open, prove that an export
// restores, end the old KEK. Each step may be repeated, and the states of the KEKs say
// where to continue after a crash. The package never sees personal data, and never ends a
// KEK that still wraps a key.
package keyrotation
