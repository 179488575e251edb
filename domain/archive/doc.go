// Package archive is the format of payloads that have left the database.
//
// A segment is a file of payloads of one partition: JSON lines, one for each event, compressed with Zstandard
// (RFC 8878), so that every tool reads it. The skeletons of the events stay in the log, and with them the hash of each
// payload: a segment proves itself against the log, and the log names the segment, by an event that holds its manifest.
package archive
