// Package registry keeps the registered event types of a node in memory, and decides which new
// versions may be registered.
//
// Registry serves the append service (Lookup), the upcasting (Steps) and the vault (Manifest)
// from a snapshot of all versions of all types. The HTTP API calls Check, Register, Deprecate
// and Reactivate, the start of a node RegisterBuiltIn. Register and Check compare a version
// with its neighbours by the policy of schema evolution (eventtype.Compare), and have its
// upcasters tried on all stored events by module.Prover, which application/upcasting
// implements. The package itself neither reads nor converts events.
//
// The registry of a tenant follows from its administrative log (administration.EventTypes), that
// of the built-in modules from rows.
//
// The snapshot may be stale. A registry's generation grows with every change, and a node reloads
// once it finds that it has grown: after a NOTIFY, at every interval of Run, and when a lookup
// misses. Until then a node takes appends of a version that was deprecated through another node.
// If the database cannot be reached, the snapshot is still served; a miss then gives the store's
// fault, because a type that is not in memory may be registered nonetheless.
//
// Register takes no lock while it checks, because a proof can take many seconds. It stores the
// version on the condition that the generation is still that of the snapshot that it checked
// against, and otherwise starts again. The condition covers the registry, not the log: an event
// that is appended after the proof and before every node knows the version is not proven
// (ADR 0023).
//
// An upcaster converts data of an earlier version to the version that declares it. Administrators
// write it in jq (eventtype.Upcaster, compiled by ports.TransformCompiler), modules in Go
// (module.Upcast). A module.Step is one conversion on the way to the newest version. Types of
// built-in modules are registered without policy and proof: module.Build tries their upcasters on
// the examples of the previous version only.
//
// A registered version is never changed and never deleted; only its active flag is. Deprecating
// ends appends and does not change how events are read. A wrong version is undone by a further
// one, with upcasters from it and from the versions before it.
package registry
