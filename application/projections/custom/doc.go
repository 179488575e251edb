// Package custom runs the projections that tenants create at run time: a filter, and two
// programs in jq that compute the key of an event and the new state of that key.
//
// A [Service] creates, changes and reads them; application/projections runs their handlers. A
// program receives events as the API returns them, upcast to the newest version of their type,
// with a token in place of each personal value. It may move tokens; the stored row holds
// sealed copies, which each reader sees by the reader's own rights. The package never sees a
// personal value in clear. A program reads nothing but its input: no file, network, environment,
// clock or randomness, and no row of another key. Its work and the size of its result are bounded.
package custom
