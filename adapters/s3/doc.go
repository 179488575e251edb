// Package s3 keeps documents in a bucket of an S3-compatible store, outside the database and
// its backups: one object per document, which is written once and never changed. keyrotation
// stores key exports in it, erasure its receipts. adapters/exportdir does the same in a folder.
//
// # Rights
//
// The credentials need these actions on the bucket and on the objects below the prefix:
//
//	s3:ListBucket, s3:ListBucketVersions
//	s3:GetObject, s3:PutObject, s3:DeleteObject, s3:DeleteObjectVersion
//	s3:GetBucketObjectLockConfiguration, s3:PutObjectRetention  if documents are locked
//	s3:GetObjectRetention, s3:GetObjectLegalHold                to tell a lock from a missing right
package s3
