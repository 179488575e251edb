// Package upcasting converts events of earlier schema versions to the newest version of their
// type when they are read, and tries before a version is registered whether all stored events
// can be converted to it. Stored events are never changed.
//
// Service implements module.Upcaster. UpcastReader and UpcastProjection wrap readers and
// projection handlers with it, so that folds and handlers know one version of a type. Prover
// implements module.Prover for application/registry.
//
// An event that cannot be converted fails the whole call of Upcast: folds and projections stop
// at it, because they must not mix versions. UpcastForDisplay, which serves the API, returns it
// as stored with UpcastError. Such events exist although versions are proven: another node may
// append one between the proof and the moment when it knows the version, and a later release may
// not compile the program. The remedy is a further version with an upcaster that can convert it.
//
// A result is validated against the schema in a proof and by CheckUpcastable, before the append
// of an event of an earlier version. Readers rely on that: of a result they only require that it
// is an object, and that sealed values are where the newest version declares them.
//
// Upcasters see sealed values as tokens. shredding.Detach takes the values out before the first
// step and Attach puts them where the tokens are after the last one. An upcaster may leave a
// value out.
//
// A proof takes several calls of bounded length. Their state travels in a token that the caller
// sends back: a cursor until everything was read, then, if nothing failed, the proof with which
// to register. The token fits one candidate only, description and examples included, and any
// person may send it. A failure stays in the token: correct the upcaster, and begin without one.
package upcasting
