// Package vault seals personal values on their way to the store and opens them for readers.
//
// Only the values that an event type declares personal are sealed; the rest of a document is
// stored in clear. The declaration also says whose a value is: before it seals, the caller
// resolves the document with shredding.Manifest, which makes the person's
// [shredding.Subject], such as "employee:E-1", from an id in the document or from an entity
// reference. Each subject has a data key (DEK) per partition and retention class
// ([ports.SubjectKeyID]), made when its first value is sealed. The key store holds it wrapped
// with a key of the tenant (KEK) that never leaves the key service.
//
// A [Vault] loads the data keys of persons, mints missing ones, caches them for at most
// Config.Life, and evicts them when the key store reports an erasure. The append service
// and the intent pipeline seal with it; the services that return events open with it, and
// [Projection] redacts what a read model copies. Nothing else in a process keeps data keys.
// The vault never decides who may read a value (the caller passes that in), and never writes
// a data key or an opened value to a log or a store.
//
// The cache may be outdated, so a sealed value is not yet a recorded one: the transaction of
// the append leases the versions of the keys that it sealed with, in the key store, until it
// ends. The key store gives no lease on a key that is fenced or destroyed, and the append is
// refused with pii.subject_erased. Vault.Forget and package ports describe the lease.
//
// A failure never looks like an erasure: a sealed value reads "[REDACTED]" only if the key
// store has answered that its key is destroyed. While the key service is unavailable
// (kms.unavailable), keys in memory seal and open until they expire; requests that need any
// other key fail, also the first one about a new person. While the key store is unavailable
// (keys.unavailable), keys in memory still open values, but no append with personal values
// succeeds: it gets no lease.
//
// While Config.Gate is closed (pii.receipts_behind), the vault uses no key at all, not even one
// in memory. The gate of a server, erasure.Gate, also closes when it cannot read the export
// folder or the key store, and so may end the use of keys in memory before they expire.
package vault
