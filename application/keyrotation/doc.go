// Package keyrotation replaces the KEKs that wrap the keys of persons: backups from before
// an erasure then hold keys that no KEK opens any more. An epoch is the number of a tenant's
// KEK, from 1; every rotation makes the KEK of the next epoch.
//
// A [Service] rotates the KEKs of a tenant, makes its first one, exports the key store to
// the export store outside the database, and restores keys from exports. The nightly job
// and the CLI call it. It changes keys through ports.KeyRotation and the key management
// service.
//
// A rotation has six steps: make the next KEK, activate it, wrap the remaining keys again,
// check that none is wrapped by the old KEK and that keys open, prove that an export
// restores, delete the old KEK. Each step may be repeated, and the states of the KEKs say
// where to continue after a crash: the next rotation of the tenant, by hand or by the nightly
// job of any node, first finishes the interrupted one. Until then new keys are wrapped with
// the new KEK, and the others open with the old one.
//
// Appends continue during a rotation. The activation waits for mints in flight. A later mint
// under the old KEK is refused (keys.epoch_closed) and stores nothing, and the vault repeats
// it once under the new one. Wrapping a data key again does not change it, so cached keys stay
// valid.
//
// The key service makes the old KEK unusable as soon as its deletion is scheduled, and
// destroys it Config.DeletionDays later. Until then an operator of the key service can cancel
// the deletion; the key store still has the KEK as deleting, so the tenant's next rotation or
// the next nightly job schedules the deletion again, for the same number of days from then.
//
// The package never sees personal data, and never deletes a KEK that still wraps a key.
package keyrotation
