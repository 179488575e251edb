// Package custom runs projections that tenants create while the system runs: a
// filter, a key and a fold, the last two programs in jq. Programs see events as the API
// shows them, in the version in which their type is read, without personal values in
// clear: those stand as tokens, which programs may move and which are kept as sealed
// copies that the reader's rights decide about.
package custom
