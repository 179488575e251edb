// Package exportdir keeps documents in a folder outside the database and its backups, such
// as a mounted share: one file per document, which is written once and never changed.
// keyrotation stores key exports in it, erasure its receipts. adapters/s3 does the same in a
// bucket.
package exportdir
