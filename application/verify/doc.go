// Package verify proves a log sound or says where it was tampered with.
//
// [Run] verifies a database, [Dump] an export file, and [Registry] the event types. They
// recompute the hash of every payload and every checksum from the genesis on, and compare
// the result with the rows beside the events and, if the caller has one, with a head that
// was exported earlier. The CLI and the HTTP API call them. [Export] writes the file. The
// package never changes the data that it reads.
package verify
