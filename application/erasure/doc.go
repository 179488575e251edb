// Package erasure destroys the keys that a person's data are sealed with, and proves it.
//
// A [Service] stores requests for erasure, requires the approval of a second person, and
// returns certificates; the HTTP API calls it. A [Worker] executes approved requests. A
// [Gate] stops a restored database from serving data that was erased since its backup.
//
// An erasure changes no byte of an event. Payload hashes are computed over the sealed
// values, so the chain of the log stays valid. Read models that hold sealed copies are
// recomputed; subscriptions and webhooks store positions and no payloads, so they hold
// nothing to erase. Backups still hold the wrapped keys until a rotation ends the KEK that
// wrapped them (application/keyrotation).
//
// A request goes through the states of shredding.ErasureState. Each step is one
// transaction of the register, or calls that may be repeated and then such a transaction.
// The stored state decides the next step, so any worker can continue where a process died.
// Several workers may run: the register moves a request from a revision only once. A legal
// hold, or the minimum retention of an event type, refuses a request until the keys are
// destroyed. The package never deletes events, and never restores a key.
package erasure
