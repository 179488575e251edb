// Package keyrotation replaces the KEKs that wrap the keys of persons: backups from before
// an erasure then hold keys that no KEK opens any more. An epoch is the number of a tenant's
// KEK, from 1; every rotation makes the KEK of the next epoch.
//
// A [Service] rotates the KEKs of a tenant, makes its first one, exports the key store to
// the export store outside the database, and restores keys from exports. The nightly job
// and the CLI call it. It changes keys through ports.KeyRotation and the key management
// service.
//
// A rotation has six steps:
//
//	1  make the next KEK                                    it is pending
//	2  activate it                                          it is active, the old KEK draining
//	3  wrap the remaining keys again
//	4  check that the old KEK wraps none and that keys open
//	5  prove that an export restores
//	6  schedule the deletion of the old KEK                 the old KEK is deleting, later deleted
//
// Each step may be repeated, and these states say where to continue after a crash: the next
// rotation of the tenant, by hand or by the nightly job of any node, first finishes the
// interrupted one. Between steps 2 and 6 new keys are wrapped with the new KEK, and keys that
// are not wrapped again yet open with the old one. Step 6 ends the epoch of the old KEK.
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
