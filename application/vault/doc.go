// Package vault seals personal values on their way to the store and opens them for readers.
//
// Only the values that an event type declares personal are sealed; the rest of a document is
// stored in clear. Each person has a data key (DEK) per partition and retention class. The
// key store holds it wrapped with a key of the tenant (KEK) that never leaves the key
// service.
//
// A [Vault] loads the data keys of persons, mints missing ones, caches them for at most
// Config.Life, and evicts them when the key store reports an erasure. The append service
// and the intent pipeline seal with it; the services that return events open with it.
// Nothing else in a process holds data keys. The vault never decides who may read a value
// (the caller passes that in), and never writes a data key or an opened value to a log or a
// store.
package vault
