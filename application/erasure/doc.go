// Package erasure destroys the keys that a person's data are sealed with, and proves it.
//
// A [Service] stores requests for erasure and legal holds, requires the approval of a second
// person, and returns certificates; the HTTP API calls it. A [Worker] executes approved
// requests. A [Gate] stops a restored database from serving data that was erased since its
// backup, and [Replay] repeats those erasures; the CLI calls it.
//
// Requests, holds and receipts are in the register ([ports.ErasureRegister]), tables of the key
// store. The export store ([ports.ExportStore]) is a folder that a restore of the database does
// not set back; it holds the signed receipts too, and the certificates. A node that cannot read
// one of the two closes its gate at the next check: it reads and writes no personal value, also
// not with a key in memory, and fences and destroys nothing.
//
// A request names the person by a [shredding.Subject], the text that is stored with each
// sealed value of the person. An officer may name one about whom nothing is stored: the
// preview shows no records, and the request is executed like any other, with receipt and
// certificate. From then on no key is made for that subject, so nothing personal can be
// recorded about it, and nothing undoes this.
//
// An erasure changes no byte of an event. It appends one, the announcement ([SubjectErased]), to
// the log of each legal entity of the request. Payload hashes are computed over the sealed
// values, so the chain of the log stays valid. Read models that hold sealed copies are
// recomputed; subscriptions and webhooks store positions and no payloads, so they hold
// nothing to erase. Backups still hold the wrapped keys until a rotation ends the KEK that
// wrapped them (application/keyrotation).
//
// A request goes through the states of [shredding.ErasureState]. Each step is one
// transaction of the register, or calls that may be repeated and then such a transaction.
// The stored state decides the next step, so any worker can continue where a process died.
// Several workers may run: the register moves a request from a revision only once. A step
// that fails is repeated for ever, after pauses that grow from a second to a minute; from the
// fifth failure on the worker logs an error.
//
// Two steps end the race with appends. The fence makes the key store refuse further leases on
// the person's keys, so that later appends fail with pii.subject_erased; reads continue. The
// destruction waits for the appends that hold a lease, so that it also erases what they
// record. Only a key store in a database of its own can lose a lease between the last check
// of an append and its commit: the event is then recorded after the destruction. Its values
// read "[REDACTED]" too, and the certificate lists it ([LateEvent]).
//
// A legal hold of the person, in a legal entity of the request, ends it as refused until the keys
// are destroyed, also when it is approved or fenced. Minimum retention keeps single classes
// ([shredding.KeyClass]): the request is then partial, erases the remaining classes and
// completes, or is refused if it must keep every class. When the last day of a retention or a
// hold has passed, the worker requests what was kept, within an hour; that request needs its own
// approval. A hold without a last day has no such follow-up.
//
// A request whose keys are destroyed waits until its receipt is exported. The package never
// deletes events, and never restores a key.
package erasure
