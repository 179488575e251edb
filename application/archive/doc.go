// Package archive moves payloads of closed years out of the database, and back.
//
// Archiver makes segments of what is old enough: it folds the states that replace the payloads, stores the file, reads it
// back, appends an event with the manifest, and lets the database exchange the payloads for the states. Each step may be
// repeated: a run that was killed goes on where it stopped. Forget removes a payload that is about to be redacted. Both work
// under a lease on the archive of the legal entity, without which the database removes nothing. Files reads what is archived,
// for every reader of the log.
//
// Skeletons, keys and everything else about an event stay in the database, so that the log is searched and proven
// without the archive. So do payloads of the last two years, of the backbone's own events, of persons under a legal hold,
// of open redactions, and those whose states cannot be stored.
package archive
