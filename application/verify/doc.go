// Package verify proves a log sound or says where it was tampered with.
//
// [Run] verifies a database, [Dump] an export file, and [Registry] the event types. They
// recompute the hash of every payload and every checksum from the genesis on, in the order
// of the log, and compare the result with the rows about the events and, if the caller has
// one, with a head that was exported earlier. [Export] writes the file. The CLI calls them;
// an erasure calls Run for the logs concerned. The package never changes the data that it
// reads.
//
// It opens no sealed value and reads no key: payload hashes are of the sealed values, so
// erased values pass like all other ones. The hash of a redacted payload differs from the one in
// the skeleton; it passes if a record and an event of the redaction agree with it. Without
// an exported head, verification cannot find that the end of the log was cut off, that the
// database was restored to an earlier state, or that all checksums were recomputed.
package verify
