// Package verify proves a log sound or says where it was tampered with.
//
// [Run] reads a database, [Dump] an export file, and [Registry] the event types: they hash every payload again, compute every checksum again from the
// genesis on, and compare the result with what is kept beside the events and, if there is
// one, with a head that was exported earlier. The CLI and the HTTP API call them. [Export] writes the file. The
// package never changes what it reads.
package verify
